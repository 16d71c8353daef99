"""A persistent kernel with grid barriers, on several ranks that exchange flags; and runs that end badly."""

from __future__ import annotations

import struct

import numpy as np
import pytest

from .gfx950 import BudgetError, Launch, Memory, Module, TrapError, run
from .harness import hip_module, run_kernel

pytestmark = pytest.mark.isa

THREADS = 256


MAX_RANKS, LINE_WORDS = 8, 32


class Ranks:
    """Memory and launches of kernels/persistent.hip."""

    def __init__(self, module: Module, ranks: int, workgroups: int, iterations: int) -> None:
        self.memory = Memory()
        self.results = np.zeros((ranks, workgroups, THREADS), np.uint32)
        self.visits = np.zeros((ranks, 1), np.uint32)
        state = {
            name: np.zeros((ranks, words), np.uint32)
            for name, words in (
                ("counter", 1),
                ("flags", MAX_RANKS * LINE_WORDS),
                ("partial", workgroups),
                ("inbox", 2 * MAX_RANKS),
            )
        }
        pointers = [
            self.memory.place(words[r], f"{name} of rank {r}") for r in range(ranks) for name, words in state.items()
        ]
        table = struct.pack(f"<{4 * MAX_RANKS}Q", *pointers, *[0] * (4 * (MAX_RANKS - ranks)))
        self.launches = []
        for r in range(ranks):
            own = (self.memory.place(self.results[r]), self.memory.place(self.visits[r]))
            kernarg = table + struct.pack("<QQIIII", *own, r, ranks, workgroups, iterations)
            self.launches.append(Launch(module, "persistent", kernarg, workgroups, THREADS))


def expected_state(ranks: int, workgroups: int, iterations: int) -> int:
    state = [1 + r for r in range(ranks)]
    for i in range(iterations):
        sums = [sum(state[r] * (w + 1) + i for w in range(workgroups)) for r in range(ranks)]
        joint = 0
        for value in sums:
            joint = (joint * 31 + value) % 2**32
        state = [joint] * ranks
    return state[0]


@pytest.mark.parametrize("seed", range(3))
def test_persistent_ranks(seed: int) -> None:
    ranks, workgroups, iterations = 2, 8, 3
    job = Ranks(hip_module("persistent"), ranks, workgroups, iterations)
    counts = run(job.launches, job.memory, seed)
    np.testing.assert_array_equal(job.results, expected_state(ranks, workgroups, iterations))
    assert job.visits.ravel().tolist() == [workgroups * THREADS] * ranks
    # what orders one workgroup's data before another's: LLVM's agent- and system-scope releases and acquires
    for scoped in (
        ("buffer_wbl2", "sc1"),
        ("buffer_inv", "sc1"),
        ("buffer_wbl2", "sc0 sc1"),
        ("buffer_inv", "sc0 sc1"),
    ):
        assert counts.scopes[scoped] > 0


def test_a_seed_gives_the_same_run_again() -> None:
    def total(seed: int) -> int:
        job = Ranks(hip_module("persistent"), 2, 4, 2)
        return run(job.launches, job.memory, seed).total

    assert total(11) == total(11)
    assert len({total(seed) for seed in range(4)}) > 1


def test_a_missing_rank_is_an_error_and_says_who_waits() -> None:
    job = Ranks(hip_module("persistent"), 2, 2, 1)
    with pytest.raises(BudgetError, match=r"rank 0 \(persistent\), workgroup 0, wave 0 before 0x"):
        run(job.launches[:1], job.memory, max_instructions=20_000)


def test_a_trap_is_an_error() -> None:
    x = np.arange(THREADS, dtype=np.uint32) + 1000
    run_kernel(hip_module("memory"), "trap", x)
    x[77] = 7
    with pytest.raises(TrapError, match=r"s_trap at .*wave 1\): s_trap 2"):
        run_kernel(hip_module("memory"), "trap", x)
