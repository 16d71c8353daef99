"""Vector arithmetic: one line an instruction.

A function gets its sources as arrays of the operand's number format (see sources.py) and returns the result; results.py rounds it to the
destination's format. Integer arithmetic wraps as numpy's does.

The approximate instructions of the hardware (v_exp_f32, v_log_f32, v_rcp_f32, v_rsq_f32, v_sqrt_f32, v_sin_f32, v_cos_f32; 1 ulp) are
correctly rounded here, and flush denormals in and out: LLVM scales around them because they do.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from .decode import VCC, Instruction
from .division import div_fixup, div_fmas, div_scale
from .fma import fma
from .lanes import Step, with_dpp
from .results import assign, store, store_mask
from .sources import Read, plain_source, source
from .wave import LANES, Wave, lanes_of

Array = npt.NDArray[Any]

_SMALLEST_NORMAL = np.float32(2.0**-126)
_BYTE = np.uint32(0xFF)

# ---- helpers


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


def _median_int(a: Any, b: Any, c: Any) -> Any:
    return np.maximum(np.minimum(a, b), np.minimum(np.maximum(a, b), c))


def _flush(x: Any) -> Any:
    return np.where(np.abs(x) < _SMALLEST_NORMAL, np.copysign(x.dtype.type(0), x), x)


def _approximate(function: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """A float32 function of the transcendental unit."""
    return lambda x: _flush(function(_flush(x).astype(np.float64)).astype(np.float32))


def _truncate(kind: str) -> Callable[[Any], Any]:
    """Convert to an integer towards zero, saturating; NaN gives 0."""
    low, high = np.iinfo(kind).min, np.iinfo(kind).max
    return lambda x: np.nan_to_num(np.clip(np.trunc(x.astype(np.float64)), low, high), nan=0.0).astype(np.int64).astype(kind)


def _bit_field(value: Any, offset: Any, width: Any) -> Any:
    offset, width = offset & np.uint32(31), width & np.uint32(31)
    if value.dtype.kind == "u":
        return value >> offset & (np.uint32(1) << width) - np.uint32(1)
    wide = value.astype(np.int64) >> offset
    unused = 64 - width.astype(np.int64)
    return np.where(width == 0, 0, wide << unused >> unused)


def _first_high_bit(x: Any) -> Any:
    """Leading zeros of a uint32, -1 for 0."""
    return np.where(x == 0, -1, 31 - np.floor(np.log2(np.maximum(x, 1).astype(np.float64)))).astype(np.int32)


def _reverse_bits(x: Any) -> Any:
    return np.packbits(np.unpackbits(np.atleast_1d(x).view(np.uint8), bitorder="little")).view(">u4").astype(np.uint32)


def _permute_bytes(a: Any, b: Any, selectors: Any) -> Any:
    """v_perm_b32: bytes 0..3 of `b`, 4..7 of `a`; 8..11 a sign replicated, 12 zero, from 13 ones."""
    data = np.stack([np.broadcast_to(b, LANES), np.broadcast_to(a, LANES)], 1).view(np.uint8)
    signs = np.where(data[:, 1::2] & 0x80, 0xFF, 0).astype(np.uint8)
    table = np.concatenate([data, signs, np.zeros_like(data[:, :1]), np.full_like(data[:, :3], 0xFF)], 1)
    return np.take_along_axis(table, np.broadcast_to(np.minimum(selectors, 13), (4, LANES)).T, 1).T


def _frexp_exponent(x: Any) -> Any:
    return np.where(np.isfinite(x), np.frexp(x)[1], 0)


def _frexp_mantissa(x: Any) -> Any:
    return np.frexp(x)[0]


def _dot(a: Any, b: Any, c: Any) -> Any:
    """Products and sums in double precision, rounded once; the hardware leaves the order open."""
    return c + (a.astype(np.float64) * b).sum(0)


def _dot_int(a: Any, b: Any, c: Any) -> Any:
    return (c + (a.astype(np.int64) * b).sum(0)).astype(c.dtype)


def _mul_hi(a: Any, b: Any) -> Any:
    wide = np.int64 if a.dtype.kind == "i" else np.uint64
    return a.astype(wide) * b.astype(wide) >> wide(32)


def _stack(*values: Any) -> Array:
    return np.stack(np.broadcast_arrays(*values))


# ---- the table: explicit sources, one result

_FLOAT: dict[str, Callable[..., Any]] = {
    "add": lambda a, b: a + b,
    "sub": lambda a, b: a - b,
    "subrev": lambda a, b: b - a,
    "mul": lambda a, b: a * b,
    "fma": fma,
    "max": _maximum,
    "min": _minimum,
    "max3": lambda a, b, c: _maximum(_maximum(a, b), c),
    "min3": lambda a, b, c: _minimum(_minimum(a, b), c),
    "med3": _median,
    "maximum3": lambda a, b, c: np.maximum(np.maximum(a, b), c),
    "minimum3": lambda a, b, c: np.minimum(np.minimum(a, b), c),
    "floor": np.floor,
    "ceil": np.ceil,
    "trunc": np.trunc,
    "rndne": np.rint,
    "fract": lambda x: x - np.floor(x),
    "frexp_mant": _frexp_mantissa,
    "div_fixup": div_fixup,
}

_PLAIN: dict[str, Callable[..., Any]] = {
    # moves and selects
    "v_mov_b32": lambda a: a,
    "v_mov_b64": lambda a: a,
    "v_accvgpr_read": lambda a: a,
    "v_accvgpr_write": lambda a: a,
    "v_accvgpr_mov_b32": lambda a: a,
    "v_not_b32": lambda a: ~a,
    "v_bfrev_b32": _reverse_bits,
    "v_cndmask_b32": lambda a, b, mask: np.where(mask, b, a),
    "v_perm_b32": _permute_bytes,
    "v_pack_b32_f16": lambda a, b: a.view(np.uint16) | b.view(np.uint16).astype(np.uint32) << np.uint32(16),
    # each source gives one element, which its op_sel bit picks
    "v_pk_mov_b32": lambda a, b: _stack(a[0], b[0]),
    # floating point beyond _FLOAT
    "v_ldexp_f32": np.ldexp,
    "v_ldexp_f64": np.ldexp,
    "v_fmac_f32": fma,
    "v_fmac_f64": fma,
    "v_fmaak_f32": fma,
    "v_fmamk_f32": lambda a, b, k: fma(a, k, b),
    "v_pk_fma_f32": fma,
    "v_pk_fma_f16": fma,
    "v_pk_add_f32": lambda a, b: a + b,
    "v_pk_mul_f32": lambda a, b: a * b,
    "v_pk_add_f16": lambda a, b: a + b,
    "v_pk_mul_f16": lambda a, b: a * b,
    "v_pk_max_f16": _maximum,
    "v_pk_min_f16": _minimum,
    "v_pk_maximum3_f16": lambda a, b, c: np.maximum(np.maximum(a, b), c),
    "v_pk_minimum3_f16": lambda a, b, c: np.minimum(np.minimum(a, b), c),
    "v_exp_f32": _approximate(np.exp2),
    "v_log_f32": _approximate(np.log2),
    "v_rcp_f32": _approximate(lambda x: 1 / x),
    "v_rcp_iflag_f32": _approximate(lambda x: 1 / x),
    "v_rsq_f32": _approximate(lambda x: 1 / np.sqrt(x)),
    "v_sqrt_f32": _approximate(np.sqrt),
    "v_sin_f32": _approximate(lambda x: np.sin(2 * np.pi * x)),
    "v_cos_f32": _approximate(lambda x: np.cos(2 * np.pi * x)),
    "v_rcp_f64": lambda x: 1 / x,
    "v_rsq_f64": lambda x: 1 / np.sqrt(x),
    "v_sqrt_f64": np.sqrt,
    "v_rcp_f16": lambda x: (1 / x.astype(np.float64)).astype(np.float16),
    "v_rsq_f16": lambda x: (1 / np.sqrt(x.astype(np.float64))).astype(np.float16),
    "v_sqrt_f16": np.sqrt,
    "v_exp_f16": lambda x: np.exp2(x.astype(np.float64)).astype(np.float16),
    "v_log_f16": lambda x: np.log2(x.astype(np.float64)).astype(np.float16),
    "v_frexp_exp_i32_f32": _frexp_exponent,
    "v_frexp_exp_i32_f64": _frexp_exponent,
    "v_dot2_f32_bf16": _dot,
    "v_dot2_f32_f16": _dot,
    "v_dot2c_f32_bf16": _dot,
    "v_dot2c_f32_f16": _dot,
    # integers
    "v_add_u32": lambda a, b: a + b,
    "v_sub_u32": lambda a, b: a - b,
    "v_subrev_u32": lambda a, b: b - a,
    "v_add_i32": lambda a, b: a + b,
    "v_sub_i32": lambda a, b: a - b,
    "v_add_u16": lambda a, b: a + b,
    "v_sub_u16": lambda a, b: a - b,
    "v_subrev_u16": lambda a, b: b - a,
    "v_add3_u32": lambda a, b, c: a + b + c,
    "v_mul_lo_u32": lambda a, b: a * b,
    "v_mul_lo_u16": lambda a, b: a * b,
    "v_mul_hi_u32": _mul_hi,
    "v_mul_hi_i32": _mul_hi,
    "v_mul_u32_u24": lambda a, b: (a & np.uint32(0xFFFFFF)) * (b & np.uint32(0xFFFFFF)),
    "v_mul_i32_i24": lambda a, b: (a << 8 >> 8) * (b << 8 >> 8),
    "v_mul_hi_u32_u24": lambda a, b: _mul_hi(a & np.uint32(0xFFFFFF), b & np.uint32(0xFFFFFF)),
    "v_mul_hi_i32_i24": lambda a, b: _mul_hi(a << 8 >> 8, b << 8 >> 8),
    "v_mad_u32_u24": lambda a, b, c: a * b + c,
    "v_mad_i32_i24": lambda a, b, c: a * b + c,
    "v_mad_u32_u16": lambda a, b, c: a.astype(np.uint32) * b + c,
    "v_mad_i32_i16": lambda a, b, c: a.astype(np.int32) * b + c,
    "v_mad_u16": lambda a, b, c: a * b + c,
    "v_mad_i16": lambda a, b, c: a * b + c,
    "v_max3_u32": lambda a, b, c: np.maximum(np.maximum(a, b), c),
    "v_max3_i32": lambda a, b, c: np.maximum(np.maximum(a, b), c),
    "v_min3_u32": lambda a, b, c: np.minimum(np.minimum(a, b), c),
    "v_min3_i32": lambda a, b, c: np.minimum(np.minimum(a, b), c),
    "v_med3_u32": _median_int,
    "v_med3_i32": _median_int,
    "v_sad_u32": lambda a, b, c: np.maximum(a, b) - np.minimum(a, b) + c,
    "v_dot4_i32_i8": _dot_int,
    "v_dot4_u32_u8": _dot_int,
    "v_dot4c_i32_i8": _dot_int,
    "v_dot2_i32_i16": _dot_int,
    "v_dot2_u32_u16": _dot_int,
    "v_pk_add_u16": lambda a, b: a + b,
    "v_pk_sub_u16": lambda a, b: a - b,
    "v_pk_add_i16": lambda a, b: a + b,
    "v_pk_sub_i16": lambda a, b: a - b,
    "v_pk_mul_lo_u16": lambda a, b: a * b,
    "v_pk_mad_u16": lambda a, b, c: a * b + c,
    "v_pk_mad_i16": lambda a, b, c: a * b + c,
    "v_pk_lshlrev_b16": lambda a, b: b << (a & np.uint16(15)),
    "v_pk_lshrrev_b16": lambda a, b: b >> (a & np.uint16(15)),
    "v_pk_ashrrev_i16": lambda a, b: b >> (a & np.uint16(15)).astype(np.int16),
    # bits and shifts
    "v_and_b32": lambda a, b: a & b,
    "v_or_b32": lambda a, b: a | b,
    "v_xor_b32": lambda a, b: a ^ b,
    "v_xnor_b32": lambda a, b: ~(a ^ b),
    "v_or3_b32": lambda a, b, c: a | b | c,
    "v_and_or_b32": lambda a, b, c: a & b | c,
    "v_lshl_or_b32": lambda a, b, c: a << (b & 31) | c,
    "v_lshl_add_u32": lambda a, b, c: (a << (b & 31)) + c,
    "v_add_lshl_u32": lambda a, b, c: a + b << (c & 31),
    "v_xad_u32": lambda a, b, c: (a ^ b) + c,
    "v_lshl_add_u64": lambda a, b, c: (a << (b & 7).astype(np.uint64)) + c,
    "v_lshlrev_b32": lambda a, b: b << (a & 31),
    "v_lshrrev_b32": lambda a, b: b >> (a & 31),
    "v_ashrrev_i32": lambda a, b: b >> (a & 31).astype(np.int32),
    "v_lshlrev_b16": lambda a, b: b << (a & np.uint16(15)),
    "v_lshrrev_b16": lambda a, b: b >> (a & np.uint16(15)),
    "v_ashrrev_i16": lambda a, b: b >> (a & np.uint16(15)).astype(np.int16),
    "v_lshlrev_b64": lambda a, b: b << (a & 63).astype(np.uint64),
    "v_lshrrev_b64": lambda a, b: b >> (a & 63).astype(np.uint64),
    "v_ashrrev_i64": lambda a, b: b >> (a & 63).astype(np.int64),
    "v_bfe_u32": _bit_field,
    "v_bfe_i32": _bit_field,
    "v_bfi_b32": lambda a, b, c: a & b | ~a & c,
    "v_bfm_b32": lambda a, b: (np.uint32(1) << (a & 31)) - np.uint32(1) << (b & 31),
    "v_alignbit_b32": lambda a, b, c: (a.astype(np.uint64) << np.uint64(32) | b) >> (c & 31).astype(np.uint64),
    "v_alignbyte_b32": lambda a, b, c: (a.astype(np.uint64) << np.uint64(32) | b) >> (8 * (c & 3)).astype(np.uint64),
    "v_bcnt_u32_b32": lambda a, b: np.bitwise_count(a).astype(np.uint32) + b,
    "v_ffbh_u32": _first_high_bit,
    "v_ffbl_b32": lambda x: np.where(x == 0, -1, 31 - _first_high_bit(x & -x)),
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
    "v_cvt_i16_f16": _truncate("i2"),
    "v_cvt_u16_f16": _truncate("u2"),
    "v_cvt_flr_i32_f32": lambda x: _truncate("i4")(np.floor(x)),
    "v_cvt_rpi_i32_f32": lambda x: _truncate("i4")(np.floor(x.astype(np.float64) + 0.5)),
    "v_cvt_f32_ubyte0": lambda x: (x & _BYTE).astype(np.float32),
    "v_cvt_f32_ubyte1": lambda x: (x >> np.uint32(8) & _BYTE).astype(np.float32),
    "v_cvt_f32_ubyte2": lambda x: (x >> np.uint32(16) & _BYTE).astype(np.float32),
    "v_cvt_f32_ubyte3": lambda x: (x >> np.uint32(24)).astype(np.float32),
    **{f"v_{name}_{kind}": function for name, function in _FLOAT.items() for kind in ("f16", "f32", "f64")},
    **{f"v_{name}_{kind}": function for kind in ("u16", "i16", "u32", "i32") for name, function in (("max", np.maximum), ("min", np.minimum))},
    **{f"v_pk_{name}_{kind}": function for kind in ("u16", "i16") for name, function in (("max", np.maximum), ("min", np.minimum))},
}

# ---- instructions with one more source: the old destination, VCC, or a literal

_ACCUMULATES = ("v_fmac_f32", "v_fmac_f64", "v_dot2c_f32_bf16", "v_dot2c_f32_f16", "v_dot4c_i32_i8")
# integer instructions whose clamp bit is modelled: the result is computed in 64 bits and cut to the format's range
_SATURATES = ("v_add_u32", "v_sub_u32", "v_subrev_u32", "v_add_i32", "v_sub_i32", "v_add_u16", "v_sub_u16", "v_subrev_u16")
_HAS_LITERAL = ("v_fmaak_f32", "v_fmamk_f32")

# ---- instructions with a lane mask as second result


def _carry(total: Any) -> tuple[Any, Any]:
    """Low word and carry of a sum of words, computed in 64 bits; a borrow wraps and is a carry too."""
    return total, total >> np.uint64(32) != 0


def _wide(x: Any) -> Any:
    return x.astype(np.uint64)


def _mad_64(a: Any, b: Any, c: Any) -> tuple[Any, Any]:
    product = a.astype(c.dtype) * b.astype(c.dtype)
    total = product + c
    if c.dtype.kind == "u":
        return total, total < c
    return total, ((product >= 0) == (c >= 0)) & ((total >= 0) != (c >= 0))


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
    if half and insn.fields["opsel"] or insn.fields["clmp"]:
        raise insn.unknown("modifier")

    def step(wave: Wave) -> None:
        a, b, c = first(wave), second(wave), third(wave)
        terms = [
            (a if term & 4 else ~a) & (b if term & 2 else ~b) & (c if term & 1 else ~c) for term in range(8) if table >> term & 1
        ]
        value = terms[0] if terms else a & ~a
        for term in terms[1:]:
            value = value | term
        wave.v["u4"][row] = np.where(wave.active, value, wave.v["u4"][row])

    return step


def fma_mix(insn: Instruction) -> Step:
    """v_fma_mix (the decoder says v_mad_mix): a fused multiply-add whose sources are float32 or, by op_sel, a half of a float16 pair."""
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
    function = _PLAIN.get(name) or _WITH_VCC.get(name) or _WITH_MASK.get(name)
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
    return with_dpp(insn, reads[0], _first_given(function, reads[1:], put)) if insn.dpp else step_of(function, reads, put)


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


def _first_given(function: Callable[..., Any], reads: list[Read], put: Callable[[Wave, Any], None]) -> Callable[[Wave, Any], None]:
    return lambda wave, value: put(wave, function(value, *[read(wave) for read in reads]))
