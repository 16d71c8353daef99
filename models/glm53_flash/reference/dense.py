"""Dense SwiGLU feed-forward half layer (spec section 9)."""

from __future__ import annotations

import msgspec
from torch import Tensor

from sgl_amd_mono.models.glm53_flash.checkpoint import Checkpoint, Linear
from sgl_amd_mono.models.glm53_flash.checkpoint_tensors import Storage
from sgl_amd_mono.models.glm53_flash.reference.ops import clamped_swiglu, linear
from sgl_amd_mono.models.glm53_flash.reference.rounding import Rounding


class DenseWeights(msgspec.Struct, frozen=True, kw_only=True):
    """One dense feed-forward layer."""

    gate: Linear
    """[intermediate, hidden]."""
    up: Linear
    """[intermediate, hidden]."""
    down: Linear
    """[hidden, intermediate]."""
    limit: float


def load_dense(checkpoint: Checkpoint, layer: int) -> DenseWeights:
    """Weights of dense layer `layer`."""
    prefix = f"{checkpoint.config.layer_prefix(layer)}mlp."
    gate, up, down = (checkpoint.linear(f"{prefix}{name}_proj.weight") for name in ("gate", "up", "down"))
    return DenseWeights(gate=gate, up=up, down=down, limit=checkpoint.config.swiglu_limit)


def dense_up(w: DenseWeights, y: Tensor, rounding: Rounding) -> Tensor:
    """y [T, hidden] -> activation [T, intermediate], bf16 unless a block FP8 down projection quantises it at once."""
    activation = clamped_swiglu(linear(y, w.gate, rounding), linear(y, w.up, rounding), w.limit)
    return activation if w.down.storage is Storage.FP8_BLOCK else rounding.bf16(activation)


def dense_down(w: DenseWeights, activation: Tensor, rounding: Rounding) -> Tensor:
    """activation [T, intermediate] -> partial sum [T, hidden]."""
    return linear(activation, w.down, rounding)


def dense_half_layer(w: DenseWeights, y: Tensor, rounding: Rounding) -> Tensor:
    """All phases: y [T, hidden] -> partial sum [T, hidden]."""
    return dense_down(w, dense_up(w, y, rounding), rounding)
