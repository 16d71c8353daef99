"""What is known of lane masks in scalar registers along a path.

LLVM gives control flow a structure by flags: a block sets ``s[4:5]`` to 0 or -1, and blocks further down branch on it.
A path that contradicts such a flag cannot be taken. The same holds for EXEC: a wave starts with active lanes, and
those that it parts from at a branch come back where it ors a mask into EXEC.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import Enum, auto

from .decode import EXEC, VCC, File, Instruction, Operand

_WORD_BITS = 32
# codes of the constants 0 and -1
_ZERO, _MINUS_ONE = 128, 193


class Mask(Enum):
    """A 64-bit scalar of which something is known: no lane, every lane, at least one lane."""

    NONE = auto()
    ALL = auto()
    SOME = auto()


Flags = frozenset[tuple[int, Mask]]
"""Known masks by the number of their first register."""

AT_START: Flags = frozenset({(EXEC, Mask.SOME)})


def after(insn: Instruction, flags: Flags) -> Flags:
    """The flags after an instruction."""
    changed = written(insn)
    if not changed:
        return flags
    known = {register: mask for register, mask in flags if register not in changed}
    result = _result(insn, dict(flags))
    if result is not None:
        known[insn.operands["sdst"].index] = result
    return frozenset(known.items())


def written(insn: Instruction) -> set[int]:
    """Registers whose mask an instruction changes, wholly or in one word."""
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
    return {register for first, count in words for register in range(first - 1, first + count)}


def read(insn: Instruction) -> set[int]:
    """Registers whose mask decides what an instruction does to the flags, or where it branches."""
    if insn.mnemonic in _BRANCHES:
        return {_BRANCHES[insn.mnemonic][0]}
    if _operation(insn) is None:
        return set()
    return {operand.index for operand in insn.sources if operand.file is File.SCALAR}


def branches(insn: Instruction, flags: Flags) -> list[tuple[bool, Flags]]:
    """Whether an instruction may jump, may not, or both, and what is then known."""
    if insn.mnemonic not in _BRANCHES:
        return [(True, flags), (False, flags)]
    register, jumps_on_none = _BRANCHES[insn.mnemonic]
    mask = dict(flags).get(register)
    if mask is not None:
        return [((mask is Mask.NONE) == jumps_on_none, flags)]
    found = {jumps_on_none: Mask.NONE, not jumps_on_none: Mask.SOME}
    return [(jumps, flags | {(register, found[jumps])}) for jumps in (True, False)]


def _operation(insn: Instruction) -> str | None:
    name = insn.mnemonic.removeprefix("s_").removesuffix("_b64")
    return name if insn.mnemonic == f"s_{name}_b64" and (name in _UNARY or name in _BINARY) else None


def _result(insn: Instruction, known: Mapping[int, Mask]) -> Mask | None:
    operation = _operation(insn)
    if operation is None:
        return None
    if operation == "or" and insn.operands["sdst"].index == EXEC:
        return Mask.SOME
    sources = [_mask(operand, known) for operand in insn.sources]
    return _UNARY[operation](*sources) if operation in _UNARY else _BINARY[operation](*sources)


def _mask(operand: Operand, known: Mapping[int, Mask]) -> Mask | None:
    if operand.file is File.CONSTANT:
        return {_ZERO: Mask.NONE, _MINUS_ONE: Mask.ALL}.get(operand.index)
    return known.get(operand.index)


def _not(mask: Mask | None) -> Mask | None:
    return {Mask.NONE: Mask.ALL, Mask.ALL: Mask.NONE}.get(mask) if mask else None


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


# the mask that a branch looks at, and whether it jumps when that is empty
_BRANCHES = {
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
