"""Which bytes of device memory an instruction means: scalar, global and flat addresses, and raw buffers.

Flat accesses are treated as global ones: LDS is not mapped, so a flat access to it faults.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable

import numpy as np

from .decode import Instruction
from .formats import Array
from .sources import scalar_bits, signed
from .wave import LANES, MASK32, Wave

_MASK64 = (1 << 64) - 1
_SADDR_OFF = 0x7F
_GLOBAL_OFFSET_BITS = 13
_SCALAR_OFFSET_BITS = 21


def scalar_address(insn: Instruction) -> Callable[[Wave], int]:
    """The byte address of a scalar load."""
    fields, base = insn.fields, scalar_bits(insn.operands["sbase"].index)
    immediate = signed(fields["offset"], _SCALAR_OFFSET_BITS) if fields["imm"] else 0
    register = fields["soffset"] if fields["soffset_en"] else None if fields["imm"] else fields["offset"]
    return lambda wave: base(wave) + immediate + (wave.s[register] if register is not None else 0) & ~3


def addressing(insn: Instruction) -> Addressing:
    """The addressing of a vector memory instruction."""
    return _Buffer(insn) if insn.encoding == "MUBUF" else _Global(insn)


class Addressing(ABC):
    """How the lanes of an instruction reach memory.

    Attributes
    ----------
    offset : int
        The byte offset in the instruction.
    """

    offset: int

    @abstractmethod
    def addresses(self, wave: Wave) -> Array:
        """Byte addresses [active lanes]."""

    @abstractmethod
    def read(self, wave: Wave, unit: int, count: int) -> Array:
        """`count` units of `unit` bytes a lane: unsigned [count, active lanes]."""

    @abstractmethod
    def write(self, wave: Wave, unit: int, values: Array) -> None:
        """Store units [count, active lanes]."""


class _Global(Addressing):
    """A 64-bit vector address, or a scalar base and a 32-bit vector offset."""

    def __init__(self, insn: Instruction) -> None:
        flat = insn.encoding == "FLAT"
        self.offset = insn.fields["offset"] if flat else signed(insn.fields["offset"], _GLOBAL_OFFSET_BITS)
        self._row = insn.operands["addr"].index
        register = insn.fields["saddr"]
        self._base = None if flat or register == _SADDR_OFF else scalar_bits(register)

    def addresses(self, wave: Wave) -> Array:
        whole: Array = wave.v["u4"][self._row].astype(np.uint64)
        if self._base is None:
            whole |= wave.v["u4"][self._row + 1].astype(np.uint64) << np.uint64(32)
        whole += np.uint64((self._base(wave) if self._base else 0) + self.offset & _MASK64)
        return whole if wave.mask is None else whole[wave.lanes]

    def read(self, wave: Wave, unit: int, count: int) -> Array:
        addresses = self.addresses(wave)
        wave.workgroup.rank.traffic.loaded += unit * count * len(addresses)
        return wave.workgroup.rank.memory.read(addresses, unit, count)

    def write(self, wave: Wave, unit: int, values: Array) -> None:
        wave.workgroup.rank.traffic.stored += unit * values.size
        wave.workgroup.rank.memory.write(self.addresses(wave), unit, values)


class _Buffer(Addressing):
    """A raw buffer: descriptor base + scalar offset + vector offset, checked against the descriptor's size.

    A load from beyond the buffer gives 0 and a store there is dropped, element by element.
    """

    def __init__(self, insn: Instruction) -> None:
        if insn.fields["idxen"]:
            raise insn.unknown("indexed buffer access")
        self.offset = insn.fields["offset"]
        self._insn = insn
        self._row = insn.operands["vaddr"].index if insn.fields["offen"] else None
        self._descriptor = insn.operands["srsrc"].index
        self._scalar_offset = scalar_bits(insn.operands["soffset"].index)

    def _range(self, wave: Wave) -> tuple[int, Array, int]:
        """Base, byte offsets [active lanes], and size."""
        low, high, size, _ = wave.s[self._descriptor : self._descriptor + 4]
        if high >> 16 & 0x3FFF:
            raise self._insn.unknown("structured buffer")
        start = self.offset + (self._scalar_offset(wave) & MASK32)
        vector = np.zeros(LANES, np.uint32) if self._row is None else wave.v["u4"][self._row]
        return low | (high & 0xFFFF) << 32, vector[wave.lanes].astype(np.int64) + start, size

    def addresses(self, wave: Wave) -> Array:
        base, offsets, size = self._range(wave)
        if (offsets >= size).any():
            raise self._insn.unknown("atomic beyond the buffer")
        return (offsets + base).astype(np.uint64)

    def read(self, wave: Wave, unit: int, count: int) -> Array:
        base, offsets, size = self._range(wave)
        values = np.zeros((count, len(offsets)), f"u{unit}")
        for element in range(count):
            inside = np.flatnonzero(offsets + (element + 1) * unit <= size)
            if len(inside):
                addresses = (offsets[inside] + base + element * unit).astype(np.uint64)
                values[element, inside] = wave.workgroup.rank.memory.read(addresses, unit)[0]
                wave.workgroup.rank.traffic.loaded += unit * len(inside)
        return values

    def write(self, wave: Wave, unit: int, values: Array) -> None:
        base, offsets, size = self._range(wave)
        for element, row in enumerate(values):
            inside = np.flatnonzero(offsets + (element + 1) * unit <= size)
            if len(inside):
                addresses = (offsets[inside] + base + element * unit).astype(np.uint64)
                wave.workgroup.rank.memory.write(addresses, unit, row[None, inside])
                wave.workgroup.rank.traffic.stored += unit * len(inside)
