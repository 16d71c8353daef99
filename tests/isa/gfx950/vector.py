"""Vector arithmetic instructions: binds the functions of float_ops.py and integer_ops.py to operands.

Here are the instructions that have more than explicit sources and one result: a carry, an accumulator, a literal, a
truth table.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from .decode import VCC, Instruction
from .division import div_fmas, div_scale
from .float_ops import FLOAT
from .fma import fma
from .integer_ops import INTEGER
from .lanes import Step, with_dpp
from .results import assign, store, store_mask
from .sources import Read, plain_source, source
from .wave import Wave, lanes_of

# ---- instructions with one more source: the old destination, VCC, or a literal

_ACCUMULATES = ("v_fmac_f32", "v_fmac_f64", "v_dot2c_f32_bf16")
# integer instructions whose clamp bit is modelled: the result is computed in 64 bits and cut to the format's range
_SATURATES = (
    "v_add_u32",
    "v_sub_u32",
    "v_subrev_u32",
    "v_add_i32",
    "v_sub_i32",
    "v_add_u16",
    "v_sub_u16",
    "v_subrev_u16",
)
_HAS_LITERAL = ("v_fmaak_f32", "v_fmamk_f32")

# ---- instructions with a lane mask as second result


def _carry(total: Any) -> tuple[Any, Any]:
    """Low word and carry of a sum of words, computed in 64 bits; a borrow wraps and is a carry too."""
    return total, total >> np.uint64(32) != 0


def _wide(x: Any) -> Any:
    return x.astype(np.uint64)


def _mad_64(a: Any, b: Any, c: Any) -> tuple[Any, Any]:
    """Low 64 bits and bit 64 of the exact ``a * b + c``."""
    product = a.astype(c.dtype) * b.astype(c.dtype)
    total = product + c
    if c.dtype.kind == "u":
        return total, total < c
    overflow = ((product >= 0) == (c >= 0)) & ((total >= 0) != (c >= 0))
    return total, (total < 0) != overflow


_WITH_MASK: dict[str, Callable[..., tuple[Any, Any]]] = {
    "v_add_co_u32": lambda a, b: _carry(_wide(a) + _wide(b)),
    "v_sub_co_u32": lambda a, b: _carry(_wide(a) - _wide(b)),
    "v_subrev_co_u32": lambda a, b: _carry(_wide(b) - _wide(a)),
    "v_addc_co_u32": lambda a, b, c: _carry(_wide(a) + _wide(b) + c),
    "v_subb_co_u32": lambda a, b, c: _carry(_wide(a) - _wide(b) - c),
    "v_subbrev_co_u32": lambda a, b, c: _carry(_wide(b) - _wide(a) - c),
    "v_mad_u64_u32": _mad_64,
    "v_mad_i64_i32": _mad_64,
    "v_div_scale_f32": div_scale,
    "v_div_scale_f64": div_scale,
}
_READS_VCC = ("v_cndmask_b32", "v_addc_co_u32", "v_subb_co_u32", "v_subbrev_co_u32")


_WITH_VCC: dict[str, Callable[..., Any]] = {"v_div_fmas_f32": div_fmas, "v_div_fmas_f64": div_fmas}


def bitop3(insn: Instruction) -> Step:
    """v_bitop3: any function of three bits; its truth table is in the modifier fields."""
    table = insn.fields["omod"] << 6 | insn.fields["abs"] << 3 | insn.fields["neg"]
    first, second, third = (plain_source(insn, operand) for operand in insn.sources)
    row = insn.operands["vdst"].index
    half = insn.mnemonic.endswith("b16")
    if (half and insn.fields["opsel"]) or insn.fields["clmp"]:
        raise insn.unknown("modifier")

    def step(wave: Wave) -> None:
        a, b, c = first(wave), second(wave), third(wave)
        terms = [
            (a if term & 4 else ~a) & (b if term & 2 else ~b) & (c if term & 1 else ~c)
            for term in range(8)
            if table >> term & 1
        ]
        value = terms[0] if terms else a & ~a
        for term in terms[1:]:
            value = value | term
        wave.v["u4"][row] = np.where(wave.active, value, wave.v["u4"][row])

    return step


def fma_mix(insn: Instruction) -> Step:
    """v_fma_mix (v_mad_mix to the decoder): fused multiply-add of float32 or, by op_sel, float16 sources."""
    fields = insn.fields
    is_half = fields["opsel_hi"] | fields["opsel_hi2"] << 2
    reads = []
    for position, operand in enumerate(insn.sources):
        kind = "F16" if is_half >> position & 1 else "F32"
        read = plain_source(insn, replace(operand, format=kind), fields["opsel"] >> position & is_half >> position & 1)
        absolute, negative = fields["neg_hi"] >> position & 1, fields["neg"] >> position & 1
        reads.append(_signed_float(read, bool(absolute), bool(negative)))
    row, narrow = insn.operands["vdst"].index, insn.mnemonic.removeprefix("v_mad_mix")
    if fields["clmp"]:
        raise insn.unknown("clamp")

    def step(wave: Wave) -> None:
        value = fma(*(read(wave) for read in reads))
        if narrow == "_f32":
            assign(wave.v["f4"][row], value, wave.mask)
        else:
            assign(wave.v["f2"][row, int(narrow == "hi_f16") :: 2], value, wave.mask)

    return step


def _signed_float(read: Read, absolute: bool, negative: bool) -> Read:
    def modified(wave: Wave) -> Any:
        value = read(wave).astype(np.float32)
        value = np.abs(value) if absolute else value
        return -value if negative else value

    return modified


def bind(insn: Instruction) -> Step | None:
    """The step of a vector arithmetic instruction, or None for any other."""
    name = insn.mnemonic
    if name in ("v_bitop3_b32", "v_bitop3_b16"):
        return bitop3(insn)
    if name in ("v_mad_mix_f32", "v_mad_mixlo_f16", "v_mad_mixhi_f16"):
        return fma_mix(insn)
    if name == "v_nop":
        return lambda wave: None
    function = FLOAT.get(name) or INTEGER.get(name) or _WITH_VCC.get(name) or _WITH_MASK.get(name)
    if function is None:
        return None
    reads = [source(insn, position) for position in range(len(insn.sources))]
    if name in _ACCUMULATES:
        reads.append(plain_source(insn, insn.operands["vdst"]))
    if name in _HAS_LITERAL:
        literal = np.uint32(insn.fields["literal"]).view(np.float32)
        reads.append(lambda wave: literal)
    if name in _WITH_VCC or (name in _READS_VCC and "src2" not in insn.operands):
        reads.append(lambda wave: lanes_of(wave.vcc))
    if insn.fields.get("clmp") and not insn.operands["vdst"].format.startswith("F"):
        if name not in _SATURATES:
            raise insn.unknown("integer saturation")
        reads = [_widened(read) for read in reads]
    put = store(insn)
    if name in _WITH_MASK:
        put = _with_mask(insn, put)
    return (
        with_dpp(insn, reads[0], _first_given(function, reads[1:], put)) if insn.dpp else step_of(function, reads, put)
    )


def _widened(read: Read) -> Read:
    return lambda wave: read(wave).astype(np.int64)


def _with_mask(insn: Instruction, put: Callable[[Wave, Any], None]) -> Callable[[Wave, Any], None]:
    put_mask = store_mask(insn.operands["sdst"].index if "sdst" in insn.operands else VCC)

    def put_both(wave: Wave, value: Any) -> None:
        put(wave, value[0])
        put_mask(wave, value[1])

    return put_both


def step_of(function: Callable[..., Any], reads: list[Read], put: Callable[[Wave, Any], None]) -> Step:
    """The common shapes are written out: a step runs once a wave instruction."""
    if len(reads) == 1:
        (first,) = reads
        return lambda wave: put(wave, function(first(wave)))
    if len(reads) == 2:
        first, second = reads
        return lambda wave: put(wave, function(first(wave), second(wave)))
    if len(reads) == 3:
        first, second, third = reads
        return lambda wave: put(wave, function(first(wave), second(wave), third(wave)))
    return lambda wave: put(wave, function(*[read(wave) for read in reads]))


def _first_given(
    function: Callable[..., Any], reads: list[Read], put: Callable[[Wave, Any], None]
) -> Callable[[Wave, Any], None]:
    return lambda wave, value: put(wave, function(value, *[read(wave) for read in reads]))
