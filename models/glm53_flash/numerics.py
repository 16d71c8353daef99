"""How far a phase may be from its reference: the bounds of GLM-5.3-Flash, and the only place where they stand.

A phase is compared with its float64 reference on the inputs that the phase itself read, so that what an earlier phase
rounded differently does not count. mono/metrics.py defines the metrics.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from torch import Tensor

from sgl_amd_mono import metrics
from sgl_amd_mono.metrics import Measured

BF16_ULP = 2.0**-7
"""Largest distance of neighbouring bf16 numbers, relative to them."""

# Both sides round to bf16, so they differ where a sum lies near the middle of two neighbours: by one ulp.
_ROUNDED_REL = BF16_ULP
# fp32 sums of 4096 products err by about 4e-6 of their size, which carries one element in 500 over such a middle:
# sqrt(1 / 500) of half an ulp, 1.7e-4. A thousandth leaves room, and no systematic error.
_ROUNDED_RMS = 2.0**-10

BOUNDS: Mapping[str, float] = MappingProxyType(
    {
        "kda_project.projected.rel": _ROUNDED_REL,
        "kda_project.projected.rms": _ROUNDED_RMS,
        "kda_gates.gates.rel": _ROUNDED_REL,
        "kda_gates.gates.rms": _ROUNDED_RMS,
        "kda_conv.convolved.rel": _ROUNDED_REL,
        "kda_conv.convolved.rms": _ROUNDED_RMS,
        # copies of projections
        "kda_conv.conv_state.max_abs": 0.0,
        "kda_update.output.rel": _ROUNDED_REL,
        "kda_update.output.rms": _ROUNDED_RMS,
        # fp32 arithmetic, never rounded to less (spec 16.3)
        "kda_update.state.rel": 1e-5,
        "kda_output.partial.rel": _ROUNDED_REL,
        "kda_output.partial.rms": _ROUNDED_RMS,
        # where a program is cut into launches changes nothing
        "slicing.partial.max_abs": 0.0,
        "slicing.conv_state.max_abs": 0.0,
        "slicing.state.max_abs": 0.0,
    }
)
"""Limit by `<launch>.<output>.<metric>`."""

# Against the standard path of SGLang, whose sums have another order: a rounding to bf16 may fall to the neighbour, one
# ulp away, at each of the points where both round. The projections are one such point; the state has two more on the
# way of what is added to it, the convolution and the gates; the share of the output two after those, the recurrence's
# output and itself.
_CHECKED_STATE_REL = 3 * BF16_ULP
_CHECKED_PARTIAL_REL = 5 * BF16_ULP
# a systematic error of one ulp in every element leaves 1 - 2^-15
_CHECKED_COSINE = 1 - 2.0**-13
# Later layers see earlier differences, routed experts may change with them: SGLang's own bf16 path and transformers'
# agree to 0.9993 on whole models.
_STEP_COSINE = 0.999

STANDARD_BOUNDS: Mapping[str, float] = MappingProxyType(
    {
        "kda.conv_state.rel": BF16_ULP,
        "kda.state.rel": _CHECKED_STATE_REL,
        "kda.state.cosine": _CHECKED_COSINE,
        "kda.partial.rel": _CHECKED_PARTIAL_REL,
        "kda.partial.cosine": _CHECKED_COSINE,
        "step.conv_state.cosine": _STEP_COSINE,
        "step.state.cosine": _STEP_COSINE,
        "step.latent.cosine": _STEP_COSINE,
        "step.index_key.cosine": _STEP_COSINE,
        "step.index_tail.cosine": _STEP_COSINE,
        "step.hidden.cosine": _STEP_COSINE,
        "step.logits.cosine": _STEP_COSINE,
    }
)
"""Limit by `<launch>.<output>.<metric>` for routed steps against SGLang's standard path: `kda` for a half layer from
the same input and state, `step` for the whole step. A cosine may not be smaller, a `rel` not larger."""


def compare(launch: str, output: str, actual: Tensor, reference: Tensor) -> list[Measured]:
    """Every metric that `BOUNDS` limits for the output of a launch; raises as `metrics.compare`."""
    return metrics.compare(launch, output, actual, reference, BOUNDS)
