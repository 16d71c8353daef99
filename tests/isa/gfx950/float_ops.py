"""Floating-point vector arithmetic: one line an instruction.

A function gets its sources as arrays of the operand's number format (see sources.py) and returns the result, which
results.py rounds to the format of the destination.

The approximate instructions of the hardware (v_exp_f32, v_log_f32, v_rcp_f32, v_rsq_f32, v_sqrt_f32; 1 ulp) are
correctly rounded here, and flush denormals in and out: LLVM scales around them because they do.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from .division import div_fixup
from .fma import fma

_SMALLEST_NORMAL = np.float32(2.0**-126)
_BYTE = np.uint32(0xFF)


def _maximum(a: Any, b: Any) -> Any:
    """IEEE maxNum with +0 above -0."""
    return np.where((a == 0) & (b == 0), a + b, np.fmax(a, b))


def _minimum(a: Any, b: Any) -> Any:
    """IEEE minNum with -0 below +0."""
    return np.where((a == 0) & (b == 0), -(-a - b), np.fmin(a, b))


def _median(a: Any, b: Any, c: Any) -> Any:
    """The middle of three floats; the smallest number if one is NaN."""
    nan = np.isnan(a) | np.isnan(b) | np.isnan(c)
    smallest = _minimum(_minimum(a, b), c)
    return np.where(nan, smallest, _maximum(_minimum(a, b), _minimum(_maximum(a, b), c)))


def _flush(x: Any) -> Any:
    return np.where(np.abs(x) < _SMALLEST_NORMAL, np.copysign(x.dtype.type(0), x), x)


def _approximate(function: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """A float32 function of the transcendental unit."""
    return lambda x: _flush(function(_flush(x).astype(np.float64)).astype(np.float32))


def _truncate(kind: str) -> Callable[[Any], Any]:
    """Convert to an integer towards zero, saturating; NaN gives 0."""
    low, high = np.iinfo(kind).min, np.iinfo(kind).max
    return lambda x: (
        np.nan_to_num(np.clip(np.trunc(x.astype(np.float64)), low, high), nan=0.0).astype(np.int64).astype(kind)
    )


def _frexp_exponent(x: Any) -> Any:
    return np.where(np.isfinite(x), np.frexp(x)[1], 0)


def _frexp_mantissa(x: Any) -> Any:
    return np.frexp(x)[0]


def _dot(a: Any, b: Any, c: Any) -> Any:
    """Products and sums in double precision, rounded once; the hardware leaves the order open."""
    return c + (a.astype(np.float64) * b).sum(0)


# operations of several widths
_BY_WIDTH: dict[str, tuple[tuple[str, ...], Callable[..., Any]]] = {
    "add": (("f16", "f32", "f64"), lambda a, b: a + b),
    "sub": (("f16", "f32"), lambda a, b: a - b),
    "subrev": (("f32",), lambda a, b: b - a),
    "mul": (("f16", "f32", "f64"), lambda a, b: a * b),
    "fma": (("f16", "f32", "f64"), fma),
    "fmac": (("f32", "f64"), fma),
    "max": (("f16", "f32", "f64"), _maximum),
    "min": (("f16", "f32", "f64"), _minimum),
    "floor": (("f16", "f32", "f64"), np.floor),
    "ceil": (("f16", "f32", "f64"), np.ceil),
    "trunc": (("f16", "f32", "f64"), np.trunc),
    "rndne": (("f16", "f32", "f64"), np.rint),
    "ldexp": (("f32", "f64"), np.ldexp),
    "div_fixup": (("f32", "f64"), div_fixup),
}

FLOAT: dict[str, Callable[..., Any]] = {
    **{f"v_{name}_{kind}": function for name, (kinds, function) in _BY_WIDTH.items() for kind in kinds},
    "v_fmaak_f32": fma,
    "v_fmamk_f32": lambda a, b, k: fma(a, k, b),
    "v_max3_f32": lambda a, b, c: _maximum(_maximum(a, b), c),
    "v_min3_f32": lambda a, b, c: _minimum(_minimum(a, b), c),
    "v_med3_f32": _median,
    "v_maximum3_f32": lambda a, b, c: np.maximum(np.maximum(a, b), c),
    "v_minimum3_f32": lambda a, b, c: np.minimum(np.minimum(a, b), c),
    "v_fract_f32": lambda x: x - np.floor(x),
    "v_frexp_mant_f32": _frexp_mantissa,
    "v_pk_fma_f32": fma,
    "v_pk_fma_f16": fma,
    "v_pk_add_f32": lambda a, b: a + b,
    "v_pk_mul_f32": lambda a, b: a * b,
    "v_pk_add_f16": lambda a, b: a + b,
    "v_pk_mul_f16": lambda a, b: a * b,
    "v_pk_max_f16": _maximum,
    "v_pk_min_f16": _minimum,
    "v_exp_f32": _approximate(np.exp2),
    "v_log_f32": _approximate(np.log2),
    "v_rcp_f32": _approximate(lambda x: 1 / x),
    "v_rcp_iflag_f32": _approximate(lambda x: 1 / x),
    "v_rsq_f32": _approximate(lambda x: 1 / np.sqrt(x)),
    "v_sqrt_f32": _approximate(np.sqrt),
    "v_rcp_f64": lambda x: 1 / x,
    "v_rsq_f64": lambda x: 1 / np.sqrt(x),
    "v_frexp_exp_i32_f32": _frexp_exponent,
    "v_dot2_f32_bf16": _dot,
    "v_dot2_f32_f16": _dot,
    "v_dot2c_f32_bf16": _dot,
    # conversions between wide formats; the narrow ones are in convert.py
    "v_cvt_f32_i32": lambda x: x.astype(np.float32),
    "v_cvt_f32_u32": lambda x: x.astype(np.float32),
    "v_cvt_f64_i32": lambda x: x.astype(np.float64),
    "v_cvt_f64_u32": lambda x: x.astype(np.float64),
    "v_cvt_f32_f64": lambda x: x.astype(np.float32),
    "v_cvt_f64_f32": lambda x: x.astype(np.float64),
    "v_cvt_f32_f16": lambda x: x.astype(np.float32),
    "v_cvt_f16_f32": lambda x: x.astype(np.float16),
    "v_cvt_f16_u16": lambda x: x.astype(np.float16),
    "v_cvt_f16_i16": lambda x: x.astype(np.float16),
    "v_cvt_i32_f32": _truncate("i4"),
    "v_cvt_u32_f32": _truncate("u4"),
    "v_cvt_i32_f64": _truncate("i4"),
    "v_cvt_u32_f64": _truncate("u4"),
    "v_cvt_f32_ubyte0": lambda x: (x & _BYTE).astype(np.float32),
    "v_cvt_f32_ubyte1": lambda x: (x >> np.uint32(8) & _BYTE).astype(np.float32),
    "v_cvt_f32_ubyte2": lambda x: (x >> np.uint32(16) & _BYTE).astype(np.float32),
    "v_cvt_f32_ubyte3": lambda x: (x >> np.uint32(24)).astype(np.float32),
}
