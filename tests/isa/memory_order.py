"""Lint of the memory order in gfx950 machine code: what one workgroup or rank publishes, another one finds.

The interpreter runs every access at once and in order, so it cannot miss a wait, a write-back or an invalidate; this
lint judges them on the paths through the disassembly. Source of the rules: LLVM AMDGPUUsage, "Memory Model GFX942",
which gfx950 shares.

The terms: a *raise* makes others go on: a read-modify-write, or a store of system scope. A *poll* or an *acquire* is a
load of agent or system scope. On paths that can only end in a trap none of the three is judged.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

from .gfx950.decode import Instruction
from .gfx950.flow import Flow
from .gfx950.machine import Module
from .gfx950.scopes import Scope, is_access, is_acquire, is_counter, is_lds_write, is_load, is_raise, is_store, scope_of

SCOPED_MAINTENANCE = "cache maintenance has agent or system scope"
WRITE_BACK_ENDS = "a write-back is waited for before anything is raised or stored"
POLL_BYPASSES = "a wait polls past the caches"
POLL_PAUSES = "a poll pauses and has a deadline"
ACQUIRES = "what a poll or an acquire allows follows its invalidate"
CHAIN_ACQUIRES = "who raises because of a counter acquires it first"
COUNTER_SCOPE = "a counter is acquired in the scope in which it is raised"
WRITTEN_BACK = "stores are written back before a raise"
STORES_END = "the wave's stores have ended before a raise"
OTHER_WAVES_END = "the stores of every wave have ended at the barrier before a raise"
LDS_ENDS = "LDS writes have ended before a barrier"

# s_waitcnt: the bits of each counter
_VECTOR_COUNT, _LDS_COUNT = 0xC00F, 0x0F00


Broken: TypeAlias = tuple[str, int, "int | None"]
"""A rule, the node that breaks it, and the node because of which it does."""


@dataclass(frozen=True)
class Finding:
    """One instruction that breaks one rule."""

    rule: str
    kernel: str
    where: str

    def __str__(self) -> str:
        return f"{self.kernel}: {self.rule}: {self.where}"


class Pending(NamedTuple):
    """What a path has left open, each with the node of an instruction that did it."""

    stored: int | None = None
    """A store of this wave is under way."""
    stored_by_others: int | None = None
    """A store was under way in some wave at the last barrier."""
    unseen_by_agent: int | None = None
    """A store has not been written back to where the device's other workgroups see it."""
    unseen_by_system: int | None = None
    """A store has not been written back to where peers see it."""
    lds_stored: int | None = None
    """A write to LDS is under way."""

    def joined(self, other: Pending) -> Pending:
        """What is open where two paths meet."""
        return Pending(*(b if a is None else a for a, b in zip(self, other, strict=True)))


def findings(module: Module) -> list[Finding]:
    """What the kernels of a module break, by rule and address."""
    return [found for kernel in module.kernels for found in KernelLint(module, kernel).findings()]


