"""What a step may write of a cache: the rows that are saved, restored and compared when it is checked."""

from __future__ import annotations

from collections.abc import Callable

import msgspec
from torch import Tensor


class Region(msgspec.Struct, frozen=True, kw_only=True):
    """Rows of one cache that a step may write."""

    name: str
    layer: int
    pool: Tensor
    """[slots, ...]."""
    rows: Tensor
    """[n] int64, each once."""
    values: Callable[[Tensor], Tensor] | None = None
    """What the rows' bytes stand for; None where they are numbers."""

    def read(self) -> Tensor:
        """A copy of the rows."""
        return self.pool[self.rows].clone()

    def restore(self, saved: Tensor) -> None:
        """Write back what `read` gave."""
        self.pool[self.rows] = saved

    def numbers(self, saved: Tensor) -> Tensor:
        """What `read` gave, as numbers to compare."""
        return saved if self.values is None else self.values(saved)
