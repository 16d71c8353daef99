"""KDA half layer (spec section 5): gated delta rule with a per-channel decay.

T rows, H heads of this rank, K = V = head_dim, C = 3*H*K conv channels ordered q, k, v. Values are float64 in both
modes; STANDARD rounds them to bf16 where the standard path stores bf16. The state is never rounded here: the pool's
dtype does that when it is stored.
"""

from __future__ import annotations

import torch
from torch import Tensor

from sgl_amd_mono.models.glm53_flash.layout import KdaWeights
from sgl_amd_mono.models.glm53_flash.reference.ops import matmul
from sgl_amd_mono.models.glm53_flash.reference.rounding import Rounding

L2_EPS = 1e-6


def kda_project(w: KdaWeights, y: Tensor, rounding: Rounding) -> Tensor:
    """y [T, hidden] -> f [T, C + H + 2*K]: q, k, v before the convolution, b (beta), the gates' low-rank factors."""
    return rounding.bf16(torch.cat([matmul(y, part) for part in w.projection], dim=-1))


def kda_gates(w: KdaWeights, f: Tensor, rounding: Rounding) -> Tensor:
    """f -> fgp [2, T, H*K]: forget gate and output gate before their nonlinearities."""
    forget_a, output_a = torch.split(f[:, w.channels + w.heads :], w.head_dim, dim=-1)
    return rounding.bf16(torch.stack([matmul(forget_a, w.forget_b), matmul(output_a, w.output_b)]))


def kda_conv(w: KdaWeights, f: Tensor, conv_state: Tensor, rounding: Rounding) -> tuple[Tensor, Tensor]:
    """Causal depthwise convolution of width 4 and SiLU.

    Parameters
    ----------
    f : [T, C + H + 2*K] of kda_project.
    conv_state : [T, 3, C], the last three projections of each row, oldest first.

    Returns
    -------
    z : [T, C], q, k and v.
    conv_state : [T, 3, C], the new window.
    """
    x = f[:, None, : w.channels]
    window = torch.cat([conv_state.double(), x.double()], dim=1)
    acc = torch.einsum("twc,cw->tc", window, w.conv.double())
    return rounding.bf16(acc * torch.sigmoid(acc)), window[:, 1:]


def kda_update(
    w: KdaWeights, z: Tensor, b: Tensor, fg: Tensor, state: Tensor, rounding: Rounding
) -> tuple[Tensor, Tensor]:
    """One token of the gated delta rule.

    Parameters
    ----------
    z : [T, C] of kda_conv.
    b : [T, H], columns C .. C + H of kda_project.
    fg : [T, H*K], the first of kda_gates.
    state : [T, H, V, K], float.

    Returns
    -------
    o : [T, H, V].
    state : [T, H, V, K] float64.
    """
    q, k, v = z.double().view(-1, 3, w.heads, w.head_dim).unbind(1)
    q = _l2_normalize(q) * w.head_dim**-0.5
    k = _l2_normalize(k)
    decay_input = fg.double().view(-1, w.heads, w.head_dim) + w.dt_bias.double().view(w.heads, w.head_dim)
    g = w.lower_bound * torch.sigmoid(w.A_log.double().exp()[:, None] * decay_input)
    beta = torch.sigmoid(b.double())[..., None]

    state = state.double() * g.exp()[:, :, None, :]
    delta = (v - torch.einsum("thvk,thk->thv", state, k)) * beta
    state = state + delta[..., :, None] * k[..., None, :]
    return rounding.bf16(torch.einsum("thvk,thk->thv", state, q)), state


def kda_output(w: KdaWeights, o: Tensor, gp: Tensor, rounding: Rounding) -> Tensor:
    """o [T, H, V], gp [T, H*V] (second of kda_gates) -> this rank's partial sum [T, hidden]: gated RMSNorm, o_proj."""
    o = o.double()
    gate = torch.sigmoid(gp.double()).view_as(o)
    normed = o * torch.rsqrt(o.square().mean(-1, keepdim=True) + w.norm_eps) * w.o_norm.double() * gate
    return rounding.bf16(matmul(rounding.bf16(normed).flatten(1), w.o_proj))


def kda_half_layer(
    w: KdaWeights, y: Tensor, slots: Tensor, conv_pool: Tensor, temporal_pool: Tensor, rounding: Rounding
) -> Tensor:
    """All phases over one layer's pools, which are updated in place.

    Parameters
    ----------
    y : [T, hidden], the normed input.
    slots : [T] int, row i's slot; -1 marks a padded row: nothing is read or written for it and its output is zero.
    conv_pool : [slots, 3, C], bf16 in the standard path.
    temporal_pool : [slots, H, V, K], float32 in the standard path.

    Returns
    -------
    partial : [T, hidden], this rank's share of the sum over ranks.
    """
    live = slots >= 0
    slot = slots[live].long()
    f = kda_project(w, y[live], rounding)
    fg, gp = kda_gates(w, f, rounding)
    z, conv_state = kda_conv(w, f, conv_pool[slot], rounding)
    b = f[:, w.channels : w.channels + w.heads]
    o, state = kda_update(w, z, b, fg, temporal_pool[slot], rounding)
    conv_pool[slot] = conv_state.to(conv_pool.dtype)
    temporal_pool[slot] = state.to(temporal_pool.dtype)
    partial = torch.zeros(y.shape, dtype=torch.float64)
    partial[live] = kda_output(w, o, gp, rounding)
    return partial


def kda_track(conv_pools: Tensor, temporal_pools: Tensor, slots: Tensor, mask: Tensor, indices: Tensor) -> None:
    """Prefix-cache tracking (spec 5.5): copy masked rows' state of all layers from their slot to `indices`, in place.

    Parameters
    ----------
    conv_pools : [L, slots, 3, C].
    temporal_pools : [L, slots, H, V, K].
    slots, indices : [T] int, source and destination slot; an unmasked or padded row's destination is not looked at.
    mask : [T] bool.
    """
    copied = mask & (slots >= 0)
    source, destination = slots[copied].long(), indices[copied].long()
    conv_pools[:, destination] = conv_pools[:, source]
    temporal_pools[:, destination] = temporal_pools[:, source]


def _l2_normalize(x: Tensor) -> Tensor:
    return x * torch.rsqrt(x.square().sum(-1, keepdim=True) + L2_EPS)
