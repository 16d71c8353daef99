"""The lint of the memory order: it passes what we ship, and each rule fails for a product that lacks one thing."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from sgl_amd_mono.build.compile import build, kernels
from sgl_amd_mono.device.base import WORKGROUP_THREADS
from sgl_amd_mono.program import Entry, Program, Slicing
from tests.kernel_sources import with_change, with_kernels

from . import memory_order as lint
from .device import IsaDevice
from .gfx950 import load
from .gfx950.flow import Flow
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


def lint_of(sources: Path) -> list[Finding]:
    return findings(load(build(KERNEL, "gfx950", sources=sources).binary.read_bytes()))


def executed(device: IsaDevice) -> set[int]:
    return {entry.insn.address for entry in device.module.entries}


@pytest.mark.parametrize("kernel", kernels())
def test_product_kernels_pass(kernel: str) -> None:
    module = load(build(kernel, "gfx950").binary.read_bytes())
    assert findings(module) == []
    for name in module.kernels:
        found = Flow(module, name).instructions
        # else the lint has nothing to judge
        assert any(insn.mnemonic == "s_sleep" for insn in found)
        assert any(lint.is_counter(insn) for insn in found)
        assert {lint.scope_of(insn) for insn in found if insn.mnemonic in ("buffer_wbl2", "buffer_inv")} == {
            lint.Scope.AGENT,
            lint.Scope.SYSTEM,
        }


def test_exchanges_of_workgroups_and_ranks_pass(tmp_path: Path) -> None:
    """And they work: every word arrives, on paths that the lint has followed."""
    sources = with_kernels(tmp_path, KERNELS / f"{KERNEL}.hip")
    assert lint_of(sources) == []

    workgroups, value = 5, 1000
    device = IsaDevice(build(KERNEL, "gfx950", sources=sources), f"{KERNEL}_step", workgroups=workgroups, seed=1)
    cells, kept, sums, received = torch.zeros(4, workgroups, WORKGROUP_THREADS, dtype=torch.int32)
    inbox, flag = torch.zeros(WORKGROUP_THREADS, dtype=torch.int32), torch.zeros(1, dtype=torch.int32)
    arguments = {
        "give": {"cells": cells, "kept": kept, "value": value},
        "take": {"cells": cells, "sums": sums},
        "send": {"inbox": inbox, "flag": flag, "value": value, "epoch": 1},
        "receive": {"inbox": inbox, "flag": flag, "received": received, "epoch": 1},
    }
    entries = [Entry(phase=phase, layer=0, args=args, sync=phase != "send") for phase, args in arguments.items()]
    program = Program(device, entries)
    device.watch(program)
    program.run(Slicing.STEP)
    given = value + torch.arange(workgroups * WORKGROUP_THREADS).view(workgroups, -1).flip(1)
    assert torch.equal(kept, given.int())
    assert torch.equal(sums, given.sum(0).int().expand_as(sums))
    assert torch.equal(received, (value + torch.arange(WORKGROUP_THREADS)).int().expand_as(received))
    assert executed(device) <= {insn.address for insn in Flow(device.module, f"{KERNEL}_step").instructions}


@pytest.mark.parametrize(("file", "old", "new", "rules"), MUTANTS.values(), ids=MUTANTS)
def test_a_mutant_breaks_its_rule(tmp_path: Path, file: str, old: str, new: str, rules: set[str]) -> None:
    found = lint_of(with_change(tmp_path / "hip", file, old, new, KERNELS / f"{KERNEL}.hip"))
    assert {finding.rule for finding in found} == rules
    assert all(str(finding).startswith(f"{KERNEL}_step: {finding.rule}: ") for finding in found)


def test_every_rule_has_a_mutant() -> None:
    rules = {value for name, value in vars(lint).items() if name.isupper() and isinstance(value, str)}
    assert rules == set().union(*(rules for *_, rules in MUTANTS.values()))
