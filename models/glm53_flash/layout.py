"""Weights of one rank, laid out as SGLang holds them after load (spec 2.2)."""

from __future__ import annotations

import msgspec
import torch
from torch import Tensor

from sgl_amd_mono.errors import LayoutError
from sgl_amd_mono.models.glm53_flash.checkpoint import Checkpoint


class KdaWeights(msgspec.Struct, frozen=True, kw_only=True):
    """One KDA half layer of one rank; H heads of head_dim D on this rank, HD = H*D.

    Heads are contiguous ranges of the model's heads, in rank order. Both factors of the gates' low-rank products have
    rank D and the first factor is replicated.
    """

    projection: tuple[Tensor, ...]
    """[n_i, hidden] bf16 each; together the 3*HD + H + 2*D rows of q, k, v, b (beta), f_a (forget gate), g_a (output
    gate), in this order. SGLang joins all (`fused_qkvbfg_a_proj`), some (`qkv_proj`, `fused_bfg_a_proj`) or none.
    """
    forget_b: Tensor
    """[HD, D] bf16: second factor of the forget gate."""
    output_b: Tensor
    """[HD, D] bf16: second factor of the output gate."""
    conv: Tensor
    """[3*HD, 4] float32: q, k, v channels; column 3 multiplies the current token."""
    A_log: Tensor
    """[H] float32."""
    dt_bias: Tensor
    """[HD] float32."""
    o_norm: Tensor
    """[D] bf16."""
    o_proj: Tensor
    """[hidden, HD] bf16."""
    lower_bound: float
    """Bound of the log decay: g in (lower_bound, 0)."""
    norm_eps: float

    @property
    def heads(self) -> int:
        """H."""
        return self.A_log.numel()

    @property
    def head_dim(self) -> int:
        """D: K = V = D."""
        return self.o_norm.numel()

    @property
    def channels(self) -> int:
        """Conv channels, 3*HD."""
        return self.conv.shape[0]


def load_kda(
    checkpoint: Checkpoint, layer: int, tp_size: int = 1, tp_rank: int = 0, *, fused: bool = True
) -> KdaWeights:
    """KDA weights of `layer` for one tensor-parallel rank, its projections joined as SGLang joins them or apart.

    Raises
    ------
    LayoutError
        When `layer` is no KDA layer, or the heads do not divide by `tp_size`.
    """
    config = checkpoint.config
    if not config.is_kda(layer):
        raise LayoutError(f"layer {layer} is no KDA layer; the KDA layers are {list(config.kda_layers)}")
    if config.linear_num_heads % tp_size or not 0 <= tp_rank < tp_size:
        raise LayoutError(f"rank {tp_rank} of {tp_size}: {config.linear_num_heads} KDA heads do not divide so")
    heads = config.linear_num_heads // tp_size
    rows = slice(tp_rank * heads * config.linear_head_dim, (tp_rank + 1) * heads * config.linear_head_dim)
    head_rows = slice(tp_rank * heads, (tp_rank + 1) * heads)

    def get(name: str) -> Tensor:
        return checkpoint.tensor(f"{config.layer_prefix(layer)}self_attn.{name}")

    projection = [get(f"{name}_proj.weight")[rows] for name in "qkv"]
    projection += [get("b_proj.weight")[head_rows], get("f_a_proj.weight"), get("g_a_proj.weight")]
    projection = [part.bfloat16().contiguous() for part in projection]
    forget_b, output_b = (get(f"{name}_b_proj.weight")[rows].bfloat16().contiguous() for name in "fg")
    conv = [get(f"{name}_conv1d.weight")[rows].squeeze(1) for name in "qkv"]
    return KdaWeights(
        projection=(torch.cat(projection),) if fused else tuple(projection),
        forget_b=forget_b,
        output_b=output_b,
        conv=torch.cat([part.float() for part in conv]),
        A_log=get("A_log").flatten()[head_rows].float(),
        dt_bias=get("dt_bias")[rows].float(),
        o_norm=get("o_norm.weight").bfloat16(),
        o_proj=get("o_proj.weight")[:, rows].bfloat16().contiguous(),
        lower_bound=config.linear_lower_bound,
        norm_eps=config.rms_norm_eps,
    )
