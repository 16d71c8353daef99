"""Instructions that move values between lanes: DPP, permlane swaps, lane reads and writes, mbcnt.

Sources: AMD CDNA 3 and 4 ISA documents; for DPP row_newbcast, LLVM AMDGPUUsage and the assembler of LLVM 22.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from .decode import File, Instruction
from .formats import Array
from .results import store
from .sources import Read, plain_source, scalar_source, source
from .wave import LANE, LANES, MASK32, Wave

Step = Callable[[Wave], None]

_ROW = 16
_ROW_START, _IN_ROW = LANE // _ROW * _ROW, LANE % _ROW


def dpp_pattern(control: int) -> tuple[Array, Array] | None:
    """Source lane and validity [64] of a DPP control, or None for an unknown one."""
    everywhere = np.ones(LANES, bool)
    amount = control & 0xF
    if control < 0x100:
        quad = np.array([control >> 2 * i & 3 for i in range(4)])
        return LANE // 4 * 4 + quad[LANE % 4], everywhere
    patterns = {
        0x100: (LANE + amount, _IN_ROW + amount < _ROW),  # row_shl
        0x110: (LANE - amount, amount <= _IN_ROW),  # row_shr
        0x120: (_ROW_START + (_IN_ROW - amount) % _ROW, everywhere),  # row_ror
        0x130: (LANE + 1, LANE < LANES - 1),  # wave_shl
        0x134: ((LANE + 1) % LANES, everywhere),  # wave_rol
        0x138: (LANE - 1, LANE > 0),  # wave_shr
        0x13C: ((LANE - 1) % LANES, everywhere),  # wave_ror
        0x140: (_ROW_START + _ROW - 1 - _IN_ROW, everywhere),  # row_mirror
        0x141: (LANE // 8 * 8 + 7 - LANE % 8, everywhere),  # row_half_mirror
        0x142: (_ROW_START - 1, LANE >= _ROW),  # row_bcast:15, the last lane of the row before
        0x143: (np.full(LANES, 31), LANE >= 32),  # row_bcast:31
        0x150: (_ROW_START + amount, everywhere),  # row_newbcast
    }
    shift = control & 0x1F0
    key = shift if shift in (0x100, 0x110, 0x120, 0x150) else control
    if key not in patterns or (shift in (0x100, 0x110, 0x120) and amount == 0):
        return None
    lane, valid = patterns[key]
    return np.where(valid, lane, LANE), valid


def with_dpp(insn: Instruction, read: Read, run: Callable[[Wave, Any], None]) -> Step:
    """Run an instruction with source 0 taken from other lanes.

    A lane whose source is outside the pattern or inactive reads 0 if bound_ctrl is set, and keeps its old result
    otherwise.
    """
    fields = insn.fields
    pattern = dpp_pattern(fields["dpp"])
    if pattern is None:
        raise insn.unknown(f"DPP control {fields['dpp']:#x}")
    lane, inside = pattern
    enabled = (fields["row_mask"] >> LANE // _ROW & 1).astype(bool) & (fields["bank_mask"] >> _IN_ROW // 4 & 1).astype(
        bool
    )
    zero_fill = bool(fields["bc"])

    def step(wave: Wave) -> None:
        old = wave.mask
        valid = inside if old is None else inside & old[lane]
        picked = read(wave)[..., lane]
        written = enabled if zero_fill else enabled & valid
        wave.mask = written if old is None else written & old
        run(wave, np.where(valid, picked, picked.dtype.type(0)))
        wave.mask = old

    return step


def _permlane_swap(insn: Instruction, rows: int) -> Step:
    """Exchange the odd groups of `rows` rows of vdst with the even groups of src0."""
    first, second = insn.operands["vdst"].index, insn.operands["src0"].index
    group = LANE // (rows * _ROW)
    odd, even = np.flatnonzero(group % 2 == 1), np.flatnonzero(group % 2 == 0)

    def step(wave: Wave) -> None:
        if wave.mask is not None:
            raise insn.unknown("permlane swap with inactive lanes")
        file = wave.v["u4"]
        upper = file[first, odd]
        file[first, odd] = file[second, even]
        file[second, even] = upper

    return step


def _read_first_lane(insn: Instruction) -> Step:
    read, target = plain_source(insn, insn.operands["src0"]), insn.operands["vdst"].index

    def step(wave: Wave) -> None:
        lane = (wave.exec & -wave.exec).bit_length() - 1 if wave.exec else 0
        wave.set_scalar(target, int(np.broadcast_to(read(wave), LANES)[lane]))

    return step


def _read_lane(insn: Instruction) -> Step:
    read, target = plain_source(insn, insn.operands["src0"]), insn.operands["vdst"].index
    select = scalar_source(insn, insn.operands["src1"])
    return lambda wave: wave.set_scalar(target, int(read(wave)[select(wave) % LANES]))


def _write_lane(insn: Instruction) -> Step:
    value, select = scalar_source(insn, insn.operands["src0"]), scalar_source(insn, insn.operands["src1"])
    row = insn.operands["vdst"].index

    def step(wave: Wave) -> None:
        wave.v["u4"][row, select(wave) % LANES] = value(wave)

    return step


def _mbcnt(insn: Instruction, shift: int) -> Step:
    """Count the set bits of a mask below each lane; the halves of the mask come one an instruction."""
    mask, addend, put = source(insn, 0), source(insn, 1), store(insn)
    below = np.array([(1 << lane) - 1 >> shift & MASK32 for lane in range(LANES)], np.uint32)
    return lambda wave: put(wave, np.bitwise_count(mask(wave) & below).astype(np.uint32) + addend(wave))


def _swap(insn: Instruction) -> Step:
    first, second = insn.operands["vdst"].index, insn.operands["src0"].index

    def step(wave: Wave) -> None:
        file = wave.v["u4"]
        a, b = file[first].copy(), file[second].copy()
        lanes = wave.active
        file[first], file[second] = np.where(lanes, b, a), np.where(lanes, a, b)

    return step


_LANES: dict[str, Callable[[Instruction], Step]] = {
    "v_permlane16_swap_b32": lambda insn: _permlane_swap(insn, 1),
    "v_permlane32_swap_b32": lambda insn: _permlane_swap(insn, 2),
    "v_readfirstlane_b32": _read_first_lane,
    "v_readlane_b32": _read_lane,
    "v_writelane_b32": _write_lane,
    "v_mbcnt_lo_u32_b32": lambda insn: _mbcnt(insn, 0),
    "v_mbcnt_hi_u32_b32": lambda insn: _mbcnt(insn, 32),
    "v_swap_b32": _swap,
}


def bind(insn: Instruction) -> Step | None:
    """The step of a cross-lane instruction, or None for any other."""
    build = _LANES.get(insn.mnemonic)
    if build is None:
        return None
    if insn.dpp or insn.sdwa or (insn.operands["src0"].file is File.CONSTANT and insn.mnemonic == "v_readlane_b32"):
        raise insn.unknown("operand form")
    return build(insn)
