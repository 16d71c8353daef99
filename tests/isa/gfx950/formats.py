"""Number formats of operands: how an element is stored; the narrow formats that numpy lacks (bf16, OCP 8 and 4 bits).

Sources: OCP 8-bit Floating Point Specification 1.0 (E4M3, E5M2), OCP Microscaling Formats 1.0 (E2M1, E8M0).
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

Array: TypeAlias = npt.NDArray[Any]

E8M0_BIAS = 127
_E8M0_NAN = 255


class Minifloat:
    """A floating-point format of at most 8 bits: sign, exponent, mantissa.

    Parameters
    ----------
    magnitudes : array [N]
        The finite values >= 0 by code, ascending, followed by the value that the next code would have.
    overflow : int
        Code (without sign) of a value that rounds past the largest finite one.
    nan : int
        Code (without sign) of a NaN.
    """

    def __init__(self, bits: int, magnitudes: Array, specials: dict[int, float], overflow: int, nan: int) -> None:
        self.sign = 1 << (bits - 1)
        self.overflow, self.nan = overflow, nan
        self.finite = len(magnitudes) - 1
        self.midpoints = (magnitudes[1:] + magnitudes[:-1]) / 2
        values = np.zeros(2 * self.sign, np.float32)
        values[: self.finite] = magnitudes[:-1]
        for code, value in specials.items():
            values[code] = value
        values[self.sign :] = -values[: self.sign]
        self.values = values

    def decode(self, codes: Array) -> Array:
        """Codes to float32, exactly."""
        return self.values[codes]

    def encode(self, values: Array, saturate: bool = False) -> Array:
        """Round to nearest, ties to the even code: uint8. `saturate` turns what does not fit into the largest value."""
        magnitude = np.abs(values)
        below = np.searchsorted(self.midpoints, magnitude, side="left")
        above = np.searchsorted(self.midpoints, magnitude, side="right")
        code = np.where(below & 1, above, below)
        code = np.where(code >= self.finite, self.finite - 1 if saturate else self.overflow, code)
        code = np.where(np.isnan(values), self.nan, code)
        return np.where(np.signbit(values), code | self.sign, code).astype(np.uint8)


def _magnitudes(exponent_bits: int, mantissa_bits: int, bias: int) -> Array:
    codes = np.arange(1 << (exponent_bits + mantissa_bits))
    exponent, mantissa = codes >> mantissa_bits, codes & ((1 << mantissa_bits) - 1)
    fraction = mantissa / (1 << mantissa_bits)
    return np.where(exponent == 0, np.ldexp(fraction, 1 - bias), np.ldexp(1 + fraction, exponent - bias))


_E4M3_VALUES = _magnitudes(4, 3, 7)
_E5M2_VALUES = _magnitudes(5, 2, 15)
# E4M3 has no infinity: what does not fit becomes NaN. E5M2 has both.
E4M3 = Minifloat(8, _E4M3_VALUES, {0x7F: np.nan}, overflow=0x7F, nan=0x7F)
E5M2 = Minifloat(
    8, _E5M2_VALUES[:0x7D], {0x7C: np.inf, 0x7D: np.nan, 0x7E: np.nan, 0x7F: np.nan}, overflow=0x7C, nan=0x7F
)
# E2M1 has neither: what does not fit, and NaN, become the largest value. 8 would be the value after 6.
E2M1 = Minifloat(4, np.append(_magnitudes(2, 1, 1), 8.0), {}, overflow=7, nan=7)


def bf16_decode(codes: Array) -> Array:
    """uint16 codes of bf16 to float32, exactly."""
    wide: Array = codes.astype(np.uint32) << np.uint32(16)
    return wide.view(np.float32)


def bf16_encode(values: Array) -> Array:
    """float32 to uint16 codes of bf16, round to nearest even; a NaN stays a (quiet) NaN."""
    bits = np.asarray(values, np.float32).view(np.uint32)
    rounded: Array = (bits + np.uint32(0x7FFF) + (bits >> np.uint32(16) & np.uint32(1))) >> np.uint32(16)
    return np.where(np.isnan(values), bits >> np.uint32(16) | np.uint32(0x40), rounded).astype(np.uint16)


def e8m0_decode(codes: Array) -> Array:
    """uint8 codes of block scales to float64: 2^(code - 127), 0xff is NaN."""
    return np.where(codes == _E8M0_NAN, np.nan, np.ldexp(1.0, codes.astype(np.int32) - E8M0_BIAS))


# how an element of each number format is stored
_STORAGE = {"F": "f", "I": "i", "U": "u", "B": "u", "M": "u", "BF": "u", "FP": "u"}
# the value, as float32 or integer, of a stored element; other formats are stored as numpy has them
DECODE: dict[str, Callable[[Array], Array]] = {
    "BF16": bf16_decode,
    "FP8": E4M3.decode,
    "BF8": E5M2.decode,
    "FP4": E2M1.decode,
    "I24": lambda x: x << 8 >> 8,
    "U24": lambda x: x & np.uint32(0xFFFFFF),
}
# its inverse, rounding; the flag makes 8-bit formats saturate
ENCODE: dict[str, Callable[[Array, bool], Array]] = {
    "BF16": lambda values, saturate: bf16_encode(values),
    "FP8": E4M3.encode,
    "BF8": E5M2.encode,
    "FP4": E2M1.encode,
}


class Format:
    """A number format name such as ``F32`` or ``PK2_BF16``, taken apart."""

    def __init__(self, name: str) -> None:
        parts = re.fullmatch(r"(?:PK(\d+)_)?([A-Z]+)(\d+)", name)
        if parts is None:
            raise ValueError(f"{name} is not a number format")
        self.packed = parts[1] is not None
        self.count = int(parts[1] or 1)
        self.element = parts[2] + parts[3]
        self.bits = 32 if parts[3] == "24" else int(parts[3])
        self.storage = _STORAGE[parts[2]] + str(max(self.bits // 8, 1))
        self.is_float = parts[2] in ("F", "BF", "FP")
        self.signed = parts[2] == "I"
