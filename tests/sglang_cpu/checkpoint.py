"""A tiny bf16 GLM-5.3-Flash checkpoint whose greedy decoding is stable and needs every KDA layer's state.

It speaks the `language.Language`. A write token makes each KDA layer put its digit of the key into the recurrent state
of every other head, where it stays; later tokens write nothing there. The model reads the next place off the current
token, and the key off nothing but those states: a lost, mixed-up or stale state is another token at once.

All weights carry noise on top, and the other heads, the attention and the feed-forward layers are nothing but noise:
they move every logit, without reaching the margin that places and digits have. `test_sglang_on_cpu.py` measures both.
"""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from tests.sglang_cpu.language import DIGITS, Language

LINEAR = "linear_attention"
FULL = "full_attention"
DENSE = "dense"
SPARSE = "sparse"

_HEAD_DIM = 128
# channels of the hidden state: a constant, whether this token writes, the digits it writes, the digits remembered
_CONSTANT, _WRITES, _DIGITS = 0, 1, 2
_AMPLITUDE = 4.0
# noise of an embedding beside its place's code, of which every channel is 1 or -1
_TOKEN_NOISE = 0.3
# what the layers of noise add to a channel of the hidden state
_LAYER_NOISE = 0.15
_REMEMBERED = 8.0
_PLACE_LOGIT = 14.0
_DIGIT_LOGIT = 10.0
_HEAD_NOISE = 0.02
# of parameters by the end of their name, where it is not what keeps a linear's output at its input's size
_DEVIATIONS = {
    "A_log": 0.3,
    "base": 0.3,
    "bias": 0.1,
    "conv1d.weight": 0.5,
    "e_score_correction_bias": 0.02,
    "index_kpool_compress_ape": 0.5,
}
_FLOAT32 = ("A_log", "dt_bias", "e_score_correction_bias", "_hc.base", "_hc.scale")
# inverse softplus of time steps between 1e-3 and 1e-1, as KDA is initialised
_DT_BIAS_RANGE = (-6.9, -2.25)


@dataclass(frozen=True)
class Stack:
    """Layers and sizes of a made checkpoint.

    Parameters
    ----------
    attention : LINEAR or FULL, a layer each.
    feed_forward : DENSE or SPARSE, a layer each; dense ones first.
    kda_heads : of dimension 128, divided among the ranks.
    index_topk : positions that sparse attention takes. SGLang on a CPU attends to all.
    """

    attention: tuple[str, ...] = (LINEAR, LINEAR, FULL)
    feed_forward: tuple[str, ...] = (DENSE, SPARSE, SPARSE)
    kda_heads: int = 8
    hidden: int = 256
    index_topk: int = 512

    @property
    def language(self) -> Language:
        return Language(length=self.attention.count(LINEAR))


def write_checkpoint(directory: Path | str, stack: Stack | None = None, *, seed: int = 0) -> Language:
    """Write config.json and model.safetensors, as transformers' own class saves them; return the checkpoint's language.

    Call after `environment.prepare()`: transformers is imported.
    """
    import transformers

    stack = stack or Stack()
    directory = Path(directory)
    directory.mkdir(parents=True, exist_ok=True)
    document = config_document(stack)
    config_file = directory / "config.json"
    config_file.write_text(json.dumps(document, indent=2))
    config = transformers.AutoConfig.from_pretrained(directory)
    model: Any = transformers.Glm5NextForConditionalGeneration(config)
    model.float()
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, tensor in [*model.named_parameters(), *model.named_buffers()]:
            tensor.copy_(_draw(name, tensor, generator))
        _teach(model, stack, generator)
    for name, tensor in [*model.named_parameters(), *model.named_buffers()]:
        if not name.endswith(_FLOAT32):
            tensor.data = tensor.data.bfloat16()
    model.save_pretrained(directory)
    # transformers leaves out what is a default of its class, and SGLang reads fields that it does not know
    config_file.write_text(json.dumps(document, indent=2))
    return stack.language


def _draw(name: str, tensor: Tensor, generator: torch.Generator) -> Tensor:
    """Random values that keep activations near 1."""
    if name.endswith("dt_bias"):
        return torch.empty(tensor.shape).uniform_(*_DT_BIAS_RANGE, generator=generator)
    noise = torch.randn(tensor.shape, generator=generator)
    if "norm" in name and name.endswith("weight"):
        return 1 + 0.1 * noise
    if name.endswith("hc.scale"):
        return 0.5 + 0.1 * noise
    if name.endswith(("o_proj.weight", "down_proj.weight", "down_proj")):
        return noise * _LAYER_NOISE / math.sqrt(tensor.shape[-1])
    deviations = (value for end, value in _DEVIATIONS.items() if name.endswith(end))
    return noise * next(deviations, 1 / math.sqrt(tensor.shape[-1]))


def _teach(model: Any, stack: Stack, generator: torch.Generator) -> None:
    """Put the language into embedding, KDA layers and head."""
    language = stack.language
    first_code = _DIGITS + 2 * DIGITS * language.length
    codes = torch.randn(language.places, stack.hidden - first_code, generator=generator).sign()
    _teach_embedding(model.model.language_model.embed_tokens.weight, language, codes, first_code)
    kda_layers = [layer for layer in model.model.language_model.layers if hasattr(layer.self_attn, "conv1d")]
    for digit, layer in enumerate(kda_layers):
        _teach_kda(layer.self_attn, _written(digit), _remembered(language, digit))
    _teach_head(model.lm_head.weight, language, codes, first_code)


