"""Accesses to device memory: scalar loads; global, flat and buffer loads and stores; loads into LDS; atomics.

Flat accesses are treated as global ones: LDS is not mapped, so a flat access to it faults. A wave's accesses take
effect in program order.
"""

from __future__ import annotations

import re

import numpy as np

from .addressing import Addressing, addressing, scalar_address
from .atomics import ATOMICS, Atomic
from .decode import Instruction
from .formats import Array
from .lanes import Step
from .wave import Wave

_SCALAR_LOAD = re.compile(r"s_load_dword(?:x(\d+))?")
_VECTOR = re.compile(r"(?:global|flat|buffer)_(load|store|atomic)_(lds_)?(\w+)")
_DWORDS = {"dword": 1, "dwordx2": 2, "dwordx3": 3, "dwordx4": 4}
# bytes and sign extension of loads; bytes, and half of the register, of stores. Loads into one half are missing: what
# becomes of the other half on a machine with error correction of registers is not clear.
_NARROW_LOADS = {"ubyte": (1, False), "sbyte": (1, True), "ushort": (2, False), "sshort": (2, True)}
_NARROW_STORES = {"byte": (1, 0), "byte_d16_hi": (1, 1), "short": (2, 0), "short_d16_hi": (2, 1)}


def bind(insn: Instruction) -> Step | None:
    """The step of an access to device memory, or None for any other instruction."""
    scalar = _SCALAR_LOAD.fullmatch(insn.mnemonic)
    if scalar is not None:
        return _scalar_load(insn, int(scalar[1] or 1))
    name = _VECTOR.fullmatch(insn.mnemonic)
    if name is None:
        return None
    action, to_lds, what = name[1], bool(name[2] or insn.fields.get("lds")), name[3]
    access = addressing(insn)
    data = insn.operands.get("vdata") or insn.operands.get("vdst") or insn.operands["data"]
    if action == "atomic":
        atomic = ATOMICS.get(what)
        return None if atomic is None else _atomic(insn, access, atomic)
    if to_lds:
        return _load_to_lds(insn, access, _DWORDS[what]) if what in _DWORDS else None
    if what in _DWORDS:
        move_words = _load_words if action == "load" else _store_words
        return move_words(access, data.index, _DWORDS[what])
    if action == "load" and what in _NARROW_LOADS:
        return _load_narrow(access, data.index, *_NARROW_LOADS[what])
    if action == "store" and what in _NARROW_STORES:
        return _store_narrow(access, data.index, *_NARROW_STORES[what])
    return None


def _scalar_load(insn: Instruction, count: int) -> Step:
    address, target = scalar_address(insn), insn.operands["sdata"].index

    def step(wave: Wave) -> None:
        rank = wave.workgroup.rank
        rank.traffic.loaded += 4 * count
        for word, value in enumerate(rank.memory.read_words(address(wave), count)):
            wave.set_scalar(target + word, value)

    return step


def _load_words(access: Addressing, row: int, count: int) -> Step:
    def step(wave: Wave) -> None:
        if len(wave.lanes):
            values = access.read(wave, 4, count)
            if wave.mask is None:
                wave.v["u4"][row : row + count] = values
            else:
                wave.v["u4"][row : row + count, wave.lanes] = values

    return step


def _store_words(access: Addressing, row: int, count: int) -> Step:
    def step(wave: Wave) -> None:
        if len(wave.lanes):
            values = wave.v["u4"][row : row + count]
            access.write(wave, 4, values if wave.mask is None else values[:, wave.lanes])

    return step


def _load_narrow(access: Addressing, row: int, unit: int, extend: bool) -> Step:
    def step(wave: Wave) -> None:
        if len(wave.lanes):
            value = access.read(wave, unit, 1)[0]
            load_part(wave, row, value, extend)

    return step


def load_part(wave: Wave, row: int, value: Array, extend: bool) -> None:
    """Put 8- or 16-bit values [active lanes] into a register, extended to 32 bits."""
    wave.v["u4"][row, wave.lanes] = value.view(f"i{value.itemsize}").astype(np.uint32) if extend else value


def _store_narrow(access: Addressing, row: int, unit: int, half: int) -> Step:
    def step(wave: Wave) -> None:
        if len(wave.lanes):
            access.write(wave, unit, store_part(wave, row, unit, half))

    return step


def store_part(wave: Wave, row: int, unit: int, half: int) -> Array:
    """The low `unit` bytes of a half of a register: [1, active lanes]."""
    halves: Array = wave.v["u2"][row, 2 * wave.lanes + half]
    return halves.astype(f"u{unit}")[None]


def _load_to_lds(insn: Instruction, access: Addressing, count: int) -> Step:
    """Lane l's words go to LDS at M0 + the instruction's offset + l times their size."""

    def step(wave: Wave) -> None:
        if len(wave.lanes):
            values = access.read(wave, 4, count)
            start = (wave.m0 & 0xFFFF) + access.offset
            wave.workgroup.lds.write((start + wave.lanes * 4 * count).astype(np.uint64), 4, values)

    return step


def _atomic(insn: Instruction, access: Addressing, atomic: Atomic) -> Step:
    data = (insn.operands.get("vdata") or insn.operands["data"]).index
    result = (insn.operands.get("vdata") or insn.operands["vdst"]).index if insn.fields["sc0"] else None
    words = atomic.words

    def step(wave: Wave) -> None:
        if not len(wave.lanes):
            return
        addresses = access.addresses(wave)
        sources = wave.v["u4"][data : data + words * atomic.operands, wave.lanes]
        rank = wave.workgroup.rank
        old = atomic.apply(rank.memory, addresses, sources)
        rank.traffic.loaded += 4 * words * len(addresses)
        rank.traffic.stored += 4 * words * len(addresses)
        if result is not None:
            wave.v["u4"][result : result + words, wave.lanes] = old

    return step
