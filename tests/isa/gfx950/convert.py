"""Conversions to and from the narrow formats: one line an instruction.

sources.py reads bf16, fp8, bf8 and fp4 operands as float32, results.py rounds to them, so most conversions only say
which values go where.

A ``scalef32`` conversion multiplies (when it widens) or divides (when it narrows) by the power of two in the exponent
field of its last source; sign and mantissa of that source are ignored. An fp8 value that does not fit becomes NaN, a
bf8 value infinity, as without the mode bit FP16_OVFL; an fp4 value saturates.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy as np

from .decode import Instruction
from .formats import E8M0_BIAS
from .lanes import Step
from .results import store
from .sources import source
from .vector import step_of


def _pair(a: Any, b: Any) -> Any:
    return np.stack(np.broadcast_arrays(a, b))


def _scale(x: Any) -> Any:
    """2^(exponent field - 127) of a float32, in double precision."""
    return np.ldexp(1.0, (x.view(np.uint32) >> np.uint32(23) & np.uint32(0xFF)).astype(np.int32) - E8M0_BIAS)


def _toward_zero(x: Any) -> Any:
    """float32 to float16, rounded toward zero."""
    near = x.astype(np.float16)
    too_far = np.abs(near.astype(np.float32)) > np.abs(x)
    return np.where(too_far, np.nextafter(near, np.float16(0)), near)


_CONVERT: dict[str, Callable[..., Any]] = {
    "v_cvt_pk_bf16_f32": _pair,
    "v_cvt_pk_f16_f32": _pair,
    "v_cvt_pkrtz_f16_f32": lambda a, b: _pair(_toward_zero(a), _toward_zero(b)),
    "v_cvt_pk_fp8_f32": _pair,
    "v_cvt_pk_bf8_f32": _pair,
    "v_cvt_f32_bf16": lambda x: x,
    "v_cvt_f32_fp8": lambda x: x,
    "v_cvt_f32_bf8": lambda x: x,
    "v_cvt_pk_f32_fp8": lambda x: x,
    "v_cvt_pk_i16_i32": lambda a, b: np.clip(_pair(a, b), -0x8000, 0x7FFF),
    "v_cvt_pk_u16_u32": lambda a, b: np.minimum(_pair(a, b), 0xFFFF),
}
_SCALED = re.compile(r"v_cvt_scalef32_(?:pk_)?(f32|f16|bf16|fp8|bf8|fp4)_(f32|f16|bf16|fp8|bf8|fp4)")
_NARROW = ("fp8", "bf8", "fp4")


def _scaled(name: str) -> Callable[..., Any] | None:
    parts = _SCALED.fullmatch(name)
    if parts is None:
        return None
    if parts[1] not in _NARROW:
        return lambda x, scale: (x * _scale(scale)).astype(np.float32)
    if parts[2] == "f32":
        return lambda a, b, scale: _pair(a, b) / _scale(scale)
    return lambda x, scale: x / _scale(scale)


def bind(insn: Instruction) -> Step | None:
    """The step of a conversion, or None for any other instruction."""
    function = _CONVERT.get(insn.mnemonic) or _scaled(insn.mnemonic)
    if function is None:
        return None
    if insn.dpp:
        raise insn.unknown("conversion with DPP")
    return step_of(function, [source(insn, position) for position in range(len(insn.sources))], store(insn))
