"""Device memory: a set of bounds-checked buffers at 64-bit addresses.

An access that is not wholly inside one buffer is an error, so is a store to a read-only buffer. `Memory.place` keeps
buffers more than 4 GiB apart: an address computed with 32 bits, or one element too far, meets no buffer.
"""

from __future__ import annotations

from bisect import bisect_right, insort
from collections.abc import Callable
from typing import Any

import numpy as np

from .errors import MemoryAccessError
from .formats import Array

_FIRST_ADDRESS = 0x7F01_0000_0000
_ALIGNMENT = 256
_GAP = 1 << 32
_UNIT = {1: np.uint8, 2: np.uint16, 4: np.uint32, 8: np.uint64}


class Buffer:
    """Bytes at a base address.

    Parameters
    ----------
    data : uint8 array [N]
        The storage itself; stores change it.
    """

    def __init__(self, base: int, data: Array, name: str, writable: bool = True) -> None:
        self.base, self.data, self.name, self.writable = base, data, name, writable
        self.size = data.size
        self._views = {unit: data[: data.size // unit * unit].view(dtype) for unit, dtype in _UNIT.items()}

    def read(self, addresses: Array, unit: int, count: int = 1) -> Array:
        """`count` consecutive units of `unit` bytes from each address: unsigned array [count, N]."""
        offsets = self._offsets(addresses, unit * count)
        step = np.arange(count)[:, None]
        if unit == 1 or not (offsets & (unit - 1)).any():
            found: Array = self._views[unit][offsets // unit + step]
            return found
        raw = np.ascontiguousarray(self.data[offsets[:, None] + np.arange(unit * count)])
        units: Array = raw.view(_UNIT[unit]).T
        return units

    def write(self, addresses: Array, unit: int, values: Array) -> None:
        """Store unsigned `values` [count, N] as consecutive units; of equal addresses the last lane wins."""
        self._writable()
        count = len(values)
        offsets = self._offsets(addresses, unit * count)
        if unit == 1 or not (offsets & (unit - 1)).any():
            self._views[unit][offsets // unit + np.arange(count)[:, None]] = values
            return
        raw = np.ascontiguousarray(values.T.astype(_UNIT[unit])).view(np.uint8)
        self.data[offsets[:, None] + np.arange(unit * count)] = raw

    def update(self, addresses: Array, dtype: str, change: Callable[[Any, int], Any]) -> Array:
        """Replace each element by ``change(old, position)``, one address after the other; the old elements [N]."""
        self._writable()
        width = np.dtype(dtype).itemsize
        offsets = self._offsets(addresses, width)
        old = np.empty(len(offsets), dtype)
        for position, offset in enumerate(offsets):
            place = self.data[offset : offset + width].view(dtype)
            old[position] = place[0]
            place[0] = change(old[position], position)
        return old

    def holds(self, addresses: Array) -> bool:
        """Whether every address is inside."""
        return bool((addresses - np.uint64(self.base)).max() < self.size)

    def _offsets(self, addresses: Array, width: int) -> Array:
        # an address below the base wraps round and is far beyond the end
        offsets: Array = addresses - np.uint64(self.base)
        last = self.size - width
        if len(offsets) and (last < 0 or offsets.max() > last):
            position = int(np.flatnonzero((offsets > max(last, 0)) | (last < 0))[0])
            raise MemoryAccessError(
                f"{width} bytes at {self._place(addresses[position])} are not in the buffer", position
            )
        return offsets.astype(np.int64)

    def _place(self, address: int) -> str:
        return f"{int(address):#x} = {self.name} + {int(address) - self.base:#x} (size {self.size:#x})"

    def _writable(self) -> None:
        if not self.writable:
            raise MemoryAccessError(f"store to read-only {self.name}")


class Memory:
    """The device memory that the launches of one run share."""

    def __init__(self) -> None:
        self._buffers: list[Buffer] = []
        self._bases: list[int] = []
        self._next = _FIRST_ADDRESS

    def add(self, address: int, array: Array, name: str = "buffer", writable: bool = True) -> int:
        """Register a contiguous array as the device buffer at `address`; stores change the array. Returns the address.

        Raises
        ------
        ValueError
            The array is not contiguous, or it overlaps another buffer.
        """
        if not array.flags.c_contiguous:
            raise ValueError(f"{name} is not contiguous; a device buffer is a block of bytes")
        buffer = Buffer(address, array.reshape(-1).view(np.uint8), name, writable)
        for other in self._buffers:
            if address < other.base + other.size and other.base < address + buffer.size:
                raise ValueError(f"{name} at {address:#x} overlaps {other.name} at {other.base:#x}")
        insort(self._buffers, buffer, key=lambda b: b.base)
        insort(self._bases, address)
        return address

    def place(self, array: Array, name: str = "buffer", writable: bool = True) -> int:
        """Register an array at an address over 4 GiB from its neighbours'. Returns the address."""
        address = self._next
        self._next += _GAP + -(-array.nbytes // _ALIGNMENT) * _ALIGNMENT
        return self.add(address, array, name, writable)

    def remove(self, address: int) -> None:
        """Forget the buffer at `address`."""
        index = self._bases.index(address)
        del self._bases[index], self._buffers[index]

    def read(self, addresses: Array, unit: int, count: int = 1) -> Array:
        """As `Buffer.read`, from whichever buffers the addresses are in."""
        first = self._owner(addresses[0])
        if first.holds(addresses):
            return first.read(addresses, unit, count)
        values = np.empty((count, len(addresses)), _UNIT[unit])

        def read(buffer: Buffer, positions: Array) -> None:
            values[:, positions] = buffer.read(addresses[positions], unit, count)

        self._each(addresses, read)
        return values

    def write(self, addresses: Array, unit: int, values: Array) -> None:
        """As `Buffer.write`, to whichever buffers the addresses are in."""
        first = self._owner(addresses[0])
        if first.holds(addresses):
            first.write(addresses, unit, values)
        else:
            self._each(addresses, lambda buffer, at: buffer.write(addresses[at], unit, values[:, at]))

    def update(self, addresses: Array, dtype: str, change: Callable[[Any, int], Any]) -> Array:
        """As `Buffer.update`, on whichever buffers the addresses are in."""
        old = np.empty(len(addresses), dtype)

        def update(buffer: Buffer, positions: Array) -> None:
            old[positions] = buffer.update(addresses[positions], dtype, lambda o, p: change(o, positions[p]))

        self._each(addresses, update)
        return old

    def read_words(self, address: int, count: int) -> list[int]:
        """`count` 32-bit words for a scalar load."""
        try:
            words: list[int] = self._owner(address).read(np.array([address], np.uint64), 4, count)[:, 0].tolist()
        except MemoryAccessError as fault:
            raise MemoryAccessError(str(fault)) from None
        return words

    def _owner(self, address: int, position: int = 0) -> Buffer:
        index = bisect_right(self._bases, int(address)) - 1
        if index < 0:
            raise MemoryAccessError(f"{int(address):#x} is below every buffer", position)
        return self._buffers[index]

    def _each(self, addresses: Array, access: Callable[[Buffer, Array], object]) -> None:
        """Call `access` with every buffer concerned and the positions of its addresses."""
        index = np.searchsorted(np.array(self._bases, np.uint64), addresses, side="right") - 1
        if index.min() < 0:
            self._owner(addresses[index.argmin()], int(index.argmin()))
        for i in np.unique(index):
            positions = np.flatnonzero(index == i)
            try:
                access(self._buffers[i], positions)
            except MemoryAccessError as fault:
                raise MemoryAccessError(str(fault), int(positions[fault.position or 0])) from None
