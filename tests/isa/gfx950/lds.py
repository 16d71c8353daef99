"""LDS instructions: loads, stores, transposing loads, atomics, and the lane exchanges that go through the LDS unit."""

from __future__ import annotations

import re
from collections.abc import Callable

import numpy as np

from .atomics import LDS_ATOMICS, Atomic
from .decode import Instruction
from .formats import Array
from .global_memory import load_part, store_part
from .lanes import Step
from .wave import LANE, LANES, Wave

_WORDS = {"b32": 1, "b64": 2, "b96": 3, "b128": 4}
_TWO = re.compile(r"ds_(read|write)2(st64)?_b(32|64)")
_ONE = re.compile(r"ds_(read|write)_(b32|b64|b96|b128)")
_ATOMIC = re.compile(r"ds_(\w+?)(_rtn)?_(u32|i32|b32|f32|u64|i64|b64|f64|f16|bf16)")
# element stride of the "st64" forms
_FAR = 64
# bytes and sign extension of loads; bytes, and half of the register, of stores
_NARROW_LOADS = {"ds_read_u8": (1, False), "ds_read_i8": (1, True), "ds_read_u16": (2, False), "ds_read_i16": (2, True)}
_NARROW_STORES = {"ds_write_b8": (1, 0), "ds_write_b16": (2, 0), "ds_write_b16_d16_hi": (2, 1)}


def bind(insn: Instruction) -> Step | None:
    """The step of an LDS instruction, or None for any other."""
    name = insn.mnemonic
    if insn.encoding != "DS":
        return None
    if name == "ds_nop":
        return lambda wave: None
    if name in _NARROW_LOADS:
        return _read_narrow(insn, *_NARROW_LOADS[name])
    if name in _NARROW_STORES:
        return _write_narrow(insn, *_NARROW_STORES[name])
    if one := _ONE.fullmatch(name):
        return _read(insn, _WORDS[one[2]]) if one[1] == "read" else _write(insn, _WORDS[one[2]])
    if two := _TWO.fullmatch(name):
        return _read2(insn, bool(two[2]), int(two[3])) if two[1] == "read" else _write2(insn, bool(two[2]), int(two[3]))
    if name == "ds_read_b64_tr_b16":
        return _read_transposed(insn)
    if name == "ds_bpermute_b32":
        return _pull(insn)
    if name == "ds_permute_b32":
        return _push(insn)
    if name == "ds_swizzle_b32":
        return _swizzle(insn)
    if (atomic := _ATOMIC.fullmatch(name)) and (operation := LDS_ATOMICS.get(f"{atomic[1]}_{atomic[3]}")):
        return _atomic(insn, operation, bool(atomic[2]))
    return None


def _offset(insn: Instruction) -> int:
    return insn.fields["offset0"] | insn.fields["offset1"] << 8


def _addresses(insn: Instruction, wave: Wave, offset: int) -> Array:
    # 32-bit addition: a negative address register and a large offset meet inside
    addresses: Array = wave.v["u4"][insn.operands["addr"].index, wave.lanes] + np.uint32(offset)
    return addresses.astype(np.uint64)


def _read(insn: Instruction, words: int) -> Step:
    row, offset = insn.operands["vdst"].index, _offset(insn)

    def step(wave: Wave) -> None:
        wave.v["u4"][row : row + words, wave.lanes] = wave.workgroup.lds.read(_addresses(insn, wave, offset), 4, words)

    return step


def _write(insn: Instruction, words: int) -> Step:
    row, offset = insn.operands["data0"].index, _offset(insn)

    def step(wave: Wave) -> None:
        wave.workgroup.lds.write(_addresses(insn, wave, offset), 4, wave.v["u4"][row : row + words, wave.lanes])

    return step


def _offsets2(insn: Instruction, far: bool, bits: int) -> tuple[int, int]:
    unit = bits // 8 * (_FAR if far else 1)
    return insn.fields["offset0"] * unit, insn.fields["offset1"] * unit


def _read2(insn: Instruction, far: bool, bits: int) -> Step:
    row, words = insn.operands["vdst"].index, bits // 32
    offsets = _offsets2(insn, far, bits)

    def step(wave: Wave) -> None:
        values = [wave.workgroup.lds.read(_addresses(insn, wave, offset), 4, words) for offset in offsets]
        wave.v["u4"][row : row + 2 * words, wave.lanes] = np.concatenate(values)

    return step


