"""Hyper-connections: read the residual streams into a half layer's input, write its output back (spec section 4)."""

from __future__ import annotations

import msgspec
import torch
from torch import Tensor

from sgl_amd_mono.models.glm53_flash.checkpoint import Checkpoint
from sgl_amd_mono.models.glm53_flash.reference.ops import matmul, rms_norm
from sgl_amd_mono.models.glm53_flash.reference.rounding import Rounding

POST_MULTIPLIER = 2.0


class MhcWeights(msgspec.Struct, frozen=True, kw_only=True):
    """One hyper-connection with S streams, and the norm of the half layer that it feeds."""

    fn: Tensor
    """[(2 + S)*S, S*hidden]: coefficients pre [S], post [S], comb [S, S]."""
    base: Tensor
    """[(2 + S)*S]."""
    scale: Tensor
    """[3]: of pre, post and comb."""
    norm: Tensor
    """[hidden]: input_layernorm or post_attention_layernorm."""
    norm_eps: float
    sinkhorn_iters: int
    sinkhorn_eps: float


def load_mhc(checkpoint: Checkpoint, layer: int, half: str) -> MhcWeights:
    """Weights before one half of `layer`; half is "attn" or "ffn"."""
    config = checkpoint.config
    prefix = config.layer_prefix(layer)
    norm = {"attn": "input_layernorm", "ffn": "post_attention_layernorm"}[half]
    return MhcWeights(
        fn=checkpoint.tensor(f"{prefix}hc_{half}_fn"),
        base=checkpoint.tensor(f"{prefix}hc_{half}_base"),
        scale=checkpoint.tensor(f"{prefix}hc_{half}_scale"),
        norm=checkpoint.tensor(f"{prefix}{norm}.weight"),
        norm_eps=config.rms_norm_eps,
        sinkhorn_iters=config.hc_sinkhorn_iters,
        sinkhorn_eps=config.hc_eps,
    )


def mhc_read(w: MhcWeights, x: Tensor, rounding: Rounding) -> tuple[Tensor, Tensor, Tensor]:
    """Mix the streams x [T, S, hidden] into one normed input.

    Returns
    -------
    y : [T, hidden].
    post : [T, S] and comb : [T, S, S], for the matching mhc_write.
    """
    x = x.double()
    streams = x.shape[1]
    flat = x.flatten(1)
    # the norm's weightless factor is applied after the product
    factor = torch.rsqrt(flat.square().mean(1, keepdim=True) + w.norm_eps)
    coefficients = matmul(flat, w.fn) * factor
    sizes = [streams, streams, streams * streams]
    pre, post, comb = (
        part * scale + base
        for part, scale, base in zip(
            torch.split(coefficients, sizes, 1), w.scale.double(), torch.split(w.base.double(), sizes), strict=True
        )
    )
    pre = torch.sigmoid(pre) + w.sinkhorn_eps
    mixed = rounding.bf16(torch.einsum("ts,tsc->tc", pre, x))
    y = rms_norm(mixed, w.norm, w.norm_eps, rounding)
    return y, POST_MULTIPLIER * torch.sigmoid(post), sinkhorn(w, comb.view(-1, streams, streams))


def mhc_write(x: Tensor, y: Tensor, post: Tensor, comb: Tensor, rounding: Rounding) -> Tensor:
    """New streams [T, S, hidden]: post [T, S] times the sublayer's y [T, hidden], plus comb [T, S, S]^T times x."""
    return rounding.bf16(post[:, :, None] * y.double()[:, None, :] + torch.einsum("tjk,tjc->tkc", comb, x.double()))


def sinkhorn(w: MhcWeights, comb: Tensor) -> Tensor:
    """comb [T, S, S] to a nearly doubly stochastic matrix; the last division is over the columns."""
    eps = w.sinkhorn_eps
    comb = torch.softmax(comb, dim=2) + eps
    comb = comb / (comb.sum(1, keepdim=True) + eps)
    for _ in range(w.sinkhorn_iters - 1):
        comb = comb / (comb.sum(2, keepdim=True) + eps)
        comb = comb / (comb.sum(1, keepdim=True) + eps)
    return comb
