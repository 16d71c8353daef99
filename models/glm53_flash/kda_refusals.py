"""Which tensors the KDA kernels read, and why they refuse others."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from sgl_amd_mono.errors import LayoutError
from sgl_amd_mono.models.glm53_flash.kda_buffers import KdaCache, KdaScratch, StepInputs, kda_scratch_shapes
from sgl_amd_mono.models.glm53_flash.layout import KdaWeights

MAX_ROWS = 16
"""Rows that a compiled phase takes: the rows of one matrix instruction."""
HEAD_DIM = 128
HEAD_GRANULE = 8
"""Heads of a rank: the gates' inputs follow beta, a column a head, and are loaded 16 bytes, eight columns, at once."""
CONV_TAPS = 4
DEPTH_GRANULE = 128
"""Reduction lengths are multiples of this (`kDepthGranule` of hip/phases/linear.h)."""
MAX_PROJECTION_WEIGHTS = 6
# the widest load of a lane
_VECTOR_BYTES = 16


def check_kda_half_layer(
    where: str,
    weights: KdaWeights,
    cache: KdaCache,
    step: StepInputs,
    scratch: KdaScratch,
    x: Tensor,
    partial: Tensor,
) -> None:
    """Raise LayoutError that names every tensor whose dtype, shape or strides the kernels do not read.

    Parameters
    ----------
    where : begins the message: which half layer the tensors are of.
    """
    refusals = _Refusals()
    refusals.check(weights, cache, step, scratch, x, partial)
    if refusals.reasons:
        raise LayoutError(f"{where}: " + "; ".join(refusals.reasons))


def check_kda_weights(where: str, weights: KdaWeights, hidden: int) -> None:
    """As `check_kda_half_layer`, for the weights alone: what can be said before any state exists."""
    refusals = _Refusals()
    refusals.check_weights(weights, hidden)
    if refusals.reasons:
        raise LayoutError(f"{where}: " + "; ".join(refusals.reasons))


class _Refusals:
    """Collects every reason why the kernels cannot read the tensors of one half layer."""

    def __init__(self) -> None:
        self.reasons: list[str] = []

    def check(
        self,
        weights: KdaWeights,
        cache: KdaCache,
        step: StepInputs,
        scratch: KdaScratch,
        x: Tensor,
        partial: Tensor,
    ) -> None:
        rows, hidden = x.shape
        values = weights.heads * HEAD_DIM
        if not 1 <= rows <= MAX_ROWS:
            self.reasons.append(f"{rows} rows, the kernel takes 1 to {MAX_ROWS}")
        self.check_weights(weights, hidden)
        self._pool("conv state", cache.conv, torch.bfloat16, (CONV_TAPS - 1, 3 * values))
        self._pool("temporal state", cache.temporal, torch.float32, (weights.heads, HEAD_DIM, HEAD_DIM))
        if cache.conv.shape[0] != cache.temporal.shape[0]:
            self.reasons.append(
                f"conv state has {cache.conv.shape[0]} slots, temporal state {cache.temporal.shape[0]}: "
                "one index serves both"
            )
        self._dense("slots", step.slots, torch.int32, (rows,))
        if (step.track_mask is None) != (step.track_slots is None):
            self.reasons.append("track_mask and track_slots go together, one is missing")
        if step.track_mask is not None and step.track_slots is not None:
            self._dense("track_mask", step.track_mask, torch.bool, (rows,))
            self._dense("track_slots", step.track_slots, torch.int64, (rows,))
        self._dense("x", x, torch.bfloat16, (rows, hidden))
        self._dense("partial", partial, torch.bfloat16, (rows, hidden))
        for name, shape in kda_scratch_shapes(weights, rows).items():
            self._dense(f"scratch {name}", getattr(scratch, name), torch.bfloat16, shape)

    def check_weights(self, weights: KdaWeights, hidden: int) -> None:
        heads, values = weights.heads, weights.heads * HEAD_DIM
        if weights.head_dim != HEAD_DIM:
            self.reasons.append(f"head_dim {weights.head_dim}, the kernel is compiled for {HEAD_DIM}")
        if hidden % DEPTH_GRANULE:
            self.reasons.append(f"hidden size {hidden}, the kernel takes multiples of {DEPTH_GRANULE}")
        if heads % HEAD_GRANULE:
            self.reasons.append(f"{heads} heads on this rank, the kernel takes multiples of {HEAD_GRANULE}")
        columns = 3 * values + heads + 2 * HEAD_DIM
        self._projection(weights.projection, columns, hidden)
        self._dense("forget_b", weights.forget_b, torch.bfloat16, (values, HEAD_DIM))
        self._dense("output_b", weights.output_b, torch.bfloat16, (values, HEAD_DIM))
        self._dense("conv", weights.conv, torch.float32, (3 * values, CONV_TAPS))
        self._dense("A_log", weights.A_log, torch.float32, (heads,))
        self._dense("dt_bias", weights.dt_bias, torch.float32, (values,))
        self._dense("o_norm", weights.o_norm, torch.bfloat16, (HEAD_DIM,))
        self._dense("o_proj", weights.o_proj, torch.bfloat16, (hidden, values))

    def _projection(self, parts: Sequence[Tensor], columns: int, hidden: int) -> None:
        if len(parts) > MAX_PROJECTION_WEIGHTS:
            self.reasons.append(f"the projection has {len(parts)} weights, the kernel takes {MAX_PROJECTION_WEIGHTS}")
        if (found := sum(part.shape[0] for part in parts)) != columns:
            self.reasons.append(f"the projection has {found} rows, q, k, v, b, f_a and g_a together have {columns}")
        for i, part in enumerate(parts):
            self._dense(f"projection weight {i}", part, torch.bfloat16, (part.shape[0], hidden))

    def _dense(self, name: str, tensor: Tensor, dtype: torch.dtype, shape: tuple[int, ...]) -> None:
        self._expect(name, tensor, dtype, shape)
        if not tensor.is_contiguous():
            self.reasons.append(f"{name} has strides {tensor.stride()}, the kernel reads it dense")
        self._aligned(name, tensor)

    def _pool(self, name: str, tensor: Tensor, dtype: torch.dtype, inner: tuple[int, ...]) -> None:
        self._expect(name, tensor, dtype, (tensor.shape[0], *inner))
        # a pool of one slot, or of none, may have any stride there
        if tensor.shape[0] and not tensor[0].is_contiguous():
            self.reasons.append(
                f"{name} has strides {tensor.stride()}, the kernel takes a free stride of the slot alone"
            )
        if tensor.stride(0) * tensor.element_size() % _VECTOR_BYTES:
            self.reasons.append(
                f"{name} has a slot stride of {tensor.stride(0)} elements, "
                f"the kernel takes multiples of {_VECTOR_BYTES} bytes"
            )
        self._aligned(name, tensor)

    def _expect(self, name: str, tensor: Tensor, dtype: torch.dtype, shape: tuple[int, ...]) -> None:
        if tensor.dtype != dtype:
            self.reasons.append(f"{name} is {tensor.dtype}, the kernel reads {dtype}")
        if tuple(tensor.shape) != shape:
            self.reasons.append(f"{name} has shape {list(tensor.shape)}, expected {list(shape)}")

    def _aligned(self, name: str, tensor: Tensor) -> None:
        if tensor.numel() * tensor.element_size() >= _VECTOR_BYTES and tensor.data_ptr() % _VECTOR_BYTES:
            self.reasons.append(f"{name} begins at {tensor.data_ptr():#x}, not at a multiple of {_VECTOR_BYTES} bytes")
