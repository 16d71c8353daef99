"""The executor of hip/host: what it runs, in which order, and what it reports instead of hanging."""

from __future__ import annotations

import itertools
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from sgl_amd_mono.build.compile import HOST, build
from sgl_amd_mono.build.gates import violations
from sgl_amd_mono.device.host import HostDevice, HostLaunchError, Status, run_side_by_side
from sgl_amd_mono.program import Entry, FaultKind, Program, Slicing

pytestmark = pytest.mark.host

Devices = Callable[..., HostDevice]
WAVES = 4


def words(count: int) -> torch.Tensor:
    return torch.zeros(count, dtype=torch.int32)


@pytest.mark.compile
def test_the_kernel_is_one_for_the_device_too(sources: Path) -> None:
    """These phases meet the device's gates: none of them works on the host alone."""
    assert violations(build("executor", "gfx950", sources=sources)) == ()


@pytest.mark.parametrize(
    ("mode", "who", "first", "second"),
    [
        (0, "Lanes of one wave diverge", "wave reduction", "wave reduction"),
        (1, "Threads of one workgroup wait for each other", "workgroup barrier", "has returned"),
        (2, "Threads of one workgroup diverge", "workgroup barrier", "workgroup barrier"),
        (3, "Threads of one workgroup wait for each other", "wave reduction", "has returned"),
    ],
)
def test_divergence_is_reported_with_file_and_line(
    mode: int, who: str, first: str, second: str, executor: Devices
) -> None:
    out = torch.zeros(256)
    program = Program(executor(), [Entry(phase="diverge", layer=0, args={"out": out, "mode": mode})])
    with pytest.raises(HostLaunchError, match=who) as raised:
        program.run(Slicing.STEP)
    assert raised.value.status is Status.DIVERGENCE
    one, other = str(raised.value).split(", but ")
    assert first in one
    assert second in other
    assert "executor.hip:" in one


def tickets(device: HostDevice) -> list[int]:
    taken = words(device.workgroups * WAVES)
    entry = Entry(phase="take_ticket", layer=0, args={"counter": words(1), "tickets": taken})
    Program(device, [entry]).run(Slicing.STEP)
    assert sorted(taken.tolist()) == list(range(len(taken)))
    return taken.tolist()


def test_the_seed_decides_the_order(executor: Devices) -> None:
    assert tickets(executor(workgroups=6)) == tickets(executor(workgroups=6))
    orders = {tuple(tickets(executor(workgroups=6, seed=seed))) for seed in range(1, 9)}
    assert len(orders) == 8
    assert tickets(executor(workgroups=6, seed=3)) == tickets(executor(workgroups=6, seed=3))


def test_lds_is_poisoned_before_every_phase(executor: Devices) -> None:
    first, second = torch.zeros(256), torch.zeros(256)
    entries = [Entry(phase="read_lds", layer=i, args={"out": out}) for i, out in enumerate((first, second))]
    Program(executor(workgroups=1), entries).run(Slicing.STEP)
    assert first.isnan().all()
    assert second.isnan().all()


def test_a_deadlock_names_who_waits_for_what(executor: Devices) -> None:
    """The launch ends with the fault record that the device writes at the deadline."""
    entry = Entry(phase="wait_for_flag", layer=5, args={"flag": words(1), "epoch": 7, "first": 2})
    program = Program(executor(workgroups=4), [entry], rank=3)
    with pytest.raises(HostLaunchError, match="Nobody can continue") as raised:
        program.run(Slicing.STEP)
    assert raised.value.status is Status.DEADLOCK
    for workgroup in (2, 3):
        assert f"workgroup {workgroup}, thread" in str(raised.value)
    assert "waits for a flag to reach 7 (it is 0)" in str(raised.value)
    fault = program.fault()
    assert fault is not None
    assert (fault.kind, fault.rank, fault.phase, fault.layer) == (FaultKind.TIMEOUT, 3, "wait_for_flag", 5)
    assert (fault.workgroup, fault.expected, fault.seen) == (2, 7, 0)
    assert "rank 3, layer 5, phase wait_for_flag, workgroup 2: a wait passed its deadline" in str(raised.value)


