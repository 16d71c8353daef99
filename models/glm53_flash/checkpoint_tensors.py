"""The tensors a GLM-5.3-Flash checkpoint holds: names, shapes and how Quark stores them (spec 2.1, 2.2)."""

from __future__ import annotations

from collections.abc import Iterator
from enum import Enum

import msgspec

from sgl_amd_mono.models.glm53_flash.config import Config

EMBEDDING = "model.language_model.embed_tokens.weight"
FINAL_NORM = "model.language_model.norm.weight"
LM_HEAD = "lm_head.weight"


class Storage(Enum):
    """How Quark's MXFP4 checkpoint stores a tensor; each may be stored as bf16 or float32 instead."""

    BF16 = "bf16"
    F32 = "float32"
    FP8_BLOCK = "block FP8"
    MXFP4 = "MXFP4"


class TensorSpec(msgspec.Struct, frozen=True):
    """One tensor by its checkpoint name; `shape` is that of the unquantised tensor."""

    name: str
    shape: tuple[int, ...]
    storage: Storage = Storage.BF16


def expected_tensors(config: Config) -> Iterator[TensorSpec]:
    """Every tensor that the text model needs, in layer order."""
    yield TensorSpec(EMBEDDING, (config.vocab_size, config.hidden_size))
    for layer in range(config.num_hidden_layers):
        yield from _layer_tensors(config, layer)
    yield TensorSpec(FINAL_NORM, (config.hidden_size,))
    yield TensorSpec(LM_HEAD, (config.vocab_size, config.hidden_size))


def _layer_tensors(config: Config, layer: int) -> Iterator[TensorSpec]:
    prefix = config.layer_prefix(layer)
    for half in ("attn", "ffn"):
        coefficients = config.hc_coefficients
        yield TensorSpec(f"{prefix}hc_{half}_fn", (coefficients, config.hc_mult * config.hidden_size))
        yield TensorSpec(f"{prefix}hc_{half}_base", (coefficients,), Storage.F32)
        yield TensorSpec(f"{prefix}hc_{half}_scale", (3,), Storage.F32)
    yield TensorSpec(f"{prefix}input_layernorm.weight", (config.hidden_size,))
    yield TensorSpec(f"{prefix}post_attention_layernorm.weight", (config.hidden_size,))
    attention = _kda_tensors if config.is_kda(layer) else _mla_tensors
    yield from attention(config, f"{prefix}self_attn.")
    ffn = _moe_tensors if config.is_sparse(layer) else _dense_tensors
    yield from ffn(config, f"{prefix}mlp.")


def _kda_tensors(config: Config, prefix: str) -> Iterator[TensorSpec]:
    hidden, dim, head_dim = config.hidden_size, config.linear_dim, config.linear_head_dim
    for name in "qkv":
        yield TensorSpec(f"{prefix}{name}_proj.weight", (dim, hidden))
        yield TensorSpec(f"{prefix}{name}_conv1d.weight", (dim, 1, config.linear_conv_kernel_dim))
    yield TensorSpec(f"{prefix}b_proj.weight", (config.linear_num_heads, hidden))
    for name in "fg":
        yield TensorSpec(f"{prefix}{name}_a_proj.weight", (head_dim, hidden))
        yield TensorSpec(f"{prefix}{name}_b_proj.weight", (dim, head_dim))
    yield TensorSpec(f"{prefix}A_log", (config.linear_num_heads,), Storage.F32)
    yield TensorSpec(f"{prefix}dt_bias", (dim,), Storage.F32)
    yield TensorSpec(f"{prefix}o_norm.weight", (head_dim,))
    yield TensorSpec(f"{prefix}o_proj.weight", (hidden, dim))


def _mla_tensors(config: Config, prefix: str) -> Iterator[TensorSpec]:
    hidden, heads = config.hidden_size, config.num_attention_heads
    q_rank, kv_rank = config.q_lora_rank, config.kv_lora_rank
    yield TensorSpec(f"{prefix}q_a_proj.weight", (q_rank, hidden), Storage.FP8_BLOCK)
    yield TensorSpec(f"{prefix}q_a_layernorm.weight", (q_rank,))
    yield TensorSpec(f"{prefix}q_b_proj.weight", (heads * config.qk_nope_head_dim, q_rank), Storage.FP8_BLOCK)
    yield TensorSpec(f"{prefix}kv_a_proj_with_mqa.weight", (kv_rank, hidden), Storage.FP8_BLOCK)
    yield TensorSpec(f"{prefix}kv_a_layernorm.weight", (kv_rank,))
    yield TensorSpec(f"{prefix}kv_b_proj.weight", (heads * (config.qk_nope_head_dim + config.v_head_dim), kv_rank))
    yield TensorSpec(f"{prefix}o_proj.weight", (hidden, heads * config.v_head_dim), Storage.FP8_BLOCK)
    index_dim = config.index_head_dim
    yield TensorSpec(f"{prefix}indexer.wq_b.weight", (config.index_n_heads * index_dim, q_rank))
    yield TensorSpec(f"{prefix}indexer.wk.weight", (index_dim, hidden))
    yield TensorSpec(f"{prefix}indexer.k_norm.weight", (index_dim,))
    yield TensorSpec(f"{prefix}indexer.k_norm.bias", (index_dim,))
    yield TensorSpec(f"{prefix}indexer.weights_proj.weight", (config.index_n_heads, hidden))
    yield TensorSpec(f"{prefix}indexer.index_kpool_compress_ape", (config.index_kpool, index_dim))
    yield TensorSpec(f"{prefix}indexer.index_kpool_compress_gate", (index_dim, hidden))


def _dense_tensors(config: Config, prefix: str) -> Iterator[TensorSpec]:
    yield from _swiglu_tensors(config.hidden_size, config.intermediate_size, prefix, Storage.FP8_BLOCK)


def _moe_tensors(config: Config, prefix: str) -> Iterator[TensorSpec]:
    yield TensorSpec(f"{prefix}gate.weight", (config.n_routed_experts, config.hidden_size))
    yield TensorSpec(f"{prefix}gate.e_score_correction_bias", (config.n_routed_experts,), Storage.F32)
    experts = [f"experts.{expert}" for expert in range(config.n_routed_experts)]
    for name in [*experts, "shared_experts"]:
        yield from _swiglu_tensors(config.hidden_size, config.moe_intermediate_size, f"{prefix}{name}.", Storage.MXFP4)


def _swiglu_tensors(hidden: int, intermediate: int, prefix: str, storage: Storage) -> Iterator[TensorSpec]:
    yield TensorSpec(f"{prefix}gate_proj.weight", (intermediate, hidden), storage)
    yield TensorSpec(f"{prefix}up_proj.weight", (intermediate, hidden), storage)
    yield TensorSpec(f"{prefix}down_proj.weight", (hidden, intermediate), storage)
