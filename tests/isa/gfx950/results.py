"""Binds the destination of a vector instruction: a function that stores a value into a wave's active lanes.

Narrow floating-point formats are rounded to nearest even when stored.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from .decode import Instruction, Operand
from .formats import ENCODE, Array, Format
from .sources import SDWA_WIDTH_AND_PART
from .wave import LANES, MODE_FP16_OVERFLOW, Wave, mask_of

Store = Callable[[Wave, Any], None]

_SDWA_PRESERVE = 2
# 16-bit results that leave the other half of the register alone; all others clear it (LLVM
# GCNSubtarget::zeroesHigh16BitsOfDest)
_KEEPS_HALF = {"v_fma_f16"}


def store(insn: Instruction) -> Store:
    """Store the result of a vector instruction into ``vdst``, in the active lanes, output modifiers applied."""
    operand = insn.operands["vdst"]
    form = Format(operand.format)
    put = _sdwa_store(insn, operand, form) if insn.sdwa else _plain_store(insn, operand, form)
    omod, clamp = insn.fields.get("omod", 0), insn.fields.get("clmp", 0)
    if not (omod or clamp):
        return put
    if not form.is_float:
        limits = np.iinfo(form.storage)
        return lambda wave, value: put(wave, np.clip(value, limits.min, limits.max))
    factor = np.float32((1.0, 2.0, 4.0, 0.5)[omod])

    def modified(wave: Wave, value: Any) -> None:
        scaled = value * factor.astype(value.dtype)
        # fmax turns NaN into 0, as the clamp of the hardware does
        put(wave, np.fmin(np.fmax(scaled, 0), 1) if clamp else scaled)

    return modified


def _unchanged(values: Any, saturate: bool) -> Any:
    return values


def _plain_store(insn: Instruction, operand: Operand, form: Format) -> Store:
    row, kind, count, width = operand.index, form.storage, form.count, form.bits * form.count
    if form.bits == 64:

        def store_wide(wave: Wave, value: Any) -> None:
            bits = np.asarray(value, kind).view("u8")
            assign(wave.v["u4"][row], bits & np.uint64(0xFFFFFFFF), wave.mask)
            assign(wave.v["u4"][row + 1], bits >> np.uint64(32), wave.mask)

        return store_wide
    if form.bits == 32:
        rows = slice(row, row + count) if form.packed else row
        return lambda wave, value: assign(wave.v[kind][rows], value, wave.mask)
    encode: Callable[[Any, bool], Any] = ENCODE.get(form.element, _unchanged)
    if form.bits == 4:
        part = insn.fields["opsel"] >> 2

        def store_nibbles(wave: Wave, value: Any) -> None:
            low, high = encode(value, True)
            assign(wave.v["u1"][row, part::4], low | high << 4, wave.mask)

        return store_nibbles
    step = 32 // form.bits
    opsel = insn.fields.get("opsel", 0) if insn.encoding == "VOP3" else 0
    part = {32: 0, 16: opsel >> 3, 8: opsel >> 2}[width]
    clear = width == 16 and not form.packed and insn.mnemonic not in _KEEPS_HALF
    if clear and part:
        raise insn.unknown("16-bit result in the high half")

    def store_part(wave: Wave, value: Any) -> None:
        if clear:
            assign(wave.v["u2"][row, 1::2], np.uint16(0), wave.mask)
        columns = wave.v[kind][row].reshape(LANES, step).T[part * count : (part + 1) * count]
        assign(columns, encode(value, bool(wave.mode & MODE_FP16_OVERFLOW)), wave.mask)

    return store_part


def _sdwa_store(insn: Instruction, operand: Operand, form: Format) -> Store:
    fields, row = insn.fields, operand.index
    bits, part = SDWA_WIDTH_AND_PART[fields.get("dst_sel", 6)]
    if bits == 32 or form.packed:
        return _plain_store(insn, operand, form)
    if fields["dst_unused"] not in (0, _SDWA_PRESERVE):
        raise insn.unknown("sign-extended sub-dword result")
    preserve = fields["dst_unused"] == _SDWA_PRESERVE
    step = 32 // bits

    def store_part(wave: Wave, value: Any) -> None:
        narrow = np.ascontiguousarray(np.broadcast_to(value, LANES).astype(form.storage)).view(f"u{bits // 8}")
        if not preserve:
            assign(wave.v["u4"][row], np.uint32(0), wave.mask)
        assign(wave.v[f"u{bits // 8}"][row, part::step], narrow[:: len(narrow) // LANES], wave.mask)

    return store_part


def assign(target: Array, value: Any, mask: Array | None) -> None:
    """Write `value` where `mask` is set (None: everywhere), converting as C does."""
    if mask is None:
        target[...] = value
    else:
        np.copyto(target, value, where=mask, casting="unsafe")


def store_mask(register: int) -> Store:
    """Store a bool [64] as a lane mask in a scalar register pair; inactive lanes get 0."""

    def put(wave: Wave, value: Any) -> None:
        lanes = np.broadcast_to(value, LANES)
        wave.set_scalar(register, mask_of(lanes if wave.mask is None else lanes & wave.mask), 2)

    return put
