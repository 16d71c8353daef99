"""The lint of the memory order: it passes what we ship, and each rule fails for a product that lacks one thing."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from sgl_amd_mono.build.compile import build, kernels
from sgl_amd_mono.device.base import WORKGROUP_THREADS
from sgl_amd_mono.errors import LaunchError
from sgl_amd_mono.program import Entry, Program, Slicing
from tests.kernel_sources import with_change, with_kernels

from . import memory_order as lint
from .device import IsaDevice, run_side_by_side
from .gfx950 import load
from .gfx950.flow import Flow
from .gfx950.scopes import Scope, is_counter, scope_of
from .harness import KERNELS
from .memory_order import Finding, findings

pytestmark = [pytest.mark.isa, pytest.mark.compile]

KERNEL = "order"
ATOMIC, GRID, WORKGROUP, ORDER = (
    "include/mono/atomic.h",
    "include/mono/grid.h",
    "include/mono/workgroup.h",
    f"kernels/{KERNEL}.hip",
)

POLL = "__builtin_amdgcn_readfirstlane(load_relaxed<kScope>(flag))"
WAITED = "    load_acquire<kScope>(flag);\n"
BARE_INVALIDATE = '    asm volatile("s_waitcnt vmcnt(0)\\nbuffer_inv" ::: "memory");\n'
AGENT_FENCE = '__builtin_amdgcn_fence(__ATOMIC_RELEASE, "agent");'
BARE_WRITE_BACK = 'asm volatile("buffer_wbl2" ::: "memory");'
MUTANTS = {
    # the next barrier is then raised without the acquire of the one before
    "no acquire after a wait": (GRID, WAITED, "", {lint.ACQUIRES, lint.CHAIN_ACQUIRES}),
    "no acquire of the epoch": (GRID, "epoch_ = load_acquire", "epoch_ = load_relaxed", {lint.ACQUIRES}),
    "no acquire by the last of a die": (
        GRID,
        "    load_acquire<Scope::kAgent>(arrivals);\n",
        "",
        {lint.CHAIN_ACQUIRES},
    ),
    "no acquire by the last die": (GRID, "    load_acquire<Scope::kSystem>(leaders);\n", "", {lint.CHAIN_ACQUIRES}),
    "leaders counted within the device": (
        GRID,
        "fetch_add_release<Scope::kSystem>(leaders",
        "fetch_add_release<Scope::kAgent>(leaders",
        {lint.COUNTER_SCOPE},
    ),
    "bare invalidate": (
        GRID,
        WAITED,
        BARE_INVALIDATE,
        {lint.SCOPED_MAINTENANCE, lint.ACQUIRES, lint.CHAIN_ACQUIRES},
    ),
    "bare write-back": (ATOMIC, AGENT_FENCE, BARE_WRITE_BACK, {lint.SCOPED_MAINTENANCE, lint.WRITTEN_BACK}),
    "no write-back before an arrival": (
        ATOMIC,
        "  release_fence<kScope>();\n  return",
        "  return",
        {lint.WRITTEN_BACK},
    ),
    # what clang 22 makes of a release
    "no wait for a write-back": (ATOMIC, "#178316)\n  complete_stores();\n", "#178316)\n", {lint.WRITE_BACK_ENDS}),
    "no wait for the other waves' stores": (GRID, "    complete_stores();\n", "", {lint.OTHER_WAVES_END}),
    "no write-back before a peer's flag": (
        ORDER,
        "store_release<Scope::kSystem>(args.flag",
        "store_relaxed<Scope::kSystem>(args.flag",
        {lint.WRITTEN_BACK},
    ),
    "no wait for the other waves' words": (ORDER, "    complete_stores();\n", "", {lint.OTHER_WAVES_END}),
    "a peer's flag in front of the words": (
        ORDER,
        "    complete_stores();\n    workgroup_barrier();\n    if (thread() == 0) store_release",
        "    if (thread() == 0) store_relaxed",
        {lint.STORES_END, lint.OTHER_WAVES_END, lint.WRITTEN_BACK},
    ),
    "poll within the workgroup": (GRID, POLL, POLL.replace("kScope", "Scope::kWorkgroup"), {lint.POLL_BYPASSES}),
    "poll that only hints": (
        GRID,
        POLL,
        "__builtin_nontemporal_load((volatile u32 __attribute__((address_space(1)))*)flag.address)",
        {lint.POLL_BYPASSES},
    ),
    "poll without a pause": (GRID, "      __builtin_amdgcn_s_sleep(1);\n", "", {lint.POLL_PAUSES}),
    "wait without a deadline": (GRID, "if (clock_ticks() > deadline)", "if (epoch == 0)", {lint.POLL_PAUSES}),
    "LDS written behind a barrier": (
        WORKGROUP,
        '  __builtin_amdgcn_fence(__ATOMIC_RELEASE, "workgroup");\n',
        "",
        {lint.LDS_ENDS},
    ),
}


WORKGROUPS, VALUE = 5, 1000
EXECUTOR = Path(__file__).parents[1] / "hip" / "kernels" / "executor.hip"


@pytest.fixture(scope="module")
def order(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The product's headers with kernels/order.hip."""
    return with_kernels(tmp_path_factory.mktemp("hip"), KERNELS / f"{KERNEL}.hip")


