"""Read-modify-write operations on memory and LDS: one line an operation.

The lanes of an instruction take effect in ascending order; the hardware leaves the order open.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from .formats import Array


class Updatable(Protocol):
    """Memory or one buffer."""

    def update(self, addresses: Array, dtype: str, change: Callable[[Any, int], Any]) -> Array:
        """Replace elements one by one; the old elements."""


@dataclass(frozen=True)
class Atomic:
    """An operation on one element.

    Attributes
    ----------
    dtype : str
        How an element is read.
    change : callable
        The new element from the old one and the operands.
    operands : int
        How many elements of data the instruction brings.
    """

    dtype: str
    change: Callable[..., Any]
    operands: int = 1

    @property
    def words(self) -> int:
        """32-bit words of an element."""
        return np.dtype(self.dtype).itemsize // 4

    def apply(self, memory: Updatable, addresses: Array, data: Array) -> Array:
        """Update the elements at `addresses` [N] with `data` [operands * words, N]; the old ones, uint32 [words, N]."""
        elements = [
            np.ascontiguousarray(data[i * self.words : (i + 1) * self.words].T).view(self.dtype)[:, 0]
            for i in range(self.operands)
        ]
        old = memory.update(addresses, self.dtype, lambda o, position: self.change(o, *[e[position] for e in elements]))
        words: Array = old.view(np.uint32).reshape(len(addresses), self.words).T
        return words


_INTEGER: dict[str, tuple[str, Callable[..., Any]]] = {
    "swap": ("u", lambda old, x: x),
    "add": ("u", lambda old, x: old + x),
    "sub": ("u", lambda old, x: old - x),
    "smin": ("i", min),
    "smax": ("i", max),
    "umin": ("u", min),
    "umax": ("u", max),
    "and": ("u", lambda old, x: old & x),
    "or": ("u", lambda old, x: old | x),
    "xor": ("u", lambda old, x: old ^ x),
}
# by the name after "global_atomic_"; cmpswap brings the new element first, then the expected one
ATOMICS: dict[str, Atomic] = {
    **{name: Atomic(kind + "4", change) for name, (kind, change) in _INTEGER.items()},
    **{f"{name}_x2": Atomic(kind + "8", change) for name, (kind, change) in _INTEGER.items()},
    "cmpswap": Atomic("u4", lambda old, new, expected: new if old == expected else old, 2),
    "cmpswap_x2": Atomic("u8", lambda old, new, expected: new if old == expected else old, 2),
    "add_f32": Atomic("f4", lambda old, x: old + x),
    "add_f64": Atomic("f8", lambda old, x: old + x),
}
# what the LDS unit calls them, and the type in their names
_LDS_NAMES: dict[str, tuple[str, str]] = {
    "swap": ("wrxchg", "b"),
    "add": ("add", "u"),
    "sub": ("sub", "u"),
    "smin": ("min", "i"),
    "smax": ("max", "i"),
    "umin": ("min", "u"),
    "umax": ("max", "u"),
    "and": ("and", "b"),
    "or": ("or", "b"),
    "xor": ("xor", "b"),
}
# by the name after "ds_", "_rtn" removed; cmpst brings the expected element first, then the new one
LDS_ATOMICS: dict[str, Atomic] = {
    **{
        f"{name}_{suffix}{8 * size}": Atomic(f"{_INTEGER[operation][0]}{size}", _INTEGER[operation][1])
        for size in (4, 8)
        for operation, (name, suffix) in _LDS_NAMES.items()
    },
    "cmpst_b32": Atomic("u4", lambda old, expected, new: new if old == expected else old, 2),
    "cmpst_b64": Atomic("u8", lambda old, expected, new: new if old == expected else old, 2),
    "add_f32": Atomic("f4", lambda old, x: old + x),
}
