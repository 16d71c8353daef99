"""State of a workgroup and of a wave."""

from __future__ import annotations

from enum import Enum, auto
from typing import TYPE_CHECKING

import numpy as np

from .decode import EXEC, FIRST_AGPR, M0, VCC
from .errors import BarrierError
from .formats import Array
from .memory import Buffer

if TYPE_CHECKING:
    from .machine import Rank

LANES = 64
LANE = np.arange(LANES)
ALL_LANES = (1 << LANES) - 1
MASK32 = 0xFFFFFFFF

_VECTOR_REGISTERS = 2 * FIRST_AGPR
# the word after EXEC's pads reads of register pairs
_SCALAR_REGISTERS = 129
# registers and LDS start with this word, a signalling NaN, so that code that reads them unwritten is seen
POISON = 0x7FA5A5A5
# round to nearest, denormals kept, DX10 clamp and IEEE, as LLVM's kernels start
MODE_AT_START = 0x3F0
MODE_FP16_OVERFLOW = 1 << 23


class Status(Enum):
    """What a wave does next."""

    RUNNING = auto()
    YIELDED = auto()
    AT_BARRIER = auto()
    ENDED = auto()


class Workgroup:
    """One workgroup: its LDS and the progress of its waves."""

    def __init__(self, index: tuple[int, int, int], number: int, lds_bytes: int, rank: Rank) -> None:
        self.index, self.number, self.rank = index, number, rank
        words = -(-lds_bytes // 4)
        self.lds = Buffer(0, np.full(words, POISON, np.uint32).view(np.uint8)[:lds_bytes], "LDS")
        self.waves: list[Wave] = []

    def release_barrier(self) -> list[Wave]:
        """The waves that may go on, because all that have not ended have arrived.

        Raises
        ------
        BarrierError
            All have ended, but not after the same number of barriers.
        """
        live = [wave for wave in self.waves if wave.status is not Status.ENDED]
        barriers = [wave.barriers for wave in self.waves]
        if not live and len(set(barriers)) > 1:
            raise BarrierError(
                f"rank {self.rank.number} ({self.rank.kernel.name}), workgroup {self.number}: the waves ended after "
                f"{barriers} barriers; expected the same number"
            )
        if not all(wave.status is Status.AT_BARRIER for wave in live):
            return []
        for wave in live:
            wave.status = Status.RUNNING
        return live


class Wave:
    """One wave of 64 lanes.

    Attributes
    ----------
    v : dict
        The vector register file by view: ``"u4"``, ``"i4"``, ``"f4"`` [512, 64], ``"u2"``, ``"i2"``, ``"f2"``
        [512, 128] and ``"u1"``, ``"i1"`` [512, 256]. Rows 256..511 are the accumulation registers.
    s : list of int
        Scalar registers by source code: 0..105, VCC at 106, M0 at 124, EXEC at 126.
    mode : int
        The MODE register.
    barriers : int
        How many workgroup barriers the wave has come to.
    exec : int
        The EXEC mask; `mask` is the same as bool [64], or None when all lanes are active, and `lanes` the numbers of
        the active lanes.
    """

    __slots__ = ("barriers", "exec", "lanes", "mask", "mode", "number", "pc", "s", "scc", "status", "v", "workgroup")

    def __init__(self, workgroup: Workgroup, number: int, lanes: int, pc: int) -> None:
        file = np.full((_VECTOR_REGISTERS, LANES), POISON, np.uint32)
        self.v = {kind: file.view(kind) for kind in ("u4", "i4", "f4", "u2", "i2", "f2", "u1", "i1")}
        self.s = [POISON] * _SCALAR_REGISTERS
        self.scc = 0
        self.mode = MODE_AT_START
        self.barriers = 0
        self.workgroup, self.number, self.pc = workgroup, number, pc
        self.status = Status.RUNNING
        self.set_exec((1 << lanes) - 1)

    def set_exec(self, mask: int) -> None:
        """Set the EXEC mask and everything derived from it."""
        self.exec = mask
        self.s[EXEC], self.s[EXEC + 1] = mask & MASK32, mask >> 32
        self.mask: Array | None = None
        self.lanes: Array = LANE
        if mask != ALL_LANES:
            self.mask = lanes_of(mask)
            self.lanes = np.flatnonzero(self.mask)

    @property
    def active(self) -> Array:
        """The EXEC mask as bool [64]."""
        return np.ones(LANES, bool) if self.mask is None else self.mask

    @property
    def vcc(self) -> int:
        """The VCC mask."""
        return self.s[VCC] | self.s[VCC + 1] << 32

    @property
    def m0(self) -> int:
        """The M0 register."""
        return self.s[M0]

    def set_scalar(self, register: int, value: int, words: int = 1) -> None:
        """Write `words` scalar registers; a write to EXEC takes effect."""
        for word in range(words):
            self.s[register + word] = value >> 32 * word & MASK32
        if register >= EXEC:
            self.set_exec(self.s[EXEC] | self.s[EXEC + 1] << 32)

    def where(self) -> str:
        """Which wave this is, for messages."""
        group = self.workgroup
        return f"rank {group.rank.number} ({group.rank.kernel.name}), workgroup {group.number}, wave {self.number}"


def lanes_of(mask: int) -> Array:
    """A 64-bit lane mask as bool [64]."""
    return np.unpackbits(np.frombuffer(mask.to_bytes(8, "little"), np.uint8), bitorder="little").view(bool)


def mask_of(lanes: Array) -> int:
    """A bool [64] as lane mask."""
    return int.from_bytes(np.packbits(lanes, bitorder="little").tobytes(), "little")
