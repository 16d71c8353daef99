"""The three helper instructions of an IEEE division: scale the operands, undo the scale, patch the special cases.

Source: AMD's pseudo-code of V_DIV_SCALE, V_DIV_FMAS and V_DIV_FIXUP.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from .fma import fma


@dataclass(frozen=True)
class _Range:
    """When operands of a width need scaling, and by which power of two."""

    smallest_normal: float
    far: int
    tiny_numerator: int
    step: int
    unscale: float


_RANGES = {
    "f": _Range(2.0**-126, far=96, tiny_numerator=-104, step=64, unscale=2.0**32),
    "d": _Range(2.0**-1022, far=768, tiny_numerator=-970, step=128, unscale=2.0**64),
}


def div_scale(value: Any, denominator: Any, numerator: Any) -> tuple[Any, Any]:
    """The operand `value` (one of the other two), scaled away from denormals, and whether the quotient must be scaled back."""
    limits = _RANGES[value.dtype.char]
    value, denominator, numerator = np.broadcast_arrays(value, denominator, numerator)
    wide = np.longdouble
    quotient = numerator.astype(wide) / denominator.astype(wide)
    exponent = np.frexp(numerator)[1] - 1
    distance = exponent - (np.frexp(denominator)[1] - 1)

    def denormal(x: Any) -> Any:
        return (x != 0) & (np.abs(x) < limits.smallest_normal)

    inverse, small = denormal(1 / denominator.astype(wide)), denormal(quotient)
    up, down = np.ldexp(value, limits.step), np.ldexp(value, -limits.step)
    denominator_up = np.where(value == denominator, up, value)
    cases = (
        ((numerator == 0) | (denominator == 0), np.full_like(value, np.nan), False),
        (distance >= limits.far, denominator_up, True),
        (denormal(denominator), up, False),
        (inverse & small, denominator_up, True),
        (inverse, down, False),
        (small, np.where(value == numerator, up, value), True),
        (exponent <= limits.tiny_numerator, up, False),
    )
    conditions = [case[0] for case in cases]
    scaled = np.select(conditions, [case[1] for case in cases], value)
    return scaled, np.select(conditions, [np.full(value.shape, case[2]) for case in cases], False)


def div_fmas(a: Any, b: Any, c: Any, scaled: Any) -> Any:
    """The last refinement step of the quotient, scaled back where `scaled`."""
    factor = np.where(scaled, a.dtype.type(_RANGES[a.dtype.char].unscale), a.dtype.type(1))
    return fma(a, b, c) * factor


def div_fixup(quotient: Any, denominator: Any, numerator: Any) -> Any:
    """The quotient, or what the division of a zero, an infinity or a NaN gives."""
    negative = np.signbit(denominator) ^ np.signbit(numerator)
    infinite = (denominator == 0) | np.isinf(numerator)
    zero = np.isinf(denominator) | (numerator == 0)
    magnitude = np.where(infinite, np.inf, np.where(zero, 0, np.abs(quotient)))
    invalid = infinite & zero | np.isnan(denominator) | np.isnan(numerator)
    magnitude = np.where(invalid, np.nan, magnitude).astype(quotient.dtype)
    return np.where(negative, -magnitude, magnitude)
