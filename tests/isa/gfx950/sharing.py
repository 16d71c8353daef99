"""Watches what the workgroups of a run hand to each other: who stored a byte last, and could its reader miss that?

Caches are not modelled, so a read always finds the latest store. On the hardware, a plain store stays in the caches of
its XCD until a write-back, and the scalar cache keeps what it once read until the launch ends.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from .addressing import addressing, scalar_address
from .atomics import ATOMICS
from .decode import Instruction
from .errors import SharingError
from .formats import Array
from .scopes import Scope, is_counter, is_load, is_store, scope_of
from .wave import Wave

_PAGE_BITS = 12
_PAGE_BYTES = 1 << _PAGE_BITS
_WORDS = re.compile(r"dword(?:x(\d+))?")
_NARROW = {"byte": 1, "ubyte": 1, "sbyte": 1, "short": 2, "ushort": 2, "sshort": 2}
_NOBODY = -1


@dataclass(frozen=True)
class _Access:
    addresses: Callable[[Wave], Array]
    width: int
    writes: bool


class Sharing:
    """The last store to every byte of a run.

    Raises
    ------
    SharingError
        By `check`: a workgroup loads what another one, or another rank, stored without the scope for that, or through
        the scalar cache what the run has changed.
    """

    def __init__(self) -> None:
        self._accesses: dict[int, _Access | None] = {}
        self._stores: list[tuple[int, int, Instruction]] = []
        self._store_numbers: dict[tuple[int, int, int], int] = {}
        self._pages: dict[int, Array] = {}

    def check(self, wave: Wave, insn: Instruction) -> None:
        """Judge an access that is about to execute; other instructions pass."""
        if id(insn) not in self._accesses:
            self._accesses[id(insn)] = _access(insn)
        access = self._accesses[id(insn)]
        if access is None or (not len(wave.lanes) and insn.encoding != "SMEM"):
            return
        places = (access.addresses(wave)[:, None] + np.arange(access.width, dtype=np.uint64)).ravel()
        pages = places >> np.uint64(_PAGE_BITS)
        for number in np.unique(pages).tolist():
            offsets = (places[pages == number] & np.uint64(_PAGE_BYTES - 1)).astype(np.int64)
            page = self._pages.get(number)
            if access.writes:
                if page is None:
                    page = self._pages[number] = np.full(_PAGE_BYTES, _NOBODY, np.int32)
                page[offsets] = self._store_number(wave, insn)
            elif page is not None:
                for store in np.unique(page[offsets]).tolist():
                    if store != _NOBODY:
                        _judge(wave, insn, *self._stores[store])

    def _store_number(self, wave: Wave, insn: Instruction) -> int:
        rank, group = wave.workgroup.rank.number, wave.workgroup.number
        key = (rank, group, id(insn))
        if key not in self._store_numbers:
            self._store_numbers[key] = len(self._stores)
            self._stores.append((rank, group, insn))
        return self._store_numbers[key]


def _judge(wave: Wave, insn: Instruction, rank: int, group: int, store: Instruction) -> None:
    stored = f"rank {rank}, workgroup {group} stored by {store.describe()}"
    if insn.encoding == "SMEM":
        raise SharingError(f"scalar load of what {stored}")
    needed = Scope.WAVE
    if rank != wave.workgroup.rank.number:
        needed = Scope.SYSTEM
    elif group != wave.workgroup.number:
        needed = Scope.AGENT
    if scope_of(store) < needed:
        raise SharingError(f"load of what {stored}, without {needed.name.lower()} scope")


def _access(insn: Instruction) -> _Access | None:
    if insn.mnemonic.startswith("s_load_dword"):
        address = scalar_address(insn)
        return _Access(lambda wave: np.array([address(wave)], np.uint64), _width(insn), writes=False)
    if not (is_load(insn) or is_store(insn) or is_counter(insn)):
        return None
    return _Access(addressing(insn).addresses, _width(insn), writes=not is_load(insn))


def _width(insn: Instruction) -> int:
    """Bytes of memory that a lane accesses."""
    if words := _WORDS.search(insn.mnemonic):
        return 4 * int(words[1] or 1)
    if is_counter(insn):
        return 4 * ATOMICS[insn.mnemonic.split("_atomic_")[1]].words
    name = insn.mnemonic.split("_")[2]
    if name not in _NARROW:
        raise insn.unknown("width of an access")
    return _NARROW[name]
