"""Scalar instructions: arithmetic, comparisons, moves and EXEC manipulation, one line an instruction.

Values are Python ints, signed where the operand's format is; a result is cut to the destination's width.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

from .decode import EXEC, Instruction
from .formats import Format
from .lanes import Step
from .sources import ReadScalar, scalar_source, signed
from .wave import MASK32, Wave

_MASK64 = (1 << 64) - 1
_WORDS = {"b32": 1, "b64": 2}


def _overflows(value: int) -> bool:
    return not -(1 << 31) <= value < 1 << 31


def _unsigned_carry(value: int) -> tuple[int, bool]:
    """A sum or difference of words, and its carry or borrow."""
    return value, not 0 <= value <= MASK32


def _signed_overflow(value: int) -> tuple[int, bool]:
    return value, _overflows(value)


def _field(value: int, control: int, bits: int) -> int:
    """Bit field of a value: offset in the low bits of `control`, width from bit 16."""
    offset, width = control & bits - 1, control >> 16 & 0x7F
    return (value & (1 << bits) - 1) >> offset & (1 << width) - 1


def _signed_field(value: int, control: int, bits: int) -> int:
    width = control >> 16 & 0x7F
    return signed(value >> (control & bits - 1), width) if width else 0


def _first_bit(value: int) -> int:
    return (value & -value).bit_length() - 1


def _leading_zeros(value: int, bits: int) -> int:
    return bits - value.bit_length() if value else -1


def _leading_signs(value: int, bits: int) -> int:
    """How many leading bits equal the sign, -1 if all do."""
    magnitude = ~value if value < 0 else value
    return bits - magnitude.bit_length() if magnitude else -1


# result and SCC
_WITH_SCC: dict[str, Callable[..., tuple[int, bool]]] = {
    "s_add_u32": lambda a, b: _unsigned_carry(a + b),
    "s_sub_u32": lambda a, b: _unsigned_carry(a - b),
    "s_add_i32": lambda a, b: _signed_overflow(a + b),
    "s_sub_i32": lambda a, b: _signed_overflow(a - b),
    "s_lshl1_add_u32": lambda a, b: _unsigned_carry((a << 1) + b),
    "s_lshl2_add_u32": lambda a, b: _unsigned_carry((a << 2) + b),
    "s_lshl3_add_u32": lambda a, b: _unsigned_carry((a << 3) + b),
    "s_lshl4_add_u32": lambda a, b: _unsigned_carry((a << 4) + b),
    "s_min_i32": lambda a, b: (min(a, b), a < b),
    "s_min_u32": lambda a, b: (min(a, b), a < b),
    "s_max_i32": lambda a, b: (max(a, b), a >= b),
    "s_max_u32": lambda a, b: (max(a, b), a >= b),
}
# the same, reading SCC as a third source
_FROM_SCC: dict[str, Callable[..., tuple[int, bool | int]]] = {
    "s_addc_u32": lambda a, b, scc: _unsigned_carry(a + b + scc),
    "s_subb_u32": lambda a, b, scc: _unsigned_carry(a - b - scc),
    "s_cselect_b32": lambda a, b, scc: (a if scc else b, scc),
    "s_cselect_b64": lambda a, b, scc: (a if scc else b, scc),
}
# SCC = the result is not 0
_LOGIC: dict[str, Callable[..., int]] = {
    **{
        f"s_{name}_{bits}": function
        for bits in _WORDS
        for name, function in (
            ("and", lambda a, b: a & b),
            ("or", lambda a, b: a | b),
            ("xor", lambda a, b: a ^ b),
            ("nand", lambda a, b: ~(a & b)),
            ("nor", lambda a, b: ~(a | b)),
            ("xnor", lambda a, b: ~(a ^ b)),
            ("andn2", lambda a, b: a & ~b),
            ("orn2", lambda a, b: a | ~b),
            ("not", lambda a: ~a),
        )
    },
    "s_lshl_b32": lambda a, b: a << (b & 31),
    "s_lshr_b32": lambda a, b: a >> (b & 31),
    "s_ashr_i32": lambda a, b: a >> (b & 31),
    "s_lshl_b64": lambda a, b: a << (b & 63),
    "s_lshr_b64": lambda a, b: a >> (b & 63),
    "s_ashr_i64": lambda a, b: a >> (b & 63),
    "s_bfe_u32": lambda a, b: _field(a, b, 32),
    "s_bfe_i32": lambda a, b: _signed_field(a, b, 32),
    "s_bfe_u64": lambda a, b: _field(a, b, 64),
    "s_bfe_i64": lambda a, b: _signed_field(a, b, 64),
    "s_abs_i32": abs,
    "s_absdiff_i32": lambda a, b: abs(a - b),
    "s_bcnt1_i32_b32": int.bit_count,
    "s_bcnt1_i32_b64": int.bit_count,
    "s_bcnt0_i32_b32": lambda a: 32 - a.bit_count(),
}
# SCC untouched
_PLAIN: dict[str, Callable[..., int]] = {
    "s_mov_b32": lambda a: a,
    "s_mov_b64": lambda a: a,
    "s_movk_i32": lambda k: k,
    "s_mul_i32": operator.mul,
    "s_mul_hi_u32": lambda a, b: a * b >> 32,
    "s_mul_hi_i32": lambda a, b: a * b >> 32,
    "s_bfm_b32": lambda a, b: (1 << (a & 31)) - 1 << (b & 31),
    "s_bfm_b64": lambda a, b: (1 << (a & 63)) - 1 << (b & 63),
    "s_brev_b32": lambda a: int(f"{a:032b}"[::-1], 2),
    "s_brev_b64": lambda a: int(f"{a:064b}"[::-1], 2),
    "s_ff1_i32_b32": _first_bit,
    "s_ff1_i32_b64": _first_bit,
    "s_ff0_i32_b32": lambda a: _first_bit(~a & MASK32),
    "s_flbit_i32_b32": lambda a: _leading_zeros(a, 32),
    "s_flbit_i32_b64": lambda a: _leading_zeros(a, 64),
    "s_flbit_i32": lambda a: _leading_signs(a, 32),
    "s_sext_i32_i8": lambda a: a,
    "s_sext_i32_i16": lambda a: a,
    "s_pack_ll_b32_b16": lambda a, b: a | b << 16,
    "s_pack_lh_b32_b16": lambda a, b: a | b & 0xFFFF0000,
    "s_pack_hh_b32_b16": lambda a, b: a >> 16 | b & 0xFFFF0000,
}
# the destination is also the first source
_UPDATE: dict[str, Callable[..., int]] = {
    "s_bitset0_b32": lambda old, a: old & ~(1 << (a & 31)),
    "s_bitset1_b32": lambda old, a: old | 1 << (a & 31),
    "s_mulk_i32": operator.mul,
}
_CONDITIONAL_MOVE = ("s_cmov_b32", "s_cmov_b64", "s_cmovk_i32")
# new EXEC from the source and the old EXEC; the old one goes to the destination
_SAVE_EXEC: dict[str, Callable[[int, int], int]] = {
    "and": lambda s, e: s & e,
    "or": lambda s, e: s | e,
    "xor": lambda s, e: s ^ e,
    "nand": lambda s, e: ~(s & e),
    "nor": lambda s, e: ~(s | e),
    "xnor": lambda s, e: ~(s ^ e),
    "andn1": lambda s, e: ~s & e,
    "andn2": lambda s, e: s & ~e,
    "orn1": lambda s, e: ~s | e,
    "orn2": lambda s, e: s | ~e,
}
_COMPARE: dict[str, Callable[[Any, Any], bool]] = {
    "eq": operator.eq,
    "lg": operator.ne,
    "gt": operator.gt,
    "ge": operator.ge,
    "lt": operator.lt,
    "le": operator.le,
}


def bind(insn: Instruction) -> Step | None:
    """The step of a scalar arithmetic instruction, or None for any other."""
    name = insn.mnemonic
    if not name.startswith("s_"):
        return None
    if name.startswith(("s_cmp_", "s_cmpk_")):
        return _comparison(insn)
    if name.startswith("s_bitcmp"):
        return _bit_test(insn)
    if name.endswith("_saveexec_b64"):
        return _save_exec(insn)
    reads = _reads(insn)
    if name in _WITH_SCC:
        return _with_scc(insn, _WITH_SCC[name], reads)
    if name in _FROM_SCC:
        return _with_scc(insn, _FROM_SCC[name], [*reads, lambda wave: wave.scc])
    if name in _LOGIC:
        return _logic(insn, _LOGIC[name], reads)
    if name in _PLAIN:
        return _plain(insn, _PLAIN[name], reads)
    if name in _UPDATE:
        return _plain(insn, _UPDATE[name], [scalar_source(insn, insn.operands["sdst"]), *reads])
    if name == "s_addk_i32":
        return _with_scc(
            insn, lambda a, b: _signed_overflow(a + b), [scalar_source(insn, insn.operands["sdst"]), *reads]
        )
    if name in _CONDITIONAL_MOVE:
        move = _plain(insn, lambda a: a, reads)
        return lambda wave: move(wave) if wave.scc else None
    return None


def _reads(insn: Instruction) -> list[ReadScalar]:
    if insn.encoding == "SOPK":
        immediate = signed(insn.fields["simm16"], 16)
        return [lambda wave: immediate]
    return [scalar_source(insn, operand) for operand in insn.sources]


def _target(insn: Instruction) -> tuple[int, int, int]:
    """Register, words and value mask of the destination."""
    operand = insn.operands["sdst"]
    bits = Format(operand.format).bits
    return operand.index, bits // 32, (1 << bits) - 1


def _with_scc(insn: Instruction, function: Callable[..., tuple[int, Any]], reads: list[ReadScalar]) -> Step:
    register, words, mask = _target(insn)

    def step(wave: Wave) -> None:
        value, scc = function(*[read(wave) for read in reads])
        wave.set_scalar(register, value & mask, words)
        wave.scc = int(scc)

    return step


def _logic(insn: Instruction, function: Callable[..., int], reads: list[ReadScalar]) -> Step:
    register, words, mask = _target(insn)

    def step(wave: Wave) -> None:
        value = function(*[read(wave) for read in reads]) & mask
        wave.set_scalar(register, value, words)
        wave.scc = int(value != 0)

    return step


def _plain(insn: Instruction, function: Callable[..., int], reads: list[ReadScalar]) -> Step:
    register, words, mask = _target(insn)
    return lambda wave: wave.set_scalar(register, function(*[read(wave) for read in reads]) & mask, words)


def _comparison(insn: Instruction) -> Step | None:
    family, condition, kind = insn.mnemonic.rsplit("_", 2)
    compare = _COMPARE.get(condition)
    if compare is None:
        return None
    if family == "s_cmpk":
        first = scalar_source(insn, insn.operands["sdst"])
        immediate = signed(insn.fields["simm16"], 16) if kind == "i32" else insn.fields["simm16"]
        if kind == "u32":
            unsigned = first
            first = lambda wave: unsigned(wave) & MASK32  # noqa: E731
        second: ReadScalar = lambda wave: immediate  # noqa: E731
    else:
        first, second = _reads(insn)

    def step(wave: Wave) -> None:
        wave.scc = int(compare(first(wave), second(wave)))

    return step


def _bit_test(insn: Instruction) -> Step:
    """s_bitcmp0/1: whether a bit has the value in the name."""
    value, bit = _reads(insn)
    wanted = int(insn.mnemonic[len("s_bitcmp")])
    bits = int(insn.mnemonic[-2:])

    def step(wave: Wave) -> None:
        wave.scc = int(value(wave) >> (bit(wave) & bits - 1) & 1 == wanted)

    return step


def _save_exec(insn: Instruction) -> Step | None:
    function = _SAVE_EXEC.get(insn.mnemonic.removeprefix("s_").removesuffix("_saveexec_b64"))
    if function is None:
        return None
    (read,) = _reads(insn)
    register = insn.operands["sdst"].index

    def step(wave: Wave) -> None:
        old = wave.exec
        new = function(read(wave), old) & _MASK64
        wave.set_scalar(register, old, 2)
        wave.set_scalar(EXEC, new, 2)
        wave.scc = int(new != 0)

    return step
