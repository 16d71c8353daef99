"""How far a phase may be from its reference: the bounds of GLM-5.3-Flash, and the only place where they stand.

A phase is compared with its float64 reference on the inputs that the phase itself read, so that what an earlier phase
rounded differently does not count. Metrics of actual a and reference r:

    max_abs   max |a - r|                  0 asks for the same values, bit for bit
    rel       max |a - r| / max |r|        the worst element
    rms       rms(a - r) / rms(r)          what all elements have in common: a wrong constant, a missing term
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from types import MappingProxyType

import msgspec
from torch import Tensor

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


class Measured(msgspec.Struct, frozen=True):
    """One metric of one output."""

    name: str
    """`<launch>.<output>.<metric>`."""
    value: float
    limit: float

    @property
    def ok(self) -> bool:
        """Whether the value is within its limit; NaN is not."""
        return self.value <= self.limit


def compare(launch: str, output: str, actual: Tensor, reference: Tensor) -> list[Measured]:
    """Every metric that the output of a launch has a bound for.

    Raises
    ------
    KeyError
        When there is none.
    ValueError
        When the shapes differ.
    """
    if actual.shape != reference.shape:
        raise ValueError(f"{launch}.{output}: shape {list(actual.shape)} against {list(reference.shape)}")
    prefix = f"{launch}.{output}."
    metrics = [name.removeprefix(prefix) for name in BOUNDS if name.startswith(prefix)]
    if not metrics:
        raise KeyError(f"no bound for {prefix[:-1]}")
    error, scale = actual.double() - reference.double(), reference.double()
    return [Measured(prefix + metric, _measure(metric, error, scale), BOUNDS[prefix + metric]) for metric in metrics]


def _measure(metric: str, error: Tensor, scale: Tensor) -> float:
    if error.numel() == 0:
        return 0.0
    if metric == "max_abs":
        return float(error.abs().max())
    size = {"rel": _largest, "rms": _root_mean_square}[metric]
    measured, unit = size(error), size(scale)
    if unit == 0:
        return 0.0 if measured == 0 else math.inf
    return measured / unit


def _largest(values: Tensor) -> float:
    return float(values.abs().max())


def _root_mean_square(values: Tensor) -> float:
    return float(values.square().mean().sqrt())
