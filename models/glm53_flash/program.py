"""The phases that serve GLM-5.3-Flash, as entries of a program."""

from __future__ import annotations

import itertools

from torch import Tensor

from sgl_amd_mono.models.glm53_flash.kda_buffers import KdaCache, KdaScratch, StepInputs
from sgl_amd_mono.models.glm53_flash.kda_refusals import MAX_PROJECTION_WEIGHTS, check_kda_half_layer
from sgl_amd_mono.models.glm53_flash.layout import KdaWeights
from sgl_amd_mono.program import Entry

KERNEL = "glm53_flash"
"""Source of the kernel, hip/kernels/<KERNEL>.hip."""


def kda_half_layer(
    layer: int,
    weights: KdaWeights,
    cache: KdaCache,
    step: StepInputs,
    scratch: KdaScratch,
    x: Tensor,
    partial: Tensor,
) -> list[Entry]:
    """The phases of one KDA half layer (spec section 5), with three grid barriers between them.

    Parameters
    ----------
    layer : the model's layer number; names the layer in faults.
    x : [T, hidden] bf16, dense: the normed input.
    partial : [T, hidden] bf16, dense, out: this rank's share of the sum over ranks; zeros for padded rows.

    Raises
    ------
    LayoutError
        When a tensor's dtype, shape or strides are not what the kernels read; names all such tensors.
    """
    rows, hidden = x.shape
    check_kda_half_layer(f"KDA layer {layer}", weights, cache, step, scratch, x, partial)
    slots = {"slots": step.slots, "track_mask": step.track_mask, "track_slots": step.track_slots}
    columns = scratch.projected.shape[1]
    values = weights.heads * weights.head_dim
    pool_slots = cache.conv.shape[0]
    projection = weights.projection
    ends = list(itertools.accumulate(part.shape[0] for part in projection))
    unused = MAX_PROJECTION_WEIGHTS - len(projection)
    return [
        Entry(
            phase="kda_project",
            layer=layer,
            args={
                "x": x,
                "weights": [*projection, *[None] * unused],
                "weight_end": [*ends, *[columns] * unused],
                "projected": scratch.projected,
                "rows": rows,
                "hidden": hidden,
                "columns": columns,
            },
        ),
        Entry(
            phase="kda_gates",
            layer=layer,
            args={
                "projected": scratch.projected,
                "forget_weight": weights.forget_b,
                "output_weight": weights.output_b,
                "gates": scratch.gates,
                "rows": rows,
                "projected_columns": columns,
                "low_rank_column": weights.channels + weights.heads,
                "low_rank": weights.head_dim,
                "channels": values,
            },
            # the convolution reads the projection alone
            sync=False,
        ),
        Entry(
            phase="kda_conv",
            layer=layer,
            args={
                **slots,
                "projected": scratch.projected,
                "taps": weights.conv,
                "state": cache.conv,
                "convolved": scratch.convolved,
                "state_slot_stride": cache.conv.stride(0),
                "rows": rows,
                "projected_columns": columns,
                "channels": weights.channels,
                "pool_slots": pool_slots,
            },
        ),
        Entry(
            phase="kda_update",
            layer=layer,
            args={
                **slots,
                "convolved": scratch.convolved,
                "projected": scratch.projected,
                "forget": scratch.gates[0],
                "a_log": weights.A_log,
                "dt_bias": weights.dt_bias,
                "state": cache.temporal,
                "output": scratch.output,
                "state_slot_stride": cache.temporal.stride(0),
                "rows": rows,
                "heads": weights.heads,
                "projected_columns": columns,
                "beta_column": weights.channels,
                "pool_slots": pool_slots,
                "lower_bound": weights.lower_bound,
            },
        ),
        Entry(
            phase="kda_output",
            layer=layer,
            args={
                "output": scratch.output,
                "gate": scratch.gates[1],
                "norm_weight": weights.o_norm,
                "weight": weights.o_proj,
                "slots": step.slots,
                "partial": partial,
                "rows": rows,
                "channels": values,
                "hidden": hidden,
                "norm_eps": weights.norm_eps,
            },
        ),
    ]
