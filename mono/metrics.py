"""How far a tensor is from its reference, and whether that is within a limit.

Metrics of actual a and reference r:

    max_abs   max |a - r|                  0 asks for the same values, bit for bit
    rel       max |a - r| / max |r|        the worst element
    rms       rms(a - r) / rms(r)          what all elements have in common: a wrong constant, a missing term
    cosine    a . r / (|a| |r|)            the same, blind to scale; 1 where both are zero
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

import msgspec
from torch import Tensor

_COSINE = "cosine"


class Measured(msgspec.Struct, frozen=True):
    """One metric of one output."""

    name: str
    """`<launch>.<output>.<metric>`."""
    value: float
    limit: float

    @property
    def ok(self) -> bool:
        """Whether the value is within its limit; NaN is not."""
        return self.value >= self.limit if self.name.endswith(f".{_COSINE}") else self.value <= self.limit

    @property
    def strain(self) -> float:
        """How much of the limit is used up: 0 for none, 1 for all of it, more for a breach; infinite for NaN."""
        if math.isnan(self.value):
            return math.inf
        distance, room = (
            (1 - self.value, 1 - self.limit) if self.name.endswith(f".{_COSINE}") else (self.value, self.limit)
        )
        return 0.0 if distance <= 0 else distance / room if room > 0 else math.inf


def compare(launch: str, output: str, actual: Tensor, reference: Tensor, bounds: Mapping[str, float]) -> list[Measured]:
    """Every metric that `bounds` limits for the output of a launch.

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
    metrics = [name.removeprefix(prefix) for name in bounds if name.startswith(prefix)]
    if not metrics:
        raise KeyError(f"no bound for {prefix[:-1]}")
    a, r = actual.double(), reference.double()
    return [Measured(prefix + metric, _METRICS[metric](a, r), bounds[prefix + metric]) for metric in metrics]


def _max_abs(actual: Tensor, reference: Tensor) -> float:
    return _largest(actual - reference)


def _rel(actual: Tensor, reference: Tensor) -> float:
    return _ratio(_largest(actual - reference), _largest(reference))


def _rms(actual: Tensor, reference: Tensor) -> float:
    return _ratio(_root_mean_square(actual - reference), _root_mean_square(reference))


def _cosine(actual: Tensor, reference: Tensor) -> float:
    sizes = float(actual.norm() * reference.norm())
    if sizes == 0:
        return 1.0 if float(actual.norm()) == float(reference.norm()) else 0.0
    return float((actual * reference).sum()) / sizes


_METRICS: Mapping[str, Callable[[Tensor, Tensor], float]] = {
    "max_abs": _max_abs,
    "rel": _rel,
    "rms": _rms,
    _COSINE: _cosine,
}


def _ratio(error: float, size: float) -> float:
    if size == 0:
        return 0.0 if error == 0 else math.inf
    return error / size


def _largest(values: Tensor) -> float:
    return float(values.abs().max()) if values.numel() else 0.0


def _root_mean_square(values: Tensor) -> float:
    return float(values.square().mean().sqrt()) if values.numel() else 0.0
