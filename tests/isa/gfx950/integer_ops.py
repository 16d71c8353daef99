"""Moves and integer vector arithmetic: one line an instruction.

A function gets its sources as arrays of the operand's number format (see sources.py) and returns the result. Arithmetic
wraps as numpy's does.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from .formats import Array
from .wave import LANES


def _median_int(a: Any, b: Any, c: Any) -> Any:
    return np.maximum(np.minimum(a, b), np.minimum(np.maximum(a, b), c))


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


def _dot_int(a: Any, b: Any, c: Any) -> Any:
    return (c + (a.astype(np.int64) * b).sum(0)).astype(c.dtype)


def _mul_hi(a: Any, b: Any) -> Any:
    wide = np.int64 if a.dtype.kind == "i" else np.uint64
    return a.astype(wide) * b.astype(wide) >> wide(32)


def _stack(*values: Any) -> Array:
    return np.stack(np.broadcast_arrays(*values))


INTEGER: dict[str, Callable[..., Any]] = {
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
    # arithmetic
    **{
        f"v_{prefix}{name}_{kind}": function
        for name, function in (("max", np.maximum), ("min", np.minimum))
        for prefix, kinds in (("", ("u16", "i16", "u32", "i32")), ("pk_", ("u16", "i16")))
        for kind in kinds
    },
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
    "v_mad_legacy_u16": lambda a, b, c: a * b + c,
    "v_max3_u32": lambda a, b, c: np.maximum(np.maximum(a, b), c),
    "v_max3_i32": lambda a, b, c: np.maximum(np.maximum(a, b), c),
    "v_min3_u32": lambda a, b, c: np.minimum(np.minimum(a, b), c),
    "v_min3_i32": lambda a, b, c: np.minimum(np.minimum(a, b), c),
    "v_med3_u32": _median_int,
    "v_med3_i32": _median_int,
    "v_sad_u32": lambda a, b, c: np.maximum(a, b) - np.minimum(a, b) + c,
    "v_dot4_i32_i8": _dot_int,
    "v_dot4_u32_u8": _dot_int,
    "v_dot2_i32_i16": _dot_int,
    "v_dot2_u32_u16": _dot_int,
    "v_pk_add_u16": lambda a, b: a + b,
    "v_pk_sub_u16": lambda a, b: a - b,
    "v_pk_add_i16": lambda a, b: a + b,
    "v_pk_sub_i16": lambda a, b: a - b,
    "v_pk_mul_lo_u16": lambda a, b: a * b,
    "v_pk_mad_u16": lambda a, b, c: a * b + c,
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
}
