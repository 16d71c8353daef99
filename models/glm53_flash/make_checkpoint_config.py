"""config.json of a made checkpoint: what transformers' and SGLang's classes read, and Quark's quantization_config."""

from __future__ import annotations

from typing import Any

import msgspec

from sgl_amd_mono.models.glm53_flash.checkpoint_tensors import EMBEDDING, LM_HEAD, Storage, expected_tensors
from sgl_amd_mono.models.glm53_flash.config import (
    ARCHITECTURE,
    DENSE,
    INDEXED_ATTENTION,
    LINEAR_ATTENTION,
    SPARSE,
    Config,
)
from sgl_amd_mono.quant import FP8_BLOCK, MX_GROUP


class Sizes(msgspec.Struct, frozen=True, kw_only=True):
    """What a made checkpoint may choose; the released sizes in brackets. Every fourth layer is sparse MLA."""

    layers: int = 8  # [45]
    dense_layers: int = 3
    hidden: int = 512  # [4096]
    vocab: int = 1024  # [154880]
    intermediate: int = 512  # [12288]
    moe_intermediate: int = 256  # [2048]
    experts: int = 32  # [288]
    experts_per_token: int = 8
    kda_heads: int = 8  # [64]
    kda_head_dim: int = 128
    mla_heads: int = 4  # [64]
    q_lora_rank: int = 1536
    kv_lora_rank: int = 512
    qk_head_dim: int = 256
    v_head_dim: int = 256
    index_heads: int = 32
    index_topk: int = 2048


def text_config(sizes: Sizes, end_of_text: int) -> dict[str, Any]:
    """The text model's fields, in the released shape; end_of_text is a token id."""
    kinds = [LINEAR_ATTENTION if layer % 4 != 3 else INDEXED_ATTENTION for layer in range(sizes.layers)]
    dense = min(sizes.dense_layers, sizes.layers)
    return {
        "model_type": "glm5_next_text",
        "dtype": "bfloat16",
        "eos_token_id": end_of_text,
        "pad_token_id": end_of_text,
        "vocab_size": sizes.vocab,
        "hidden_size": sizes.hidden,
        "intermediate_size": sizes.intermediate,
        "moe_intermediate_size": sizes.moe_intermediate,
        "num_hidden_layers": sizes.layers,
        "num_nextn_predict_layers": 0,
        "num_attention_heads": sizes.mla_heads,
        "num_key_value_heads": sizes.mla_heads,
        "hidden_act": "silu",
        "max_position_embeddings": 1048576,
        "rms_norm_eps": 1e-5,
        "tie_word_embeddings": False,
        "attention_bias": False,
        "n_routed_experts": sizes.experts,
        "num_experts_per_tok": sizes.experts_per_token,
        "n_shared_experts": 1,
        "n_group": 1,
        "topk_group": 1,
        "norm_topk_prob": True,
        "routed_scaling_factor": 2.5,
        "scoring_func": "sigmoid",
        "topk_method": "noaux_tc",
        "first_k_dense_replace": dense,
        "moe_layer_freq": 1,
        "q_lora_rank": sizes.q_lora_rank,
        "kv_lora_rank": sizes.kv_lora_rank,
        "qk_nope_head_dim": sizes.qk_head_dim,
        "qk_rope_head_dim": 0,
        "v_head_dim": sizes.v_head_dim,
        "swiglu_limit": 10.0,
        "mhc": True,
        "hc_mult": 4,
        "hc_sinkhorn_iters": 20,
        "hc_eps": 1e-6,
        "linear_attn_config": {
            "kda_layers": [layer for layer, kind in enumerate(kinds) if kind == LINEAR_ATTENTION],
            "full_attn_layers": [layer for layer, kind in enumerate(kinds) if kind == INDEXED_ATTENTION],
            "num_heads": sizes.kda_heads,
            "head_dim": sizes.kda_head_dim,
            "short_conv_kernel_size": 4,
            "gate_lower_bound": -5.0,
        },
        "index_topk": sizes.index_topk,
        "index_head_dim": 128,
        "index_n_heads": sizes.index_heads,
        "index_topk_freq": 1,
        "index_kpool": 4,
        "index_kpool_compress": True,
        "index_kpool_always_select_tail": True,
        "index_share_for_mtp_iteration": True,
        "layer_types": kinds,
        "mlp_layer_types": [DENSE] * dense + [SPARSE] * (sizes.layers - dense),
    }


def config_document(text: dict[str, Any]) -> dict[str, Any]:
    """config.json around the text config `text`, unquantised."""
    # the classes of both transformers and SGLang ask for a vision tower; its weights are not written
    vision = {
        "depth": 1,
        "hidden_size": 64,
        "num_heads": 4,
        "intermediate_size": 64,
        "out_hidden_size": text["hidden_size"],
        "patch_size": 14,
        "swiglu_limit": 10.0,
    }
    return {
        "architectures": [ARCHITECTURE],
        "model_type": "glm5_next",
        "dtype": "bfloat16",
        "language_only": True,
        "text_config": text,
        "vision_config": vision,
    }


def quantization_config(config: Config) -> dict[str, Any]:
    """As Quark exports it: MXFP4 globally, block FP8 by layer name, every other linear excluded."""
    linears = [spec for spec in expected_tensors(config) if spec.name.endswith(".weight") and len(spec.shape) == 2]
    excluded = [spec for spec in linears if spec.storage is Storage.BF16 and spec.name not in (EMBEDDING, LM_HEAD)]
    fp8 = [spec for spec in linears if spec.storage is Storage.FP8_BLOCK]
    mxfp4 = {"dtype": "fp4", "qscheme": "per_group", "group_size": MX_GROUP, "scale_format": "e8m0"}
    block = {"dtype": "fp8_e4m3", "qscheme": "per_block", "block_size": [FP8_BLOCK, FP8_BLOCK], "is_dynamic": False}
    group = {"dtype": "fp8_e4m3", "qscheme": "per_group", "group_size": FP8_BLOCK, "is_dynamic": True}
    unused = {"output_tensors": None, "bias": None}
    return {
        "quant_method": "quark",
        "quant_mode": "eager_mode",
        "export": {"kv_cache_group": [], "pack_method": "reorder", "weight_format": "real_quantized"},
        "global_quant_config": {
            "weight": {**mxfp4, "is_dynamic": False},
            "input_tensors": {**mxfp4, "is_dynamic": True},
            **unused,
        },
        "layer_quant_config": {
            spec.name.removesuffix(".weight"): {"weight": block, "input_tensors": group, **unused} for spec in fp8
        },
        "layer_type_quant_config": {},
        "exclude": ["lm_head", "re:.*visual.*", *(spec.name.removesuffix(".weight") for spec in excluded)],
    }