def _write2(insn: Instruction, far: bool, bits: int) -> Step:
    rows, words = (insn.operands["data0"].index, insn.operands["data1"].index), bits // 32
    offsets = _offsets2(insn, far, bits)

    def step(wave: Wave) -> None:
        for row, offset in zip(rows, offsets, strict=True):
            wave.workgroup.lds.write(_addresses(insn, wave, offset), 4, wave.v["u4"][row : row + words, wave.lanes])

    return step


def _read_narrow(insn: Instruction, unit: int, extend: bool) -> Step:
    row, offset = insn.operands["vdst"].index, _offset(insn)

    def step(wave: Wave) -> None:
        load_part(wave, row, wave.workgroup.lds.read(_addresses(insn, wave, offset), unit)[0], extend)

    return step


def _write_narrow(insn: Instruction, unit: int, half: int) -> Step:
    row, offset = insn.operands["data0"].index, _offset(insn)

    def step(wave: Wave) -> None:
        wave.workgroup.lds.write(_addresses(insn, wave, offset), unit, store_part(wave, row, unit, half))

    return step


def _read_transposed(insn: Instruction) -> Step:
    """Each 16 lanes read a row-major [4, 16] matrix of 16-bit elements, 8 bytes a lane; lane i gets column i."""
    row, offset = insn.operands["vdst"].index, _offset(insn)
    columns = 16

    def step(wave: Wave) -> None:
        if wave.mask is not None:
            raise insn.unknown("transposing load with inactive lanes")
        raw = wave.workgroup.lds.read(_addresses(insn, wave, offset), 4, 2)
        matrices = np.ascontiguousarray(raw.T).view(np.uint16).reshape(LANES // columns, -1, columns)
        wave.v["u4"][row : row + 2] = (
            np.ascontiguousarray(matrices.transpose(0, 2, 1)).view(np.uint32).reshape(LANES, 2).T
        )

    return step


def _atomic(insn: Instruction, atomic: Atomic, returns: bool) -> Step:
    rows = [insn.operands[name].index for name in ("data0", "data1")[: atomic.operands]]
    words, offset = atomic.words, _offset(insn)

    def step(wave: Wave) -> None:
        data = np.concatenate([wave.v["u4"][row : row + words, wave.lanes] for row in rows])
        old = atomic.apply(wave.workgroup.lds, _addresses(insn, wave, offset), data)
        if returns:
            target = insn.operands["vdst"].index
            wave.v["u4"][target : target + words, wave.lanes] = old

    return step


def _exchange(insn: Instruction, source: Callable[[Wave], Array], value_name: str) -> Step:
    """Lane i gets the value of lane source[i], 0 if that lane is inactive."""
    row, value = insn.operands["vdst"].index, insn.operands[value_name].index

    def step(wave: Wave) -> None:
        lane = source(wave)
        picked = np.where(wave.active[lane], wave.v["u4"][value][lane], np.uint32(0))
        wave.v["u4"][row, wave.lanes] = picked[wave.lanes]

    return step


def _lane_of_address(insn: Instruction) -> Callable[[Wave], Array]:
    row, offset = insn.operands["addr"].index, np.uint32(_offset(insn))
    return lambda wave: (wave.v["u4"][row] + offset) // 4 % LANES


def _pull(insn: Instruction) -> Step:
    return _exchange(insn, _lane_of_address(insn), "data0")


def _push(insn: Instruction) -> Step:
    """Each active lane sends its value to a lane; of several senders the last wins, a lane without a sender gets 0."""
    target, row, value = _lane_of_address(insn), insn.operands["vdst"].index, insn.operands["data0"].index

    def step(wave: Wave) -> None:
        received = np.zeros(LANES, np.uint32)
        received[target(wave)[wave.lanes]] = wave.v["u4"][value, wave.lanes]
        wave.v["u4"][row, wave.lanes] = received[wave.lanes]

    return step


def _swizzle(insn: Instruction) -> Step:
    """A fixed pattern: four lanes permuted, or the lane number within 32 masked by and, or, xor."""
    pattern = _offset(insn)
    if pattern & 0x8000:
        if pattern >= 0xC000:
            raise insn.unknown("swizzle pattern")
        quad = np.array([pattern >> 2 * i & 3 for i in range(4)])
        lane = LANE // 4 * 4 + quad[LANE % 4]
    else:
        keep, on, flip = pattern & 31, pattern >> 5 & 31, pattern >> 10 & 31
        lane = LANE // 32 * 32 + ((LANE % 32 & keep | on) ^ flip)
    return _exchange(insn, lambda wave: lane, "addr")