def test_a_waiter_does_not_starve_its_own_workgroup(executor: Devices) -> None:
    for seed in range(4):
        entry = Entry(phase="wait_for_neighbour", layer=0, args={"flags": words(5)})
        Program(executor(workgroups=5, seed=seed), [entry]).run(Slicing.STEP)


def test_ranks_run_side_by_side(executor: Devices) -> None:
    """Rank 0 waits for a flag that rank 1 raises; without rank 1 that is a deadlock."""
    for seed in range(4):
        flag = words(1)
        waiting = Program(
            executor(seed=seed), [Entry(phase="wait_for_flag", layer=0, args={"flag": flag, "epoch": 2, "first": 0})]
        )
        raising = Program(executor(), [Entry(phase="raise_flag", layer=0, args={"flag": flag, "epoch": 2})])
        pair = [(program.device, program.launch_args(0, 1)) for program in (waiting, raising)]
        run_side_by_side([(device, args) for device, args in pair if isinstance(device, HostDevice)])
    with pytest.raises(HostLaunchError, match="Nobody can continue"):
        Program(
            executor(), [Entry(phase="wait_for_flag", layer=0, args={"flag": words(1), "epoch": 2, "first": 0})]
        ).run(Slicing.STEP)


def exchange(device: HostDevice, rounds: int) -> tuple[list[Entry], torch.Tensor]:
    cells, sums = words(device.workgroups), torch.zeros(rounds, device.workgroups, dtype=torch.int32)
    entries = []
    for i in range(rounds):
        entries.append(Entry(phase="put", layer=i, args={"cells": cells, "value": 1000 * i}))
        entries.append(Entry(phase="take", layer=i, args={"cells": cells, "sums": sums[i]}))
    return entries, sums


@pytest.mark.parametrize("workgroups", [1, 3, 8, 9, 64, 256])
def test_grid_barrier(workgroups: int, executor: Devices) -> None:
    """Several launches in a row go on with the epochs of the ones before; every sum sees every cell of its round."""
    device = executor(workgroups=workgroups, seed=workgroups)
    rounds = 3
    entries, sums = exchange(device, rounds)
    program = Program(device, entries)
    for _ in range(2):
        sums.zero_()
        program.run(Slicing.STEP)
        indices = sum(range(workgroups))
        expected = [[1000 * i * workgroups + indices] * workgroups for i in range(rounds)]
        assert sums.tolist() == expected
    barriers = sum(counted.grid_barriers for counted in device.counters().values())
    assert barriers == 2 * (2 * rounds - 1)


def test_a_missing_barrier_is_seen_under_some_seed(executor: Devices) -> None:
    """The same program without its grid barriers reads cells too early in at least one of eight schedules."""
    wrong = 0
    for seed in range(1, 9):
        device = executor(workgroups=8, seed=seed)
        entries, sums = exchange(device, 2)
        unsynchronised = [Entry(phase=e.phase, layer=e.layer, args=e.args, sync=False) for e in entries]
        Program(device, unsynchronised).run(Slicing.STEP)
        wrong += sums.tolist() != [[28] * 8, [8028] * 8]
    assert wrong > 0


def test_epochs_pass_the_end_of_32_bits(executor: Devices) -> None:
    """The counters of a grid of nine are set to what 2^32 - 2 barriers leave; five more are right."""
    workgroups, epoch = 9, 2**32 - 2
    device = executor(workgroups=workgroups, seed=1)
    entries, sums = exchange(device, 3)
    program = Program(device, entries)
    lines = program._grid.view(torch.int32).view(-1, 32)

    def low_32_bits(value: int) -> int:
        return (value & 0xFFFFFFFF) - (1 << 32 if value & 0x80000000 else 0)

    groups = 8
    for group in range(groups):
        size = (workgroups - group + groups - 1) // groups
        lines[group, 0] = low_32_bits(epoch * size)
        lines[groups + 1 + group, 0] = low_32_bits(epoch)
    lines[groups, 0] = low_32_bits(epoch * groups)
    program.run(Slicing.STEP)
    assert sums.tolist() == [[1000 * i * workgroups + 36] * workgroups for i in range(3)]
    assert lines[groups + 1, 0] == 3


