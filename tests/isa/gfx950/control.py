"""Program control: branches, barriers, waits, clocks, hardware registers, and what has no effect in this model.

Waits and cache maintenance do nothing, because every memory access completes at once and there are no caches; hazards
and priorities do nothing because there is no timing. They are still counted, with their scope bits.
"""

from __future__ import annotations

from collections.abc import Callable

from .decode import WORD_BYTES, Instruction
from .errors import TrapError
from .lanes import Step
from .sources import signed
from .wave import MODE_FP16_OVERFLOW, Status, Wave

_NO_EFFECT = {
    "s_nop",
    "s_waitcnt",
    "s_setprio",
    "buffer_inv",
    "buffer_wbl2",
}
_CONDITIONS: dict[str, Callable[[Wave], bool]] = {
    "s_branch": lambda wave: True,
    "s_cbranch_scc0": lambda wave: not wave.scc,
    "s_cbranch_scc1": lambda wave: bool(wave.scc),
    "s_cbranch_vccz": lambda wave: wave.vcc == 0,
    "s_cbranch_vccnz": lambda wave: wave.vcc != 0,
    "s_cbranch_execz": lambda wave: wave.exec == 0,
    "s_cbranch_execnz": lambda wave: wave.exec != 0,
}
_STATUS = {"s_endpgm": Status.ENDED, "s_sleep": Status.YIELDED}

# hardware registers: rounding and denormal modes, and the XCD that runs the workgroup
_MODE, _XCC_ID = 1, 20
_XCDS = 8


def bind(insn: Instruction) -> Step | None:
    """The step of a control instruction, or None for any other."""
    name = insn.mnemonic
    if name in _NO_EFFECT:
        return lambda wave: None
    if name in _CONDITIONS:
        return _branch(insn, _CONDITIONS[name])
    if name in _STATUS:
        return _set_status(_STATUS[name])
    build = _OTHER.get(name)
    return build(insn) if build else None


def branch_target(insn: Instruction) -> int:
    """The address that a relative branch goes to."""
    return insn.address + insn.size + signed(insn.fields["simm16"], 16) * WORD_BYTES


def _branch(insn: Instruction, condition: Callable[[Wave], bool]) -> Step:
    target = branch_target(insn)

    def step(wave: Wave) -> None:
        if condition(wave):
            wave.pc = target

    return step


def _set_status(status: Status) -> Step:
    def step(wave: Wave) -> None:
        wave.status = status

    return step


def _barrier(insn: Instruction) -> Step:
    def step(wave: Wave) -> None:
        wave.barriers += 1
        wave.status = Status.AT_BARRIER

    return step


def _get_pc(insn: Instruction) -> Step:
    register, following = insn.operands["sdst"].index, insn.address + insn.size
    return lambda wave: wave.set_scalar(register, wave.workgroup.rank.module.base + following, 2)


def _clock(insn: Instruction) -> Step:
    """A clock that every executed wave instruction of the machine advances by one."""
    register = insn.operands["sdata"].index
    return lambda wave: wave.set_scalar(register, wave.workgroup.rank.clock.now, 2)


def _register_field(insn: Instruction) -> tuple[int, int, int]:
    """Number, bit offset and value mask of a hardware register operand."""
    control = insn.fields["simm16"]
    return control & 0x3F, control >> 6 & 0x1F, (1 << (control >> 11) + 1) - 1


def _get_register(insn: Instruction) -> Step:
    number, offset, mask = _register_field(insn)
    target = insn.operands["sdst"].index

    def value(wave: Wave) -> int:
        if number == _XCC_ID:
            return wave.workgroup.number % _XCDS
        raise insn.unknown(f"hardware register {number}")

    return lambda wave: wave.set_scalar(target, value(wave) >> offset & mask)


def _set_register(insn: Instruction) -> Step:
    """Of MODE only the bit that makes narrow conversions saturate may change."""
    number, offset, mask = _register_field(insn)
    value = insn.fields["literal"]

    def step(wave: Wave) -> None:
        mode = wave.mode & ~(mask << offset) | (value & mask) << offset
        if number != _MODE or (mode ^ wave.mode) & ~MODE_FP16_OVERFLOW:
            raise insn.unknown(f"hardware register {number} set to {mode:#x}")
        wave.mode = mode

    return step


def _trap(insn: Instruction) -> Step:
    def step(wave: Wave) -> None:
        raise TrapError(f"s_trap {insn.fields['simm16']}")

    return step


_OTHER: dict[str, Callable[[Instruction], Step]] = {
    "s_barrier": _barrier,
    "s_getpc_b64": _get_pc,
    "s_memtime": _clock,
    "s_memrealtime": _clock,
    "s_getreg_b32": _get_register,
    "s_setreg_imm32_b32": _set_register,
    "s_trap": _trap,
}
