"""Choice of the tokens that an MLA layer attends to: keys pooled by four, scored in FP8 (spec section 7).

I index heads of dimension D, `kpool` tokens a pool. A pool can be chosen once it is complete; the tokens of the
unfinished pool are always attended to.
"""

from __future__ import annotations

import msgspec
import torch
from torch import Tensor

from sgl_amd_mono.models.glm53_flash.checkpoint import Checkpoint
from sgl_amd_mono.models.glm53_flash.reference.ops import matmul
from sgl_amd_mono.models.glm53_flash.reference.rounding import Rounding
from sgl_amd_mono.quant import quantize_fp8_ue8m0

LAYER_NORM_EPS = 1e-6


class IndexerWeights(msgspec.Struct, frozen=True, kw_only=True):
    """Indexer of one MLA layer."""

    wq_b: Tensor
    """[I*D, q_rank]."""
    wk: Tensor
    """[D, hidden]."""
    k_norm: Tensor
    """[D], and k_norm_bias [D]."""
    k_norm_bias: Tensor
    weights_proj: Tensor
    """[I, hidden]."""
    ape: Tensor
    """[kpool, D]: added to the pooling score by place in the pool."""
    gate: Tensor
    """[D, hidden]: pooling scores."""
    pools: int
    """Pools that a row chooses at most."""

    @property
    def kpool(self) -> int:
        """Tokens a pool."""
        return self.ape.shape[0]


class IndexCache(msgspec.Struct, frozen=True, kw_only=True):
    """One row's index cache in one layer, views that index_write updates in place."""

    tail_key: Tensor
    """[kpool, D]: unrotated keys of the newest tokens, by position modulo kpool."""
    tail_score: Tensor
    """[kpool, D]."""
    pool_key: Tensor
    """[pools, D]: rotated keys of complete pools, e4m3 values in STANDARD."""
    pool_scale: Tensor
    """[pools]."""


def load_indexer(checkpoint: Checkpoint, layer: int) -> IndexerWeights:
    """Weights of MLA layer `layer`'s indexer."""
    prefix = f"{checkpoint.config.layer_prefix(layer)}self_attn.indexer."
    return IndexerWeights(
        wq_b=checkpoint.tensor(f"{prefix}wq_b.weight"),
        wk=checkpoint.tensor(f"{prefix}wk.weight"),
        k_norm=checkpoint.tensor(f"{prefix}k_norm.weight"),
        k_norm_bias=checkpoint.tensor(f"{prefix}k_norm.bias"),
        weights_proj=checkpoint.tensor(f"{prefix}weights_proj.weight"),
        ape=checkpoint.tensor(f"{prefix}index_kpool_compress_ape"),
        gate=checkpoint.tensor(f"{prefix}index_kpool_compress_gate"),
        pools=checkpoint.config.index_pools,
    )


def index_query(w: IndexerWeights, y: Tensor, q_latent: Tensor, rounding: Rounding) -> tuple[Tensor, Tensor]:
    """y [T, hidden], q_latent [T, q_rank] -> (q [T, I, D] rotated, head weights [T, I] with every scale folded in)."""
    dim = w.wk.shape[0]
    q = rounding.bf16(matmul(q_latent, w.wq_b)).view(len(y), -1, dim)
    q, scale = _quantize(rounding.bf16(hadamard(q)), rounding)
    weights = matmul(y, w.weights_proj) * q.shape[1] ** -0.5 * dim**-0.5
    return q, weights * scale


def index_key(w: IndexerWeights, y: Tensor, rounding: Rounding) -> tuple[Tensor, Tensor]:
    """y [T, hidden] -> (key [T, D] before pooling, not rotated; pooling score [T, D])."""
    k = rounding.bf16(matmul(y, w.wk))
    centred = k - k.mean(1, keepdim=True)
    normed = centred * torch.rsqrt(centred.square().mean(1, keepdim=True) + LAYER_NORM_EPS)
    key = rounding.bf16(normed * w.k_norm.double() + w.k_norm_bias.double())
    return key, rounding.bf16(matmul(y, w.gate))


def index_write(
    w: IndexerWeights, cache: IndexCache, position: int, key: Tensor, score: Tensor, rounding: Rounding
) -> None:
    """Put key and pooling score [D] of one row's token at `position` into the ring; close the pool it completes."""
    place = position % w.kpool
    cache.tail_key[place] = key.to(cache.tail_key.dtype)
    cache.tail_score[place] = score.to(cache.tail_score.dtype)
    if place == w.kpool - 1:
        p = torch.softmax(cache.tail_score.double() + w.ape.double(), dim=0)
        pooled = rounding.bf16((p * cache.tail_key.double()).sum(0))
        pool_key, pool_scale = _quantize(rounding.bf16(hadamard(pooled)), rounding)
        cache.pool_key[position // w.kpool] = pool_key
        cache.pool_scale[position // w.kpool] = pool_scale


def index_score(q: Tensor, weights: Tensor, pool_keys: Tensor, pool_scales: Tensor) -> Tensor:
    """One row's scores [P] of its complete pools: q [I, D], weights [I], pool_keys [P, D], pool_scales [P]."""
    return pool_scales.double() * (weights @ torch.relu(q @ pool_keys.double().T))


def index_select(scores: Tensor, length: int, kpool: int, pools: int) -> Tensor:
    """Positions of the tokens that a row of `length` tokens attends to, ascending.

    Parameters
    ----------
    scores : [length // kpool].
    kpool : tokens a pool.
    pools : complete pools that are chosen at most; ties go to the older pool.
    """
    complete = length // kpool
    chosen = torch.sort(scores, descending=True, stable=True).indices[:pools].sort().values
    tokens = (chosen[:, None] * kpool + torch.arange(kpool)).flatten()
    return torch.cat([tokens, torch.arange(complete * kpool, length)])


def hadamard(x: Tensor) -> Tensor:
    """Orthonormal Walsh-Hadamard transform of the last dimension, a power of two, in natural order."""
    dim = x.shape[-1]
    x = x.double()
    half = 1
    while half < dim:
        pairs = torch.unflatten(x, -1, (-1, 2, half))
        x = torch.stack([pairs.sum(-2), pairs[..., 0, :] - pairs[..., 1, :]], dim=-2).flatten(-3)
        half *= 2
    return x * float(dim**-0.5)


def _quantize(x: Tensor, rounding: Rounding) -> tuple[Tensor, Tensor]:
    if rounding is Rounding.STANDARD:
        return quantize_fp8_ue8m0(x)
    return x, torch.ones(x.shape[:-1], dtype=torch.float64)
