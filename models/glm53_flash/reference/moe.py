"""Mixture of experts: sigmoid router, clamped SwiGLU experts, the shared expert as one more slot (spec section 8)."""

from __future__ import annotations

import msgspec
import torch
from torch import Tensor

from sgl_amd_mono.models.glm53_flash.checkpoint import Checkpoint
from sgl_amd_mono.models.glm53_flash.checkpoint_tensors import Storage
from sgl_amd_mono.models.glm53_flash.reference.ops import clamped_swiglu, matmul, quantize_activation
from sgl_amd_mono.models.glm53_flash.reference.rounding import Rounding


class Expert(msgspec.Struct, frozen=True):
    """One expert, dequantised; float32 holds MXFP4 and bf16 values exactly."""

    gate_up: Tensor
    """[2*intermediate, hidden], gate rows first."""
    down: Tensor
    """[hidden, intermediate]."""
    storage: Storage


class Experts:
    """Experts of one layer, dequantised when first used; number E, the last, is the shared expert."""

    def __init__(self, checkpoint: Checkpoint, layer: int) -> None:
        self._checkpoint = checkpoint
        self._prefix = f"{checkpoint.config.layer_prefix(layer)}mlp."
        self._cache: dict[int, Expert] = {}

    def __getitem__(self, expert: int) -> Expert:
        if expert not in self._cache:
            shared = expert == self._checkpoint.config.n_routed_experts
            prefix = f"{self._prefix}shared_experts." if shared else f"{self._prefix}experts.{expert}."
            gate, up, down = (self._checkpoint.linear(f"{prefix}{name}_proj.weight") for name in ("gate", "up", "down"))
            gate_up = torch.cat([gate.dequantize(), up.dequantize()])
            self._cache[expert] = Expert(gate_up.float(), down.dequantize().float(), down.storage)
        return self._cache[expert]


class MoeWeights(msgspec.Struct, frozen=True, kw_only=True):
    """One sparse feed-forward layer of E routed experts."""

    gate: Tensor
    """[E, hidden]."""
    bias: Tensor
    """[E], of the choice only."""
    experts: Experts
    top_k: int
    routed_scaling_factor: float
    limit: float


def load_moe(checkpoint: Checkpoint, layer: int) -> MoeWeights:
    """Weights of sparse layer `layer`."""
    config = checkpoint.config
    prefix = f"{config.layer_prefix(layer)}mlp.gate."
    return MoeWeights(
        gate=checkpoint.linear(f"{prefix}weight").weight,
        bias=checkpoint.tensor(f"{prefix}e_score_correction_bias"),
        experts=Experts(checkpoint, layer),
        top_k=config.num_experts_per_tok,
        routed_scaling_factor=config.routed_scaling_factor,
        limit=config.swiglu_limit,
    )


def moe_route(w: MoeWeights, y: Tensor, rounding: Rounding) -> tuple[Tensor, Tensor]:
    """y [T, hidden] -> (experts [T, top_k + 1] int64, weights [T, top_k + 1]); the last column is the shared expert.

    The bias takes part in the choice and not in the weights; ties go to the lower expert. STANDARD rounds logits and
    bias to bf16 (spec 8.1).
    """
    scores = torch.sigmoid(rounding.bf16(matmul(y, w.gate)))
    choice = scores + rounding.bf16(w.bias.double())
    experts = torch.sort(choice, dim=1, descending=True, stable=True).indices[:, : w.top_k]
    weights = scores.gather(1, experts)
    weights = weights * (w.routed_scaling_factor / weights.sum(1, keepdim=True))
    shared = torch.full((len(y), 1), len(w.gate))
    return torch.cat([experts, shared], 1), torch.cat([weights, torch.ones(len(y), 1).double()], 1)


def moe_up(w: MoeWeights, y: Tensor, experts: Tensor, rounding: Rounding) -> Tensor:
    """y [T, hidden], experts [T, slots] -> activations [T, slots, intermediate]."""
    rows = zip(y, experts.tolist(), strict=True)
    return torch.stack([torch.stack([_expert_up(w, row, expert, rounding) for expert in slots]) for row, slots in rows])


def moe_down(w: MoeWeights, activations: Tensor, experts: Tensor, weights: Tensor, rounding: Rounding) -> Tensor:
    """Activations [T, slots, intermediate], weights [T, slots] -> partial sum [T, hidden], slots added in order.

    The standard path adds bf16 parts into bf16 by atomics in no fixed order; STANDARD rounds likewise, in slot order.
    """
    rows = []
    for row, slots, row_weights in zip(activations, experts.tolist(), weights, strict=True):
        total = torch.zeros(w.gate.shape[1], dtype=torch.float64)
        for activation, expert, weight in zip(row, slots, row_weights, strict=True):
            down, storage = w.experts[expert].down, w.experts[expert].storage
            part = matmul(quantize_activation(activation, storage, rounding), down) * weight
            total = rounding.bf16(total + rounding.bf16(part))
        rows.append(total)
    return torch.stack(rows)


def moe_half_layer(w: MoeWeights, y: Tensor, rounding: Rounding) -> Tensor:
    """All phases: y [T, hidden] -> partial sum [T, hidden]."""
    experts, weights = moe_route(w, y, rounding)
    return moe_down(w, moe_up(w, y, experts, rounding), experts, weights, rounding)


def _expert_up(w: MoeWeights, y: Tensor, expert: int, rounding: Rounding) -> Tensor:
    weights = w.experts[expert]
    gate, up = matmul(quantize_activation(y, weights.storage, rounding), weights.gate_up).chunk(2)
    return rounding.bf16(clamped_swiglu(gate, up, w.limit))
