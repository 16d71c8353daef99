"""What is known of scalar registers along a path: lane masks, and comparisons that were made.

LLVM gives control flow a structure by flags: a block sets ``s[4:5]`` to 0 or -1, or to a comparison's result, and
blocks further down branch on it. A path that contradicts such a flag cannot be taken. The same holds for EXEC: a wave
starts with active lanes, and those that it parts from at a branch come back where it ors a mask into EXEC.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import Enum, auto
from typing import TypeAlias

from .decode import EXEC, LITERAL, VCC, File, Instruction, Operand

_WORD_BITS = 32
# SCC as an operand
SCC = 253
# codes of the constants 0 and -1; 1 to 64 follow the one, -2 to -16 the other
_ZERO, _MINUS_ONE, _LAST_CONSTANT = 128, 193, 208


class Mask(Enum):
    """A 64-bit scalar of which something is known: no lane, every lane, at least one lane. A condition: NONE or ALL."""

    NONE = auto()
    ALL = auto()
    SOME = auto()


Side: TypeAlias = tuple[File, int]
"""A register, or a constant by its value."""
Condition: TypeAlias = tuple[str, Side, Side]
"""``lt`` or ``eq`` with the number format, and its two sides."""
Key: TypeAlias = "int | Condition"
"""The first register of a mask, SCC, or a condition."""
Flags = frozenset[tuple[Key, Mask]]

AT_START: Flags = frozenset({(EXEC, Mask.SOME)})


def after(insn: Instruction, flags: Flags) -> list[Flags]:
    """The flags after an instruction; after a comparison, for either outcome that is possible."""
    changed = written(insn)
    known = {key: mask for key, mask in flags if not changes(changed, key)}
    if compared := _condition(insn):
        condition, is_so = compared
        held = known.get(condition)
        outcomes = (Mask.NONE, Mask.ALL) if held is None else (held,)
        return [
            frozenset({**known, condition: outcome, SCC: outcome if is_so else _INVERSE[outcome]}.items())
            for outcome in outcomes
        ]
    result = _result(insn, dict(flags))
    if result is not None:
        known[insn.operands["sdst"].index] = result
    return [frozenset(known.items())]


def written(insn: Instruction) -> set[int]:
    """The scalar registers that an instruction writes."""
    words = [
        (operand.index, max(1, operand.bits // _WORD_BITS))
        for name, operand in insn.operands.items()
        if name in ("sdst", "sdata", "vdst") and operand.file is File.SCALAR
    ]
    # comparisons and carries in a short encoding name no destination
    if not words and (insn.mnemonic.startswith("v_cmp") or "_co_" in insn.mnemonic):
        words = [(VCC, 2)]
    if "saveexec" in insn.mnemonic or insn.mnemonic.startswith("v_cmpx"):
        words.append((EXEC, 2))
    if insn.encoding in _SCALAR_ARITHMETIC and not insn.mnemonic.startswith(_KEEP_SCC):
        words.append((SCC, 1))
    return {register for first, count in words for register in range(first, first + count)}


def changes(registers: set[int], key: Key) -> bool:
    """Whether writing some registers ends what is known of a mask or condition."""
    if isinstance(key, int):
        return key in registers or (key != SCC and key + 1 in registers)
    return any(file is File.SCALAR and index in registers for file, index in key[1:])


def read(insn: Instruction) -> set[Key]:
    """What decides what an instruction does to the flags, or where it branches."""
    if insn.mnemonic in _BRANCHES:
        return {_BRANCHES[insn.mnemonic][0]}
    if compared := _condition(insn):
        return {compared[0]}
    if insn.mnemonic == "s_cselect_b64":
        return {SCC}
    if _operation(insn) is None:
        return set()
    return {operand.index for operand in insn.sources if operand.file is File.SCALAR}


def branches(insn: Instruction, flags: Flags) -> list[tuple[bool, Flags]]:
    """Whether an instruction may jump, may not, or both, and what is then known."""
    if insn.mnemonic not in _BRANCHES:
        return [(True, flags), (False, flags)]
    key, jumps_on_none = _BRANCHES[insn.mnemonic]
    mask = dict(flags).get(key)
    if mask is not None:
        return [((mask is Mask.NONE) == jumps_on_none, flags)]
    found = {jumps_on_none: Mask.NONE, not jumps_on_none: Mask.ALL if key == SCC else Mask.SOME}
    return [(jumps, flags | {(key, found[jumps])}) for jumps in (True, False)]


def _condition(insn: Instruction) -> tuple[Condition, bool] | None:
    """What a 32-bit scalar comparison asks, and whether it asks for that or for its opposite."""
    _, _, comparison = insn.mnemonic.partition("s_cmp_")
    relation, _, kind = comparison.partition("_")
    if kind not in ("i32", "u32"):
        return None
    left, right = (_side(operand, insn) for operand in insn.sources)
    if left is None or right is None:
        return None
    if relation in ("eq", "lg"):
        return ("eq", left, right), relation == "eq"
    if relation in ("gt", "le"):
        # a > b is b < a; with a constant, a > b is not a < b + 1
        if right[0] is File.CONSTANT:
            return (f"lt_{kind}", left, (File.CONSTANT, right[1] + 1)), relation == "le"
        return (f"lt_{kind}", right, left), relation == "gt"
    return (f"lt_{kind}", left, right), relation == "lt"


def _side(operand: Operand, insn: Instruction) -> Side | None:
    if operand.file is not File.CONSTANT:
        return operand.file, operand.index
    if operand.index == LITERAL:
        return File.CONSTANT, insn.fields["literal"]
    if operand.index > _LAST_CONSTANT:
        return None
    value = operand.index - _ZERO if operand.index < _MINUS_ONE else _MINUS_ONE - 1 - operand.index
    return File.CONSTANT, value


def _operation(insn: Instruction) -> str | None:
    name = insn.mnemonic.removeprefix("s_").removesuffix("_b64")
    return name if insn.mnemonic == f"s_{name}_b64" and (name in _UNARY or name in _BINARY) else None


def _result(insn: Instruction, known: Mapping[Key, Mask]) -> Mask | None:
    if insn.mnemonic == "s_cselect_b64" and SCC in known:
        chosen = insn.sources[known[SCC] is Mask.NONE]
        return _mask(chosen, known)
    operation = _operation(insn)
    if operation is None:
        return None
    if operation == "or" and insn.operands["sdst"].index == EXEC:
        return Mask.SOME
    sources = [_mask(operand, known) for operand in insn.sources]
    return _UNARY[operation](*sources) if operation in _UNARY else _BINARY[operation](*sources)


def _mask(operand: Operand, known: Mapping[Key, Mask]) -> Mask | None:
    if operand.file is File.CONSTANT:
        return {_ZERO: Mask.NONE, _MINUS_ONE: Mask.ALL}.get(operand.index)
    return known.get(operand.index)


def _not(mask: Mask | None) -> Mask | None:
    return _INVERSE.get(mask) if mask else None


def _and(a: Mask | None, b: Mask | None) -> Mask | None:
    if Mask.NONE in (a, b):
        return Mask.NONE
    if Mask.ALL in (a, b):
        return b if a is Mask.ALL else a
    return None


def _xor(a: Mask | None, b: Mask | None) -> Mask | None:
    if Mask.NONE in (a, b):
        return b if a is Mask.NONE else a
    if Mask.ALL in (a, b):
        return _not(b if a is Mask.ALL else a)
    return None


def _or(a: Mask | None, b: Mask | None) -> Mask | None:
    if Mask.ALL in (a, b):
        return Mask.ALL
    if Mask.NONE in (a, b):
        return b if a is Mask.NONE else a
    return Mask.SOME if Mask.SOME in (a, b) else None


_INVERSE = {Mask.NONE: Mask.ALL, Mask.ALL: Mask.NONE}
_SCALAR_ARITHMETIC = ("SOP1", "SOP2", "SOPC", "SOPK")
_KEEP_SCC = ("s_mov", "s_mul", "s_cselect", "s_cmov")
# what a branch looks at, and whether it jumps when that is empty or false
_BRANCHES = {
    "s_cbranch_scc0": (SCC, True),
    "s_cbranch_scc1": (SCC, False),
    "s_cbranch_vccz": (VCC, True),
    "s_cbranch_vccnz": (VCC, False),
    "s_cbranch_execz": (EXEC, True),
    "s_cbranch_execnz": (EXEC, False),
}
_UNARY: dict[str, Callable[[Mask | None], Mask | None]] = {"mov": lambda a: a, "not": _not}
_BINARY: dict[str, Callable[[Mask | None, Mask | None], Mask | None]] = {
    "and": _and,
    "or": _or,
    "xor": _xor,
    "andn2": lambda a, b: _and(a, _not(b)),
    "orn2": lambda a, b: _or(a, _not(b)),
    "nand": lambda a, b: _not(_and(a, b)),
    "nor": lambda a, b: _not(_or(a, b)),
    "xnor": lambda a, b: _not(_xor(a, b)),
}
