"""config.json in the shapes that are met: released, flat, and as transformers saves it."""

from __future__ import annotations

import json
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from sgl_amd_mono.errors import CheckpointError
from sgl_amd_mono.models.glm53_flash.config import ARCHITECTURE, Config

# values of the released model (spec 1.1)
RELEASED = {
    "vocab_size": 154880,
    "hidden_size": 4096,
    "intermediate_size": 12288,
    "moe_intermediate_size": 2048,
    "num_hidden_layers": 45,
    "num_attention_heads": 64,
    "linear_attn_config": {
        "kda_layers": [layer for layer in range(45) if layer % 4 != 3],
        "full_attn_layers": list(range(3, 45, 4)),
        "num_heads": 64,
        "head_dim": 128,
        "short_conv_kernel_size": 4,
        "gate_lower_bound": -5.0,
    },
    "q_lora_rank": 1536,
    "kv_lora_rank": 512,
    "qk_nope_head_dim": 256,
    "qk_rope_head_dim": 0,
    "v_head_dim": 256,
    "n_routed_experts": 288,
    "num_experts_per_tok": 8,
    "n_shared_experts": 1,
    "first_k_dense_replace": 3,
    "routed_scaling_factor": 2.5,
    "swiglu_limit": 10.0,
    "mhc": True,
    "hc_mult": 4,
    "index_topk": 2048,
    "index_head_dim": 128,
    "index_n_heads": 32,
    "index_kpool": 4,
    "index_kpool_compress": True,
    "indexer_types": ["full"] * 45,
}


def write(directory: Path, text: dict[str, Any], **top: Any) -> Path:
    document = {"architectures": [ARCHITECTURE], "text_config": text, **top}
    (directory / "config.json").write_text(json.dumps(document))
    return directory


def test_released_shape(tmp_path: Path) -> None:
    config = Config.load(write(tmp_path, RELEASED))
    assert (len(config.kda_layers), len(config.mla_layers)) == (34, 11)
    assert config.mla_layers == (3, 7, 11, 15, 19, 23, 27, 31, 35, 39, 43)
    assert [layer for layer in range(45) if not config.is_sparse(layer)] == [0, 1, 2]
    assert config.linear_dim == 8192
    assert config.hc_coefficients == 24
    assert (config.index_pools, config.index_width) == (512, 2051)
    assert config.layer_prefix(7) == "model.language_model.layers.7."


def test_flat_shape_and_defaults(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps({"architectures": [ARCHITECTURE], **RELEASED}))
    flat = Config.load(tmp_path)
    assert flat == Config.from_text_config(RELEASED)
    # index_kpool's default is transformers' 16; everything else of the released model is a default
    assert flat == Config.from_text_config({"index_kpool": 4})


def test_shape_that_transformers_saves(transformers: ModuleType, tmp_path: Path) -> None:
    upstream = transformers.Glm5NextConfig(text_config={**RELEASED, "num_hidden_layers": 9, "index_kpool": 8})
    upstream.architectures = [ARCHITECTURE]
    upstream.save_pretrained(tmp_path)
    config = Config.load(tmp_path)
    text = upstream.text_config
    assert [config.is_kda(layer) for layer in range(9)] == [kind == "linear_attention" for kind in text.layer_types]
    assert list(config.mlp_layer_types) == text.mlp_layer_types
    for name in set(Config.__struct_fields__) - {"layer_types", "mlp_layer_types"}:
        assert getattr(config, name) == getattr(text, name), name


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"qk_rope_head_dim": 64}, "qk_rope_head_dim = 64 is not supported, only 0"),
        ({"mhc": False}, "mhc = False"),
        ({"scoring_func": "softmax"}, "scoring_func = 'softmax' is not supported, only 'sigmoid'"),
        ({"n_group": 8}, "n_group = 8"),
        ({"tie_word_embeddings": True}, "tie_word_embeddings = True"),
        ({"index_kpool": 3}, "index_topk 2048 is no multiple of index_kpool 3"),
        ({"index_head_dim": 96}, "index_head_dim 96 is no power of two"),
        ({"indexer_types": ["full"] * 3 + ["shared"] * 42}, "must run its own indexer"),
        ({"layer_types": ["linear_attention"] * 45}, "name different KDA layers"),
        ({"layer_types": ["mamba"] * 45, "linear_attn_config": None}, "mamba"),
        ({"mlp_layer_types": ["dense"] * 44}, "mlp_layer_types has 44 entries for 45 layers"),
        ({"mlp_layer_types": ["moe"] * 45}, "dense or sparse expected"),
        ({"num_experts_per_tok": 300}, "exceeds 288 experts"),
        ({"hidden_size": "wide"}, "hidden_size"),
        ({"linear_attn_config": {"gate_lower_bound": None}}, "linear_lower_bound"),
    ],
)
def test_unsupported_values_are_named(tmp_path: Path, changes: dict[str, Any], message: str) -> None:
    with pytest.raises(CheckpointError, match=message) as refusal:
        Config.load(write(tmp_path, {**RELEASED, **changes}))
    assert str(tmp_path) in str(refusal.value)


def test_all_unsupported_values_are_named_at_once(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match=r"n_group = 2.*mhc = False"):
        Config.load(write(tmp_path, {**RELEASED, "mhc": False, "n_group": 2}))


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, "No such file"),
        ("{", "not JSON"),
        ("[]", "architectures is None"),
        ('{"architectures": ["Qwen4ExpForConditionalGeneration"]}', "expected.*Glm5NextForConditionalGeneration"),
    ],
)
def test_other_documents_are_refused(tmp_path: Path, content: str | None, message: str) -> None:
    if content is not None:
        (tmp_path / "config.json").write_text(content)
    with pytest.raises(CheckpointError, match=message):
        Config.load(tmp_path)