class KernelLint:
    """The lint of one kernel."""

    def __init__(self, module: Module, kernel: str) -> None:
        self.kernel = kernel
        self.flow = Flow(module, kernel)
        self.returning = self.flow.returning()

    def findings(self) -> list[Finding]:
        """Each rule over the whole kernel; what several paths have in common is told once."""
        found = {(rule, *self._places(node, cause)): (node, cause) for rule, node, cause in self._broken()}
        return [Finding(key[0], self.kernel, self._describe(*found[key])) for key in sorted(found)]

    def _places(self, node: int, cause: int | None) -> tuple[int, int]:
        at = self.flow.instructions
        return at[node].address, -1 if cause is None else at[cause].address

    def _describe(self, node: int, cause: int | None) -> str:
        after = "" if cause is None else f", after {self.flow.instructions[cause].describe()}"
        return self.flow.instructions[node].describe() + after

    def _broken(self) -> Iterator[Broken]:
        for node, insn in enumerate(self.flow.instructions):
            if insn.mnemonic in ("buffer_inv", "buffer_wbl2") and scope_of(insn) < Scope.AGENT:
                yield SCOPED_MAINTENANCE, node, None
            if insn.mnemonic == "buffer_wbl2":
                yield from self._write_back(node)
            if insn.mnemonic == "s_sleep" and node in self.returning:
                yield from self._wait_loop(node)
            if node in self.returning and is_acquire(insn):
                yield from self._acquire(node)
                yield from self._pause(node)
            if node in self.returning and is_counter(insn):
                yield from self._chain(node)
        yield from self._releases()

    def _write_back(self, start: int) -> list[Broken]:
        broken: list[Broken] = []

        def visit(node: int, state: bool) -> bool | None:
            insn = self.flow.instructions[node]
            if waits_for(insn, _VECTOR_COUNT):
                return None
            if is_store(insn) or is_counter(insn) or insn.mnemonic == "s_barrier":
                broken.append((WRITE_BACK_ENDS, node, start))
                return None
            return state

        self.flow.walk(start, True, visit)
        return broken

    def _wait_loop(self, sleep: int) -> Iterator[Broken]:
        body = [self.flow.instructions[n] for n in self.flow.innermost_loop(sleep)]
        loads = [insn for insn in body if is_load(insn)]
        if not loads or not all(is_acquire(insn) and not insn.fields["nt"] for insn in loads):
            yield POLL_BYPASSES, sleep, None
        if not any(insn.mnemonic == "s_memrealtime" for insn in body):
            yield POLL_PAUSES, sleep, None

    def _pause(self, load: int) -> Iterator[Broken]:
        names = {self.flow.instructions[n].mnemonic for n in self.flow.innermost_loop(load)}
        # the loop over a program's entries holds a barrier, and acquires that are no polls
        if names and not names & {"s_sleep", "s_barrier"}:
            yield POLL_PAUSES, load, None

    def _acquire(self, load: int) -> list[Broken]:
        scope = scope_of(self.flow.instructions[load])
        broken: list[Broken] = []

        def visit(node: int, waited: bool) -> bool | None:
            insn = self.flow.instructions[node]
            if node not in self.returning or insn.mnemonic == "s_endpgm":
                return None
            if insn.mnemonic == "buffer_inv" and waited and scope_of(insn) >= scope:
                return None
            if waits_for(insn, _VECTOR_COUNT):
                return True
            if is_acquire(insn):
                return False
            if is_access(insn) or insn.mnemonic in ("s_barrier", "buffer_inv"):
                broken.append((ACQUIRES, node, load))
                return None
            return waited

        self.flow.walk(load, False, visit)
        return broken

    def _chain(self, start: int) -> list[Broken]:
        counter = self.flow.instructions[start]
        broken: list[Broken] = []

        def visit(node: int, state: bool) -> bool | None:
            insn = self.flow.instructions[node]
            if node not in self.returning:
                return None
            if insn.mnemonic == "buffer_inv" and scope_of(insn) >= scope_of(counter):
                return None
            if is_raise(insn):
                broken.append((CHAIN_ACQUIRES, node, start))
                return None
            if is_acquire(insn) and place_of(insn) == place_of(counter) and scope_of(insn) != scope_of(counter):
                broken.append((COUNTER_SCOPE, node, start))
            return state

        self.flow.walk(start, True, visit)
        return broken

    def _releases(self) -> Iterator[Broken]:
        for node, pending in self.flow.solve(Pending(), self._pending_after, Pending.joined).items():
            insn = self.flow.instructions[node]
            if insn.mnemonic == "s_barrier" and pending.lds_stored is not None:
                yield LDS_ENDS, node, pending.lds_stored
            if node in self.returning and is_raise(insn):
                to_system = scope_of(insn) is Scope.SYSTEM
                for rule, cause in (
                    (STORES_END, pending.stored),
                    (OTHER_WAVES_END, pending.stored_by_others),
                    (WRITTEN_BACK, pending.unseen_by_system if to_system else pending.unseen_by_agent),
                ):
                    if cause is not None:
                        yield rule, node, cause

    def _pending_after(self, node: int, state: Pending) -> Pending:
        return _after(self.flow.instructions[node], node, state)


def _after(insn: Instruction, node: int, state: Pending) -> Pending:
    if is_store(insn) and not is_raise(insn):
        state = state._replace(stored=node, unseen_by_system=node)
        return state._replace(unseen_by_agent=node) if scope_of(insn) < Scope.AGENT else state
    if insn.mnemonic == "buffer_wbl2":
        scope = scope_of(insn)
        if scope >= Scope.AGENT:
            state = state._replace(unseen_by_agent=None)
        return state._replace(unseen_by_system=None) if scope is Scope.SYSTEM else state
    if is_lds_write(insn):
        return state._replace(lds_stored=node)
    if insn.mnemonic == "s_barrier":
        return state._replace(stored_by_others=state.stored)
    if waits_for(insn, _VECTOR_COUNT):
        state = state._replace(stored=None)
    return state._replace(lds_stored=None) if waits_for(insn, _LDS_COUNT) else state


def waits_for(insn: Instruction, counter: int) -> bool:
    """Whether the instruction waits until everything that a counter counts has ended."""
    return insn.mnemonic == "s_waitcnt" and not insn.fields["simm16"] & counter


def place_of(insn: Instruction) -> tuple[int, ...]:
    """The registers and the offset that address a global access."""
    return tuple(insn.fields[name] for name in ("saddr", "addr", "offset"))
