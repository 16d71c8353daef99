"""Control flow of one kernel: which instructions follow which, loops, and what all paths have in common."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TypeVar

from . import flags
from .control import branch_target
from .decode import Instruction
from .flags import Flags, Key
from .machine import Module

State = TypeVar("State")

_ENDS = ("s_endpgm", "s_trap")
# they take their target from a register
_INDIRECT = ("s_setpc_b64", "s_swappc_b64", "s_call_b64", "s_rfe_b64")


class Flow:
    """The control flow graph of a kernel, from its entry.

    A node is an instruction together with the flags that are known there (see flags.py), so an instruction has several
    nodes, and the paths through them are those that no flag forbids.

    Attributes
    ----------
    instructions : list of Instruction
        Of each node; node 0 is the entry.
    following, preceding : list of list of int
        The nodes right after and right before each node.
    """

    def __init__(self, module: Module, kernel: str) -> None:
        """Follow the kernel's code.

        Raises
        ------
        UnknownInstructionError
            A branch whose target is not in the instruction.
        """
        code = module.instructions(kernel)
        targets = {insn.address: _targets(insn) for insn in code}
        at = {insn.address: insn for insn in code}
        live = _live_flags(at, targets)
        places = [(module.kernels[kernel].descriptor.entry, flags.AT_START)]
        nodes = {places[0]: 0}
        self.instructions: list[Instruction] = []
        self.following: list[list[int]] = []
        # the list grows while it is read
        for address, known in places:
            insn = at[address]
            self.instructions.append(insn)
            self.following.append([])
            for target, after in _taken(insn, known, targets[address]):
                place = (target, Flags(flag for flag in after if flag[0] in live[target]))
                if place not in nodes:
                    nodes[place] = len(places)
                    places.append(place)
                self.following[-1].append(nodes[place])
        self.preceding: list[list[int]] = [[] for _ in places]
        for node, edges in enumerate(self.following):
            for edge in edges:
                self.preceding[edge].append(node)

    def reachable(self, start: Iterable[int], *, within: set[int] | None = None, back: bool = False) -> set[int]:
        """Nodes on paths that begin right after (right before, if `back`) those of `start` and stay `within`."""
        edges = self.preceding if back else self.following
        found: set[int] = set()
        pending = list(start)
        while pending:
            for node in edges[pending.pop()]:
                if node not in found and (within is None or node in within):
                    found.add(node)
                    pending.append(node)
        return found

    def returning(self) -> set[int]:
        """Nodes from which the end of the kernel can be reached, rather than a trap alone."""
        ends = {node for node, insn in enumerate(self.instructions) if insn.mnemonic == "s_endpgm"}
        return self.reachable(ends, back=True) | ends

    def innermost_loop(self, node: int) -> set[int]:
        """Nodes of the smallest loop around `node`; empty when there is none."""
        loop: set[int] = set()
        within = set(range(len(self.instructions)))
        while True:
            cycle = self.reachable([node], within=within) & self.reachable([node], within=within, back=True)
            if node not in cycle:
                return loop
            loop = cycle
            # without the nodes by which it is entered, only what lies in inner loops is left of a loop
            within = {n for n in cycle if n != 0 and all(before in cycle for before in self.preceding[n])}
            if within == cycle:
                return loop

    def walk(self, start: int, state: State, visit: Callable[[int, State], State | None]) -> None:
        """Follow every path that begins right after `start`.

        `visit(node, state)` gives the state after the node, or None to follow the path no further. A node is visited
        once with each state.
        """
        seen: set[tuple[int, State]] = set()
        pending = [(node, state) for node in self.following[start]]
        while pending:
            place = pending.pop()
            if place not in seen:
                seen.add(place)
                after = visit(*place)
                if after is not None:
                    pending += [(node, after) for node in self.following[place[0]]]

    def solve(
        self, start: State, transfer: Callable[[int, State], State], join: Callable[[State, State], State]
    ) -> dict[int, State]:
        """The state before each node, joined over all paths from the entry, where `start` holds."""
        before = {0: start}
        pending = [0]
        while pending:
            node = pending.pop()
            after = transfer(node, before[node])
            for target in self.following[node]:
                joined = join(before[target], after) if target in before else after
                if target not in before or joined != before[target]:
                    before[target] = joined
                    pending.append(target)
        return before


def _targets(insn: Instruction) -> list[int]:
    """Addresses that may follow, a branch's target first."""
    if insn.mnemonic in _INDIRECT:
        raise insn.unknown("branch to an address in a register")
    if insn.mnemonic in _ENDS:
        return []
    if insn.mnemonic == "s_branch":
        return [branch_target(insn)]
    after = insn.address + insn.size
    return [branch_target(insn), after] if insn.mnemonic.startswith("s_cbranch") else [after]


def _taken(insn: Instruction, known: Flags, targets: list[int]) -> list[tuple[int, Flags]]:
    if len(targets) < 2:
        return [(target, after) for target in targets for after in flags.after(insn, known)]
    return [(targets[0] if jumps else targets[1], after) for jumps, after in flags.branches(insn, known)]


def _live_flags(at: dict[int, Instruction], targets: dict[int, list[int]]) -> dict[int, set[Key]]:
    """What some path from an address reads before it changes."""
    read = {address: flags.read(insn) for address, insn in at.items()}
    written = {address: flags.written(insn) for address, insn in at.items()}
    before: dict[int, list[int]] = {address: [] for address in at}
    for address, after in targets.items():
        for target in after:
            # code that nothing reaches may run past the kernel's end
            if target in before:
                before[target].append(address)
    live: dict[int, set[Key]] = {address: set() for address in at}
    pending = list(at)
    while pending:
        address = pending.pop()
        out = set[Key]().union(*(live.get(target, set()) for target in targets[address]))
        found = {key for key in out if not flags.changes(written[address], key)} | read[address]
        if found != live[address]:
            live[address] = found
            pending += before[address]
    return live
