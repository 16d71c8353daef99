"""Sparse multi-head latent attention with absorbed projections, no rotary embedding (spec section 6).

h heads; the latent of rank R is key and value of every head. Which tokens a row attends to is the indexer's choice.
"""

from __future__ import annotations

import msgspec
import torch
from torch import Tensor

from sgl_amd_mono.models.glm53_flash.checkpoint import Checkpoint, Linear
from sgl_amd_mono.models.glm53_flash.reference.indexer import (
    IndexerWeights,
    index_key,
    index_query,
    index_score,
    index_select,
    index_write,
)
from sgl_amd_mono.models.glm53_flash.reference.ops import linear, rms_norm
from sgl_amd_mono.models.glm53_flash.reference.rounding import Rounding
from sgl_amd_mono.models.glm53_flash.reference.state import State

# indices of one workgroup of the standard path's kernel: its partial output is rounded (spec 6.4)
ATTEND_BLOCK = 64


class MlaWeights(msgspec.Struct, frozen=True, kw_only=True):
    """Attention of one MLA layer, all heads."""

    q_a: Linear
    """[q_rank, hidden]."""
    kv_a: Linear
    """[R, hidden]."""
    q_a_norm: Tensor
    """[q_rank]."""
    kv_a_norm: Tensor
    """[R]."""
    q_b: Linear
    """[h*qk, q_rank]."""
    w_kc: Tensor
    """[h, qk, R]: the key half of kv_b_proj, absorbed into the query."""
    w_vc: Tensor
    """[h, v, R]: the value half of kv_b_proj, applied after attention."""
    o: Linear
    """[hidden, h*v]."""
    norm_eps: float

    @property
    def scale(self) -> float:
        """Of the scores: 1 / sqrt(qk)."""
        return float(self.w_kc.shape[1] ** -0.5)


def load_mla(checkpoint: Checkpoint, layer: int) -> MlaWeights:
    """Weights of MLA layer `layer`."""
    config = checkpoint.config
    prefix = f"{config.layer_prefix(layer)}self_attn."
    kv_b = checkpoint.linear(f"{prefix}kv_b_proj.weight").weight
    kv_b = kv_b.view(config.num_attention_heads, -1, config.kv_lora_rank)
    w_kc, w_vc = kv_b[:, : config.qk_nope_head_dim], kv_b[:, config.qk_nope_head_dim :]
    return MlaWeights(
        q_a=checkpoint.linear(f"{prefix}q_a_proj.weight"),
        kv_a=checkpoint.linear(f"{prefix}kv_a_proj_with_mqa.weight"),
        q_a_norm=checkpoint.tensor(f"{prefix}q_a_layernorm.weight"),
        kv_a_norm=checkpoint.tensor(f"{prefix}kv_a_layernorm.weight"),
        q_b=checkpoint.linear(f"{prefix}q_b_proj.weight"),
        w_kc=w_kc,
        w_vc=w_vc,
        o=checkpoint.linear(f"{prefix}o_proj.weight"),
        norm_eps=config.rms_norm_eps,
    )


def mla_project(w: MlaWeights, y: Tensor, rounding: Rounding) -> tuple[Tensor, Tensor]:
    """y [T, hidden] -> (q_latent [T, q_rank], kv_latent [T, R]), both normed; kv_latent is what the cache holds."""
    q_latent = rms_norm(linear(y, w.q_a, rounding), w.q_a_norm, w.norm_eps, rounding)
    kv_latent = rms_norm(linear(y, w.kv_a, rounding), w.kv_a_norm, w.norm_eps, rounding)
    return q_latent, kv_latent


def mla_absorb(w: MlaWeights, q_latent: Tensor, rounding: Rounding) -> Tensor:
    """q_latent [T, q_rank] -> queries [T, h, R] against the latent."""
    q = linear(q_latent, w.q_b, rounding).view(-1, *w.w_kc.shape[:2])
    return rounding.bf16(torch.einsum("thd,hdr->thr", q, w.w_kc.double()))


def mla_attend(q: Tensor, kv: Tensor, scale: float, rounding: Rounding) -> Tensor:
    """One row's attention over its selected tokens: q [h, R], kv [N, R] -> [h, R]; zero when N is 0.

    STANDARD follows the kernel: blocks of 64 tokens, probabilities and each block's normalised output rounded to bf16,
    sums of probabilities not rounded.
    """
    if len(kv) == 0:
        return torch.zeros_like(q)
    blocks = []
    for block in torch.split(kv.double(), ATTEND_BLOCK):
        scores = q @ block.T * scale
        peak = scores.amax(1, keepdim=True)
        p = torch.exp(scores - peak)
        total = p.sum(1, keepdim=True)
        blocks.append((rounding.bf16(rounding.bf16(p) @ block / total), peak + total.log()))
    outputs, log_sums = (torch.stack(part) for part in zip(*blocks, strict=True))
    return rounding.bf16((torch.softmax(log_sums, 0) * outputs).sum(0))


def mla_output(w: MlaWeights, o: Tensor, rounding: Rounding) -> Tensor:
    """Attention output o [T, h, R] -> partial sum [T, hidden]: value projection, o_proj."""
    values = rounding.bf16(torch.einsum("thr,hvr->thv", o, w.w_vc.double()))
    return linear(values.flatten(1), w.o, rounding)


def mla_half_layer(
    w: MlaWeights, indexer: IndexerWeights, y: Tensor, state: State, mla_layer: int, rounding: Rounding
) -> Tensor:
    """All phases of one layer: y [T, hidden] -> partial sum [T, hidden].

    The caches of the active rows are updated before they are read, so a pool that this token completes can be chosen.
    A row that is not active reads and writes no cache and its output is zero. `mla_layer` counts MLA layers only.
    """
    q_latent, kv_latent = mla_project(w, y, rounding)
    q = mla_absorb(w, q_latent, rounding)
    index_q, index_weights = index_query(indexer, y, q_latent, rounding)
    index_keys, pooling_scores = index_key(indexer, y, rounding)
    o = torch.zeros_like(q)
    for row in state.active.nonzero().flatten().tolist():
        length = int(state.lengths[row])
        kv, cache = state.kv[mla_layer, row], state.index_cache(mla_layer, row)
        kv[length - 1] = kv_latent[row].to(kv.dtype)
        index_write(indexer, cache, length - 1, index_keys[row], pooling_scores[row], rounding)
        complete = length // indexer.kpool
        scores = index_score(index_q[row], index_weights[row], cache.pool_key[:complete], cache.pool_scale[:complete])
        tokens = index_select(scores, length, indexer.kpool, indexer.pools)
        o[row] = mla_attend(q[row], kv[tokens], w.scale, rounding)
    return mla_output(w, o, rounding)