def _written(digit: int) -> slice:
    """Channels that say which digit a write token writes."""
    return slice(_DIGITS + digit * DIGITS, _DIGITS + (digit + 1) * DIGITS)


def _remembered(language: Language, digit: int) -> slice:
    """Channels that say which digit a KDA layer remembers."""
    return _written(language.length + digit)


def _teach_embedding(embedding: Tensor, language: Language, codes: Tensor, first_code: int) -> None:
    embedding *= _TOKEN_NOISE
    embedding[:, :first_code] = 0
    embedding[:, _CONSTANT] = _AMPLITUDE
    embedding[:, _WRITES] = -_AMPLITUDE
    for token in language.plain_tokens:
        embedding[token, first_code:] += codes[language.place(token)]
    for key in range(language.keys):
        token = language.write(key)
        embedding[token, first_code:] += codes[language.place(token)]
        embedding[token, _WRITES] = _AMPLITUDE
        for digit, value in enumerate(language.digits(key)):
            embedding[token, _written(digit).start + value] = _AMPLITUDE


def _teach_kda(layer: Any, written: slice, remembered: slice) -> None:
    """Make the even heads remember a digit: value block i of the state, under one key, means digit i."""
    heads, block = layer.num_heads, _HEAD_DIM // DIGITS
    query, key, value = (
        layer.get_submodule(f"{name}_proj").weight.view(heads, _HEAD_DIM, -1)[::2] for name in ("q", "k", "v")
    )
    conv = layer.conv1d.weight.view(3, heads, _HEAD_DIM, -1)[:, ::2]
    conv *= 0.2
    conv[..., -1] = 1
    # query and key are this constant, whatever the token
    direction = 0.5 * key[..., _CONSTANT].sign()
    for projection in (query, key):
        projection *= 0.3
        projection[..., _CONSTANT] = direction
    value *= 0.3
    output = layer.o_proj.weight.view(-1, heads, _HEAD_DIM)[:, ::2]
    output[remembered] *= 0.1
    for digit in range(DIGITS):
        channels = slice(digit * block, (digit + 1) * block)
        value[:, channels, written.start + digit] = 0.6
        output[remembered.start + digit, :, channels] += _REMEMBERED / (block * output.shape[1])
    layer.b_proj.weight[::2, _WRITES] = 2.0
    layer.forget_gate.dt_bias.view(heads, _HEAD_DIM)[::2] = -9.0
    layer.forget_gate.f_b_proj.weight.view(heads, _HEAD_DIM, -1)[::2] *= 0.3


def _teach_head(head: Tensor, language: Language, codes: Tensor, first_code: int) -> None:
    head *= _HEAD_NOISE * math.sqrt(head.shape[1])
    for key in range(language.keys):
        for place in range(language.places):
            row = head[language.plain(place + 1, key)]
            row[first_code:] += _PLACE_LOGIT / codes.shape[1] * codes[place]
            for digit, value in enumerate(language.digits(key)):
                row[_remembered(language, digit).start + value] += _DIGIT_LOGIT / _REMEMBERED


def config_document(stack: Stack) -> dict[str, Any]:
    """config.json that both transformers' and SGLang's classes read."""
    text = {
        "model_type": "glm5_next_text",
        "dtype": "bfloat16",
        "vocab_size": stack.language.vocabulary,
        "hidden_size": stack.hidden,
        "intermediate_size": 256,
        "moe_intermediate_size": 64,
        "num_hidden_layers": len(stack.attention),
        "num_nextn_predict_layers": 0,
        "num_attention_heads": 4,
        "num_key_value_heads": 4,
        "hidden_act": "silu",
        "max_position_embeddings": 4096,
        "rms_norm_eps": 1e-5,
        "tie_word_embeddings": False,
        "pad_token_id": 0,
        "bos_token_id": 1,
        "eos_token_id": 2,
        "n_routed_experts": 8,
        "num_experts_per_tok": 2,
        "n_shared_experts": 1,
        "n_group": 1,
        "topk_group": 1,
        "norm_topk_prob": True,
        "routed_scaling_factor": 2.5,
        "scoring_func": "sigmoid",
        "topk_method": "noaux_tc",
        "first_k_dense_replace": stack.feed_forward.count(DENSE),
        "moe_layer_freq": 1,
        "q_lora_rank": 64,
        "kv_lora_rank": 64,
        "qk_nope_head_dim": 32,
        "qk_rope_head_dim": 0,
        "v_head_dim": 32,
        "swiglu_limit": 10.0,
        "mhc": True,
        "hc_mult": 4,
        "hc_sinkhorn_iters": 20,
        "hc_eps": 1e-6,
        "linear_num_heads": stack.kda_heads,
        "linear_head_dim": _HEAD_DIM,
        "linear_conv_kernel_dim": 4,
        "linear_lower_bound": -5.0,
        "index_head_dim": 128,
        "index_n_heads": 4,
        "index_topk": stack.index_topk,
        "index_topk_freq": 1,
        "index_kpool": 4,
        "index_kpool_compress": True,
        "index_kpool_always_select_tail": True,
        "layer_types": list(stack.attention),
        "mlp_layer_types": list(stack.feed_forward),
    }
    # both ask for a vision tower
    vision = {
        "depth": 1,
        "hidden_size": 64,
        "num_heads": 4,
        "intermediate_size": 64,
        "out_hidden_size": stack.hidden,
        "patch_size": 14,
        "swiglu_limit": 10.0,
    }
    return {
        "architectures": ["Glm5NextForConditionalGeneration"],
        "model_type": "glm5_next",
        "dtype": "bfloat16",
        "language_only": True,
        "text_config": text,
        "vision_config": vision,
    }
