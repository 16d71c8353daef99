"""Binds the sources of an instruction: each becomes a function that reads its value from a wave.

A vector value is an array [64] of the operand's number format, a packed one (``PK2_F16``) an array [n, 64]; a scalar
register or a constant is a numpy scalar of that format, which broadcasts. Narrow floating-point formats are read as
float32. A scalar value is a Python int, signed if the format is.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any

import numpy as np

from .decode import LITERAL, File, Instruction, Operand
from .formats import DECODE, Array, Format, bf16_encode
from .wave import LANES, Wave, lanes_of

Read = Callable[[Wave], Any]
ReadScalar = Callable[[Wave], int]

MASK64 = (1 << 64) - 1
_FIRST_INLINE, _LAST_POSITIVE, _LAST_INLINE = 128, 192, 208
_INLINE_FLOATS = {
    240: 0.5,
    241: -0.5,
    242: 1.0,
    243: -1.0,
    244: 2.0,
    245: -2.0,
    246: 4.0,
    247: -4.0,
    248: 0.15915494309189535,
}
_SHARED_BASE, _VCCZ, _EXECZ, _SCC = 235, 251, 252, 253
# where LDS would appear in the flat address space; nothing is mapped there, so a flat access to LDS faults
_SHARED_APERTURE = 0x0001_0000 << 32
# sub-dword selectors: bytes 0..3, words 0..1, the whole register
SDWA_WIDTH_AND_PART = {**{i: (8, i) for i in range(4)}, 4: (16, 0), 5: (16, 1), 6: (32, 0)}


def source(insn: Instruction, position: int) -> Read:
    """Read source `position` of a vector instruction, its modifiers applied."""
    operand = insn.sources[position]
    form = Format(operand.format)
    if form.element == "M64":
        return _mask_source(operand)
    if insn.sdwa and position < 2:
        read = _sdwa_source(insn, operand, form, position)
    elif form.packed and form.bits < 32 and form.count * form.bits == 32:
        read = _packed_source(insn, operand, form, position)
    elif form.packed and form.bits == 32 and form.count == 2:
        read = _pair_source(insn, operand, form, position)
    else:
        read = plain_source(insn, operand, _part(insn, form, position))
    return _modified(insn, read, form, position)


def plain_source(insn: Instruction, operand: Operand, part: int = 0) -> Read:
    """Read an operand without modifiers; `part` counts elements of a sub-dword format."""
    form = Format(operand.format)
    decode = DECODE.get(form.element)
    if operand.file is File.VECTOR:
        raw = _vector_raw(operand.index, form, part)
    elif operand.file is File.SCALAR:
        raw = _scalar_raw(operand.index, form, part)
    else:
        value = _constant(insn, operand.index, form) if part == 0 else np.zeros((), form.storage)[()]
        raw = lambda wave: value  # noqa: E731
    if decode is None:
        return raw
    return lambda wave: decode(raw(wave))


def _vector_raw(row: int, form: Format, part: int) -> Read:
    kind, count = form.storage, form.count
    if form.bits == 64:
        return lambda wave: (wave.v["u4"][row + 1].astype("u8") << 32 | wave.v["u4"][row]).view(kind)
    if form.bits == 32:
        return (lambda wave: wave.v[kind][row : row + count]) if form.packed else (lambda wave: wave.v[kind][row])
    if form.bits == 4:
        return lambda wave: np.stack([wave.v["u1"][row, part::4] & 15, wave.v["u1"][row, part::4] >> 4])
    step = 32 // form.bits
    if form.packed:
        return lambda wave: wave.v[kind][row].reshape(LANES, step).T[part * count : (part + 1) * count]
    return lambda wave: wave.v[kind][row, part::step]


def _scalar_raw(register: int, form: Format, part: int) -> Read:
    kind = form.storage
    if form.bits == 64:
        return lambda wave: np.uint64(wave.s[register] | wave.s[register + 1] << 32).view(kind)
    if form.bits == 32 and not form.packed:
        return lambda wave: np.uint32(wave.s[register]).view(kind)
    if form.bits == 16 and not form.packed:
        return lambda wave: np.uint16(wave.s[register] >> 16 * part & 0xFFFF).view(kind)
    if form.bits == 8 and not form.packed:
        return lambda wave: np.uint8(wave.s[register] >> 8 * part & 0xFF).view(kind)
    words = -(-form.bits * form.count // 32)
    count = form.count

    def packed(wave: Wave) -> Array:
        file = np.array(wave.s[register : register + words], np.uint32).view(kind)
        return file[part * count : (part + 1) * count, None]

    return packed


def _constant(insn: Instruction, code: int, form: Format) -> Any:
    if code == LITERAL:
        literal = insn.fields["literal"]
        if form.bits == 64:
            wide = (
                literal << 32 if form.is_float else literal - (literal >> 31 << 32) & MASK64 if form.signed else literal
            )
            return np.uint64(wide).view(form.storage)
        return _from_bits(literal, form)
    if _FIRST_INLINE <= code <= _LAST_INLINE:
        integer = code - _FIRST_INLINE if code <= _LAST_POSITIVE else _LAST_POSITIVE - code
        return _from_bits(integer & MASK64, form)
    if code in _INLINE_FLOATS:
        return _from_bits(_float_bits(_INLINE_FLOATS[code], form), form)
    raise insn.unknown(f"source code {code}")


def _float_bits(value: float, form: Format) -> int:
    if form.element == "BF16":
        return int(bf16_encode(np.float32(value)))
    code = {64: "<d", 16: "<e"}.get(form.bits, "<f")
    return int.from_bytes(struct.pack(code, value), "little")


def _from_bits(bits: int, form: Format) -> Any:
    """A constant: packed formats hold it in the low element and zero above."""
    width = max(form.bits, 8)
    if not form.packed:
        return np.array(bits & (1 << width) - 1, f"u{width // 8}").view(form.storage)[()]
    total = form.count * form.bits // 8
    return np.frombuffer((bits & (1 << 32) - 1).to_bytes(max(total, 4), "little"), form.storage)[: form.count, None]


def _mask_source(operand: Operand) -> Read:
    read = scalar_bits(operand.index)
    return lambda wave: lanes_of(read(wave))


def _part(insn: Instruction, form: Format, position: int) -> int:
    """Which part of the register a sub-dword source is (VOP3 op_sel)."""
    opsel = insn.fields.get("opsel", 0)
    if insn.encoding != "VOP3" or form.bits * form.count >= 32:
        return 0
    if form.bits * form.count == 16:
        return opsel >> position & 1
    return opsel & 3 if position == 0 else 0


def _selectors(insn: Instruction, position: int) -> list[int]:
    """VOP3P: which element of the source the low and the high half of the operation use."""
    if insn.encoding != "VOP3P":
        return [0, 1]
    high = insn.fields["opsel_hi"] | insn.fields["opsel_hi2"] << 2
    return [insn.fields["opsel"] >> position & 1, high >> position & 1]


def _packed_source(insn: Instruction, operand: Operand, form: Format, position: int) -> Read:
    read = plain_source(insn, operand)
    select = _selectors(insn, position) if form.count == 2 else [*range(form.count)]
    return read if select == [*range(form.count)] else lambda wave: read(wave)[select]


def _pair_source(insn: Instruction, operand: Operand, form: Format, position: int) -> Read:
    """Two 32-bit elements in a register pair."""
    select = _selectors(insn, position)
    read = plain_source(insn, operand)
    # whether the high half repeats a constant or is 0 is not documented; of 0 it makes no difference
    if operand.file is File.CONSTANT and operand.index != _FIRST_INLINE and any(select):
        raise insn.unknown("high half of a constant")
    return read if select == [0, 1] else lambda wave: read(wave)[select]


def _sdwa_source(insn: Instruction, operand: Operand, form: Format, position: int) -> Read:
    bits, part = SDWA_WIDTH_AND_PART[insn.fields[f"src{position}_sel"]]
    extend = insn.fields[f"src{position}_sext"]
    if form.bits * form.count <= bits or form.packed:
        return plain_source(insn, operand, part * bits // (form.bits * form.count))
    part_form = f"{'I' if extend else 'U'}{bits}"
    read = plain_source(insn, Operand(operand.file, operand.index, part_form, bits), part)
    wide = f"{'i' if extend else 'u'}{form.bits // 8}"
    return lambda wave: read(wave).astype(wide).view(form.storage)


def _modified(insn: Instruction, read: Read, form: Format, position: int) -> Read:
    """Apply absolute value and negation."""
    fields = insn.fields
    if insn.encoding == "VOP3P":
        signs = [fields.get("neg", 0) >> position & 1, fields.get("neg_hi", 0) >> position & 1]
        if not any(signs):
            return read
        factor = np.array([-1.0 if s else 1.0 for s in signs], "f4")[:, None]
        return lambda wave: read(wave) * factor.astype(form.storage) if form.packed else -read(wave)
    absolute = fields.get("abs", 0) >> position & 1 or fields.get(f"src{position}_abs", 0)
    negative = fields.get("neg", 0) >> position & 1 or fields.get(f"src{position}_neg", 0)
    if not (absolute or negative):
        return read
    sign = np.uint32(0x8000_0000)
    if not form.is_float and form.bits != 32:
        raise insn.unknown("sign modifier on an integer")

    def modified(wave: Wave) -> Any:
        value = read(wave)
        if form.is_float:
            value = np.abs(value) if absolute else value
            return -value if negative else value
        value = value & ~sign if absolute else value
        return value ^ sign if negative else value

    return modified


def scalar_source(insn: Instruction, operand: Operand) -> ReadScalar:
    """Read a scalar operand as a Python int."""
    form = Format(operand.format)
    bits = form.bits
    if operand.file is File.CONSTANT and operand.index >= _FIRST_INLINE and operand.index not in _SPECIAL:
        value = int(_constant(insn, operand.index, form).view(f"u{bits // 8}"))
        value = value - (1 << bits) if form.signed and value >> bits - 1 else value
        return lambda wave: value
    read = scalar_bits(operand.index)
    if bits == 64:
        return read if not form.signed else lambda wave: signed(read(wave), 64)
    mask = (1 << bits) - 1
    register = operand.index
    if operand.file is File.SCALAR and bits == 32:
        return (lambda wave: signed(wave.s[register], 32)) if form.signed else (lambda wave: wave.s[register])
    return (lambda wave: signed(read(wave) & mask, bits)) if form.signed else (lambda wave: read(wave) & mask)


_SPECIAL: dict[int, ReadScalar] = {
    _SHARED_BASE: lambda wave: _SHARED_APERTURE,
    _VCCZ: lambda wave: int(wave.vcc == 0),
    _EXECZ: lambda wave: int(wave.exec == 0),
    _SCC: lambda wave: wave.scc,
}


def scalar_bits(code: int) -> ReadScalar:
    """Read 64 bits from a scalar source code."""
    if code in _SPECIAL:
        return _SPECIAL[code]
    if code >= _FIRST_INLINE:
        value = code - _FIRST_INLINE if code <= _LAST_POSITIVE else _LAST_POSITIVE - code & MASK64
        return lambda wave: value
    return lambda wave: wave.s[code] | wave.s[code + 1] << 32


def signed(value: int, bits: int) -> int:
    """The two's complement value of the low `bits` bits."""
    value &= (1 << bits) - 1
    return value - (1 << bits) if value >> bits - 1 else value
