"""config.json of GLM-5.3-Flash (spec 1.1), in the released shape and as transformers' Glm5NextConfig writes it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec

from sgl_amd_mono.errors import CheckpointError

ARCHITECTURE = "Glm5NextForConditionalGeneration"
LINEAR_ATTENTION = "linear_attention"
INDEXED_ATTENTION = "indexed_attention"
DENSE = "dense"
SPARSE = "sparse"

_LAYERS = 45
_LINEAR_ATTN_KEYS = {
    "num_heads": "linear_num_heads",
    "head_dim": "linear_head_dim",
    "short_conv_kernel_size": "linear_conv_kernel_dim",
    "gate_lower_bound": "linear_lower_bound",
}
# values this package computes with; absent means the value here, as in transformers' class
_REQUIRED_VALUES: dict[str, object] = {
    "hidden_act": "silu",
    "scoring_func": "sigmoid",
    "topk_method": "noaux_tc",
    "norm_topk_prob": True,
    "n_group": 1,
    "topk_group": 1,
    "n_shared_experts": 1,
    "moe_layer_freq": 1,
    "qk_rope_head_dim": 0,
    "attention_bias": False,
    "tie_word_embeddings": False,
    "mhc": True,
    "hc_mult": 4,
    "linear_conv_kernel_dim": 4,
    "index_kpool_compress": True,
    "index_kpool_always_select_tail": True,
    "index_topk_freq": 1,
    "index_topk_pattern": None,
}


class Config(msgspec.Struct, frozen=True, kw_only=True):
    """Text model; names and defaults are those of transformers' Glm5NextTextConfig."""

    vocab_size: int = 154880
    hidden_size: int = 4096
    intermediate_size: int = 12288
    moe_intermediate_size: int = 2048
    num_hidden_layers: int = _LAYERS
    num_attention_heads: int = 64
    q_lora_rank: int = 1536
    kv_lora_rank: int = 512
    qk_nope_head_dim: int = 256
    v_head_dim: int = 256
    n_routed_experts: int = 288
    num_experts_per_tok: int = 8
    routed_scaling_factor: float = 2.5
    swiglu_limit: float = 10.0
    rms_norm_eps: float = 1e-5
    hc_mult: int = 4
    hc_sinkhorn_iters: int = 20
    hc_eps: float = 1e-6
    linear_num_heads: int = 64
    linear_head_dim: int = 128
    linear_conv_kernel_dim: int = 4
    linear_lower_bound: float = -5.0
    index_topk: int = 2048
    index_head_dim: int = 128
    index_n_heads: int = 32
    index_kpool: int = 16
    eos_token_id: int | list[int] | None = None
    layer_types: tuple[str, ...]
    mlp_layer_types: tuple[str, ...]

    @classmethod
    def load(cls, directory: Path | str) -> Config:
        """Read `directory`/config.json.

        Raises
        ------
        CheckpointError
            No readable config.json, another architecture, or a value that this package does not compute with.
        """
        path = Path(directory) / "config.json"
        try:
            raw = json.loads(path.read_text())
        except OSError as error:
            raise CheckpointError(f"{path}: {error.strerror}; a checkpoint directory has one") from error
        except ValueError as error:
            raise CheckpointError(f"{path}: not JSON ({error})") from error
        if not isinstance(raw, dict) or ARCHITECTURE not in (raw.get("architectures") or ()):
            found = raw.get("architectures") if isinstance(raw, dict) else None
            raise CheckpointError(f"{path}: architectures is {found}; expected [{ARCHITECTURE!r}]")
        try:
            return cls.from_text_config({**raw, **(raw.get("text_config") or {})})
        except CheckpointError as error:
            raise CheckpointError(f"{path}: {error}") from error

    @classmethod
    def from_text_config(cls, text: dict[str, Any]) -> Config:
        """Build from the fields of a text config; unknown fields are ignored. Raises CheckpointError."""
        fields = dict(text)
        linear_attn = fields.get("linear_attn_config") or {}
        fields.update({_LINEAR_ATTN_KEYS[key]: value for key, value in linear_attn.items() if key in _LINEAR_ATTN_KEYS})
        wrong = [
            f"{name} = {fields[name]!r} is not supported, only {value!r}"
            for name, value in _REQUIRED_VALUES.items()
            if fields.get(name, value) != value
        ]
        if wrong:
            raise CheckpointError("; ".join(wrong))

        layers = fields.get("num_hidden_layers", _LAYERS)
        fields["layer_types"] = _layer_types(fields, linear_attn, layers)
        fields["mlp_layer_types"] = _mlp_layer_types(fields, layers)
        try:
            config = msgspec.convert(fields, cls)
        except msgspec.ValidationError as error:
            raise CheckpointError(str(error)) from error
        config._check(fields)
        return config

    def is_kda(self, layer: int) -> bool:
        """Whether `layer`'s attention is KDA; the others are sparse MLA."""
        return self.layer_types[layer] == LINEAR_ATTENTION

    def is_sparse(self, layer: int) -> bool:
        """Whether `layer`'s feed-forward half is a mixture of experts; the others are dense."""
        return self.mlp_layer_types[layer] == SPARSE

    @property
    def kda_layers(self) -> tuple[int, ...]:
        """Layer numbers of the KDA layers, in order: the pools' first index is a position here."""
        return tuple(layer for layer in range(self.num_hidden_layers) if self.is_kda(layer))

    @property
    def mla_layers(self) -> tuple[int, ...]:
        """Layer numbers of the sparse MLA layers, in order."""
        return tuple(layer for layer in range(self.num_hidden_layers) if not self.is_kda(layer))

    @property
    def linear_dim(self) -> int:
        """Width of q, k or v of a KDA layer: heads times head_dim."""
        return self.linear_num_heads * self.linear_head_dim

    @property
    def hc_coefficients(self) -> int:
        """Coefficients of one hyper-connection: pre, post and the square mixing matrix."""
        return (2 + self.hc_mult) * self.hc_mult

    @property
    def index_pools(self) -> int:
        """Pools that one row selects at most."""
        return self.index_topk // self.index_kpool

    @property
    def index_width(self) -> int:
        """Tokens that one row attends to at most: the selected pools and the unfinished one."""
        return self.index_topk + self.index_kpool - 1

    @staticmethod
    def layer_prefix(layer: int) -> str:
        """Prefix of a layer's tensors in the checkpoint."""
        return f"model.language_model.layers.{layer}."

    def _check(self, fields: dict[str, Any]) -> None:
        wrong = []
        if any(kind not in (LINEAR_ATTENTION, INDEXED_ATTENTION) for kind in self.layer_types):
            wrong.append(f"layer_types {set(self.layer_types)}: {LINEAR_ATTENTION} or {INDEXED_ATTENTION} expected")
        if any(kind not in (DENSE, SPARSE) for kind in self.mlp_layer_types):
            wrong.append(f"mlp_layer_types {set(self.mlp_layer_types)}: {DENSE} or {SPARSE} expected")
        for name in ("layer_types", "mlp_layer_types"):
            if len(getattr(self, name)) != self.num_hidden_layers:
                wrong.append(f"{name} has {len(getattr(self, name))} entries for {self.num_hidden_layers} layers")
        indexers = fields.get("indexer_types") or []
        if any(indexers[layer : layer + 1] not in ([], ["full"]) for layer in self.mla_layers):
            wrong.append(f"indexer_types {indexers}: every MLA layer must run its own indexer ('full')")
        if self.index_kpool < 1 or self.index_topk % self.index_kpool:
            wrong.append(f"index_topk {self.index_topk} is no multiple of index_kpool {self.index_kpool}")
        if self.index_head_dim & (self.index_head_dim - 1):
            wrong.append(f"index_head_dim {self.index_head_dim} is no power of two (Hadamard rotation)")
        if self.num_experts_per_tok > self.n_routed_experts:
            wrong.append(f"num_experts_per_tok {self.num_experts_per_tok} exceeds {self.n_routed_experts} experts")
        if wrong:
            raise CheckpointError("; ".join(wrong))


def _layer_types(fields: dict[str, Any], linear_attn: dict[str, Any], layers: int) -> list[str]:
    kda_layers = linear_attn.get("kda_layers")
    from_kda_layers = [
        LINEAR_ATTENTION if (layer in kda_layers if kda_layers is not None else layer % 4 != 3) else INDEXED_ATTENTION
        for layer in range(layers)
    ]
    stated = fields.get("layer_types")
    if stated is None:
        return from_kda_layers
    # earlier configs call it full attention
    stated = [INDEXED_ATTENTION if kind == "full_attention" else kind for kind in stated]
    if kda_layers is not None and stated[:layers] != from_kda_layers:
        raise CheckpointError("layer_types and linear_attn_config.kda_layers name different KDA layers")
    return stated


def _mlp_layer_types(fields: dict[str, Any], layers: int) -> list[str]:
    dense = min(fields.get("first_k_dense_replace", 3), layers)
    stated: list[str] | None = fields.get("mlp_layer_types")
    return stated if stated is not None else [DENSE] * dense + [SPARSE] * (layers - dense)