class Exchange:
    """One rank that runs kernels/order.hip on the interpreter, and its buffers."""

    def __init__(self, sources: Path, peer: Exchange | None = None) -> None:
        artifact = build(KERNEL, "gfx950", sources=sources)
        self.device = IsaDevice(artifact, f"{KERNEL}_step", workgroups=WORKGROUPS, seed=1)
        self.cells, self.kept, self.sums, self.received = torch.zeros(
            4, WORKGROUPS, WORKGROUP_THREADS, dtype=torch.int32
        )
        self.words = VALUE + torch.arange(WORKGROUP_THREADS, dtype=torch.int32)
        self.inbox, self.flag = torch.zeros_like(self.words), torch.zeros(1, dtype=torch.int32)
        to = peer or self
        self.arguments = {
            "give": {"cells": self.cells, "kept": self.kept, "value": VALUE},
            "take": {"cells": self.cells, "sums": self.sums},
            "send": {"inbox": to.inbox, "flag": to.flag, "value": VALUE, "epoch": 1},
            "receive": {"inbox": self.inbox, "flag": self.flag, "received": self.received, "epoch": 1},
        }

    def program(self, *phases: str) -> Program:
        # whoever receives does not wait for the other workgroups to send
        entries = [Entry(phase=p, layer=0, args=self.arguments[p], sync=p != "send") for p in phases]
        program = Program(self.device, entries)
        self.device.watch(program)
        return program

    def run(self, *phases: str) -> None:
        self.program(*phases).run(Slicing.STEP)


def lint_of(sources: Path) -> list[Finding]:
    return findings(load(build(KERNEL, "gfx950", sources=sources).binary.read_bytes()))


@pytest.mark.parametrize("kernel", kernels())
def test_product_kernels_pass(kernel: str) -> None:
    module = load(build(kernel, "gfx950").binary.read_bytes())
    assert findings(module) == []
    for name in module.kernels:
        found = Flow(module, name).instructions
        # else the lint has nothing to judge
        assert any(insn.mnemonic == "s_sleep" for insn in found)
        assert any(is_counter(insn) for insn in found)
        assert {scope_of(insn) for insn in found if insn.mnemonic in ("buffer_wbl2", "buffer_inv")} == {
            Scope.AGENT,
            Scope.SYSTEM,
        }


def test_exchanges_of_workgroups_and_ranks_pass(order: Path) -> None:
    """And they work: every word arrives, on paths that the lint has followed."""
    assert lint_of(order) == []
    exchange = Exchange(order)
    exchange.run("give", "take", "send", "receive")
    given = VALUE + torch.arange(WORKGROUPS * WORKGROUP_THREADS, dtype=torch.int32).view(WORKGROUPS, -1).flip(1)
    assert torch.equal(exchange.kept, given)
    assert torch.equal(exchange.sums, given.sum(0, dtype=torch.int32).expand_as(given))
    assert torch.equal(exchange.received, exchange.words.expand_as(given))
    executed = {entry.insn.address for entry in exchange.device.module.entries}
    assert executed <= {insn.address for insn in Flow(exchange.device.module, f"{KERNEL}_step").instructions}


def test_a_wait_behind_an_early_return_passes(tmp_path: Path) -> None:
    """Of the phases of tests/hip, two are wrong on a GPU: a ticket that is not acquired, a flag that does not wait for
    the other waves. The waits are right, though the compiler puts what follows them on paths around them."""
    sources = with_kernels(tmp_path, EXECUTOR)
    found = findings(load(build(EXECUTOR.stem, "gfx950", sources=sources).binary.read_bytes()))
    assert {finding.rule for finding in found} == {lint.CHAIN_ACQUIRES, lint.OTHER_WAVES_END}


@pytest.mark.parametrize(("file", "old", "new", "rules"), MUTANTS.values(), ids=MUTANTS)
def test_a_mutant_breaks_its_rule(tmp_path: Path, file: str, old: str, new: str, rules: set[str]) -> None:
    found = lint_of(with_change(tmp_path / "hip", file, old, new, KERNELS / f"{KERNEL}.hip"))
    assert {finding.rule for finding in found} == rules
    assert all(str(finding).startswith(f"{KERNEL}_step: {finding.rule}: ") for finding in found)


def test_a_store_for_others_without_its_scope_is_seen(tmp_path: Path) -> None:
    agent, workgroup = "__ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_AGENT", "__ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_WORKGROUP"
    sources = with_change(tmp_path / "hip", "include/mono/global.h", agent, workgroup, KERNELS / f"{KERNEL}.hip")
    stored = r"load of what rank 0, workgroup \d stored by global_store_dword at .*, without agent scope"
    with pytest.raises(LaunchError, match=rf"global_load_dword at .*{stored}"):
        Exchange(sources).run("give", "take")


def test_a_store_for_peers_without_their_scope_is_seen(order: Path) -> None:
    """Our publish is for the workgroups of a device; it does not do between ranks."""
    receiver = Exchange(order)
    sender = Exchange(order, peer=receiver)
    with pytest.raises(LaunchError, match=r"load of what rank 0, workgroup 0 stored by .*, without system scope"):
        run_side_by_side(
            [
                (sender.device, sender.program("send").launch_args(0, 1)),
                (receiver.device, receiver.program("receive").launch_args(0, 1)),
            ]
        )


def test_a_scalar_load_of_what_the_launch_stores_is_seen(tmp_path: Path) -> None:
    load_of = ("args.cells.load(g * kWorkgroupThreads + thread())", "load_constant(args.cells.address + g)")
    sources = with_change(tmp_path / "hip", ORDER, *load_of, KERNELS / f"{KERNEL}.hip")
    with pytest.raises(LaunchError, match=r"s_load_dword.* at .*scalar load of what rank 0, workgroup \d stored by"):
        Exchange(sources).run("give", "take")


def test_every_rule_has_a_mutant() -> None:
    rules = {value for name, value in vars(lint).items() if name.isupper() and isinstance(value, str)}
    assert rules == set().union(*(rules for *_, rules in MUTANTS.values()))
