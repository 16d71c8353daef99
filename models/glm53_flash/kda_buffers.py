"""What a KDA half layer reads and writes besides its weights: state pools, step inputs, scratch."""

from __future__ import annotations

import msgspec
import torch
from torch import Tensor

from sgl_amd_mono.models.glm53_flash.layout import KdaWeights


class KdaCache(msgspec.Struct, frozen=True):
    """State pools of one KDA layer; only the slot stride is free, so views of larger pools bind in place."""

    conv: Tensor
    """[slots, 3, C] bf16: the last three projections, oldest first."""
    temporal: Tensor
    """[slots, H, V, K] float32."""


class StepInputs(msgspec.Struct, frozen=True, kw_only=True):
    """Buffers that the phases read anew in every launch: contents may change between launches, addresses may not."""

    slots: Tensor
    """[T] int32: state slot of every row, -1 for a padded one."""
    track_mask: Tensor | None = None
    """[T] bool: rows whose new state the prefix cache keeps a copy of."""
    track_slots: Tensor | None = None
    """[T] int64: where that copy goes."""


class KdaScratch(msgspec.Struct, frozen=True):
    """Activations between the phases of a KDA half layer; all layers share one."""

    projected: Tensor
    """[T, 3*HD + H + 2*D] bf16."""
    gates: Tensor
    """[2, T, HD] bf16."""
    convolved: Tensor
    """[T, 3*HD] bf16."""
    output: Tensor
    """[T, HD] bf16."""


def kda_scratch_shapes(weights: KdaWeights, rows: int) -> dict[str, tuple[int, ...]]:
    """Shapes of the buffers of a `KdaScratch`, by field."""
    values = weights.heads * weights.head_dim
    return {
        "projected": (rows, weights.channels + weights.heads + 2 * weights.head_dim),
        "gates": (2, rows, values),
        "convolved": (rows, weights.channels),
        "output": (rows, values),
    }


def allocate_kda_scratch(weights: KdaWeights, rows: int, device: torch.device) -> KdaScratch:
    """Scratch for `rows` rows; its contents are written before they are read."""
    shapes = kda_scratch_shapes(weights, rows)
    return KdaScratch(
        **{name: torch.empty(shape, dtype=torch.bfloat16, device=device) for name, shape in shapes.items()}
    )
