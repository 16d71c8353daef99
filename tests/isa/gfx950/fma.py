"""Fused multiply-add, rounded once."""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np

_libm = ctypes.CDLL("libm.so.6")
_libm.fma.argtypes, _libm.fma.restype = [ctypes.c_double] * 3, ctypes.c_double
_libm.fmaf.argtypes, _libm.fmaf.restype = [ctypes.c_float] * 3, ctypes.c_float
_fma_each = np.frompyfunc(_libm.fma, 3, 1)
_fmaf_each = np.frompyfunc(_libm.fmaf, 3, 1)
# the part of a double's mantissa below a float's
_BELOW_FLOAT, _HALF_WAY = np.uint64((1 << 29) - 1), np.uint64(1 << 28)
_SMALLEST_NORMAL = np.float32(2.0**-126)


def fma(a: Any, b: Any, c: Any) -> Any:
    """``a * b + c`` rounded once; float16, float32 or float64 as `a` is."""
    if a.dtype == np.float64:
        return np.asarray(_fma_each(a, b, c), np.float64)
    total = a.astype(np.float64) * b + c
    if a.dtype == np.float16:
        return total.astype(np.float16)
    # the product is exact in double precision; rounding the sum twice goes wrong only where the first result is half-
    # way between two floats, or where the float is denormal
    result = total.astype(np.float32)
    suspect = (total.view(np.uint64) & _BELOW_FLOAT == _HALF_WAY) | (np.abs(result) < _SMALLEST_NORMAL)
    if suspect.any() and (suspect & (total != 0)).any():
        return np.asarray(_fmaf_each(a, b, c), np.float32)
    return result
