"""The three helper instructions of an IEEE division: scale the operands, undo the scale, patch the special cases.

Source: AMD's pseudo-code of V_DIV_SCALE, V_DIV_FMAS and V_DIV_FIXUP, except where it contradicts itself. There the
semantics are those with which the division that LLVM emits is correctly rounded (test_random_programs.py compares it
with this machine's):

- V_DIV_FMAS is documented to scale back by 2^32 (2^64 for doubles) whatever V_DIV_SCALE did; it has to undo 2^64 or
  2^-64 (2^128).
- where 1 / denominator and the quotient are both denormal, V_DIV_SCALE is documented to scale the denominator up,
  past infinity.
- V_DIV_FIXUP is documented to return an overflow for a denominator that an earlier case has excluded; the quotient is
  meant.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np

from .fma import fma
from .wave import LANES


@dataclass(frozen=True)
class _Range:
    """When operands of a width need scaling, and by which power of two."""

    smallest_exponent: int
    mantissa_bits: int
    far: int
    tiny_numerator: int
    step: int
    underflow: int


_RANGES = {
    "f": _Range(-126, 23, far=96, tiny_numerator=-104, step=64, underflow=-150),
    "d": _Range(-1022, 52, far=768, tiny_numerator=-970, step=128, underflow=-1075),
}


def div_scale(value: Any, denominator: Any, numerator: Any) -> tuple[Any, Any]:
    """The operand `value` (one of the other two) scaled away from denormals; whether to scale the quotient back."""
    limits = _RANGES[value.dtype.char]
    value, denominator, numerator = np.broadcast_arrays(value, denominator, numerator)
    wide = np.longdouble
    quotient = numerator.astype(wide) / denominator.astype(wide)
    exponent = np.frexp(numerator)[1] - 1
    distance = np.frexp(numerator)[1] - np.frexp(denominator)[1]

    def denormal(x: Any) -> Any:
        return (x != 0) & (np.abs(x) < 2.0**limits.smallest_exponent)

    inverse, small = denormal(1 / denominator.astype(wide)), denormal(quotient)
    up, down = np.ldexp(value, limits.step), np.ldexp(value, -limits.step)
    cases = (
        ((numerator == 0) | (denominator == 0), np.full_like(value, np.nan), False),
        (distance >= limits.far, np.where(value == denominator, up, value), True),
        (denormal(denominator), up, False),
        (inverse & small, np.where(value == denominator, down, value), True),
        (inverse, down, False),
        (small, np.where(value == numerator, up, value), True),
        (exponent <= limits.tiny_numerator, up, False),
    )
    conditions = [case[0] for case in cases]
    scaled = np.select(conditions, [case[1] for case in cases], value)
    return scaled, np.select(conditions, [np.full(value.shape, case[2]) for case in cases], False)


def div_fmas(a: Any, b: Any, quotient: Any, scaled: Any) -> Any:
    """The last refinement step ``a * b + quotient``, rounded once.

    Where `scaled`, times 2^64 (2^128 for doubles) if the quotient is large, else by the inverse.
    """
    result = np.array(np.broadcast_to(fma(a, b, quotient), LANES))
    limits = _RANGES[result.dtype.char]
    a, b, quotient = (np.broadcast_to(x, LANES) for x in (a, b, quotient))
    for lane in np.flatnonzero(scaled):
        x, y, z = float(a[lane]), float(b[lane]), float(quotient[lane])
        if math.isfinite(x) and math.isfinite(y) and math.isfinite(z):
            factor = Fraction(2) ** (limits.step if abs(z) >= 2 else -limits.step)
            result[lane] = _rounded((Fraction(x) * Fraction(y) + Fraction(z)) * factor, limits)
    return result


def _rounded(value: Fraction, limits: _Range) -> float:
    """The nearest number of the format, ties to even."""
    magnitude = abs(value)
    exponent = magnitude.numerator.bit_length() - magnitude.denominator.bit_length()
    exponent -= magnitude < Fraction(2) ** exponent
    unit = Fraction(2) ** (max(exponent, limits.smallest_exponent) - limits.mantissa_bits)
    try:
        return float(round(value / unit) * unit)
    except OverflowError:
        return math.inf if value > 0 else -math.inf


def div_fixup(quotient: Any, denominator: Any, numerator: Any) -> Any:
    """The quotient, or what the division of a zero, an infinity or a NaN gives."""
    negative = np.signbit(denominator) ^ np.signbit(numerator)
    distance = np.frexp(numerator)[1] - np.frexp(denominator)[1]
    zero = np.isinf(denominator) | (numerator == 0)
    infinite = (denominator == 0) | np.isinf(numerator)
    invalid = infinite & zero | np.isnan(denominator) | np.isnan(numerator)
    cases = (
        (invalid, np.nan),
        (infinite, np.inf),
        (zero | (distance < _RANGES[quotient.dtype.char].underflow), 0.0),
        (~np.isfinite(quotient), np.inf),
    )
    magnitude = np.select([case[0] for case in cases], [case[1] for case in cases], np.abs(quotient)).astype(
        quotient.dtype
    )
    return np.where(negative, -magnitude, magnitude)