def test_a_stack_that_overflows_is_reported(sources: Path) -> None:
    device = HostDevice("overflow", workgroups=1, artifact=build("overflow", HOST, sources=sources))
    program = Program(device, [Entry(phase="use_stack", layer=0, args={"out": words(1)})])
    with pytest.raises(HostLaunchError, match=r"kernel overflow_step used more than \d+ bytes of stack") as raised:
        program.run(Slicing.STEP)
    assert raised.value.status is Status.INVALID


def test_what_does_not_fit_the_kernel_is_refused(executor: Devices) -> None:
    device = executor()
    program = Program(device, [Entry(phase="read_lds", layer=0, args={"out": torch.zeros(256)})])
    args = program.launch_args(0, 1)
    with pytest.raises(HostLaunchError, match=f"takes {len(args)} bytes of arguments, not {len(args) - 8}"):
        device.launch(args[:-8])
    device.workgroups = 0
    with pytest.raises(HostLaunchError, match="has no workgroup"):
        device.launch(args)
    device.workgroups = 1
    device._entry = b"absent"
    with pytest.raises(HostLaunchError, match="There is no kernel absent"):
        device.launch(args)


def test_slices(executor: Devices) -> None:
    """By hand: layers 0, 0, 1, 0."""
    entries = [Entry(phase="read_lds", layer=layer, args={"out": torch.zeros(256)}) for layer in (0, 0, 1, 0)]
    program = Program(executor(), entries)
    assert program.slices(Slicing.STEP) == [(0, 4)]
    assert program.slices(Slicing.LAYER) == [(0, 2), (2, 3), (3, 4)]
    assert program.slices(Slicing.PHASE) == [(0, 1), (1, 2), (2, 3), (3, 4)]
    assert program.slices(Slicing.LAYER, 1, 3) == [(1, 2), (2, 3)]
    for slicing in Slicing:
        assert program.slices(slicing, 2, 2) == []
        assert list(itertools.chain(*(range(*s) for s in program.slices(slicing, 1)))) == [1, 2, 3]


def wait_with_peers(device: HostDevice, flag: torch.Tensor, deadline_s: float) -> Program:
    entry = Entry(phase="wait_for_flag", layer=1, args={"flag": flag, "epoch": 3, "first": 0})
    return Program(device, [entry], deadline_s=deadline_s)


def test_a_flag_that_another_process_raises(executor: Devices, tmp_path: Path) -> None:
    """The peer starts late and writes through a mapping of its own."""
    path = tmp_path / "flag"
    path.write_bytes(bytes(4))
    flag = torch.from_file(str(path), shared=True, size=1, dtype=torch.int32)
    code = (
        "import sys, time; time.sleep(0.3); f = open(sys.argv[1], 'r+b'); f.write((3).to_bytes(4, 'little')); f.close()"
    )
    peer = subprocess.Popen([sys.executable, "-c", code, str(path)])
    wait_with_peers(executor(has_peers=True), flag, deadline_s=60).run(Slicing.STEP)
    assert flag.item() == 3
    assert peer.wait() == 0


def test_a_peer_that_never_comes_passes_the_deadline(executor: Devices) -> None:
    program = wait_with_peers(executor(has_peers=True), words(1), deadline_s=0.2)
    begin = time.monotonic()
    with pytest.raises(HostLaunchError, match="A wait passed its deadline: launch 0, workgroup"):
        program.run(Slicing.STEP)
    assert time.monotonic() - begin >= 0.2
    fault = program.fault()
    assert fault is not None
    assert (fault.kind, fault.expected, fault.seen) == (FaultKind.TIMEOUT, 3, 0)
