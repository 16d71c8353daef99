"""Our own small kernels, compiled by clang, against numpy and plain Python: what Triton's binaries do not reach."""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import numpy.typing as npt
import pytest

from .gfx950 import BudgetError, Launch, Memory, Module, TrapError, run
from .harness import hip_module, run_kernel

pytestmark = pytest.mark.isa

Array = npt.NDArray[Any]

LANES = 64
THREADS = 256
# what kernels/lanes.hip keeps where a source lane does not exist
OLD = 1000


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng(7)


# ---- lanes


def row(lane: int) -> int:
    return lane // 16 * 16


# source lane of each control in the order of the kernel, None where there is none
DPP: dict[str, Callable[[int], int | None]] = {
    "quad_perm:[3,2,1,0]": lambda i: i ^ 3,
    "quad_perm:[1,0,3,2]": lambda i: i ^ 1,
    "row_shl:1": lambda i: i + 1 if i % 16 < 15 else None,
    "row_shl:15": lambda i: i + 15 if i % 16 == 0 else None,
    "row_shr:1": lambda i: i - 1 if i % 16 > 0 else None,
    "row_shr:8": lambda i: i - 8 if i % 16 > 7 else None,
    "row_ror:1": lambda i: row(i) + (i + 15) % 16,
    "row_ror:12": lambda i: row(i) + (i + 4) % 16,
    "wave_shl:1": lambda i: i + 1 if i < 63 else None,
    "wave_rol:1": lambda i: (i + 1) % 64,
    "wave_shr:1": lambda i: i - 1 if i > 0 else None,
    "wave_ror:1": lambda i: (i + 63) % 64,
    "row_mirror": lambda i: i ^ 15,
    "row_half_mirror": lambda i: i ^ 7,
    "row_bcast:15": lambda i: row(i) - 1 if i >= 16 else None,
    "row_bcast:31": lambda i: 31 if i >= 32 else None,
    "row_newbcast:0": row,
    "row_newbcast:13": lambda i: row(i) + 13,
}


def test_dpp_controls(rng: np.random.Generator) -> None:
    x, out = rng.integers(0, 900, LANES, np.uint32), np.zeros((len(DPP) + 3, LANES), np.uint32)
    run_kernel(hip_module("lanes"), "dpp_controls", x, out, block=LANES)
    for found, (name, source) in zip(out, DPP.items(), strict=False):
        lanes = [source(i) for i in range(LANES)]
        assert found.tolist() == [OLD if lane is None else x[lane] for lane in lanes], name
    zero_filled, some_rows, some_banks = out[len(DPP) :]
    assert zero_filled.tolist() == [x[i - 1] if i % 16 else 0 for i in range(LANES)]
    assert some_rows.tolist() == [x[row(i) - 1] if i // 16 in (1, 3) else OLD for i in range(LANES)]
    assert some_banks.tolist() == [x[i - 4] if i % 16 > 3 else OLD for i in range(LANES)]


def test_dpp_does_not_read_inactive_lanes(rng: np.random.Generator) -> None:
    active = 0x0F0F_FFFF_0000_A5A5
    on = [bool(active >> i & 1) for i in range(LANES)]
    x, out = rng.integers(0, 900, LANES, np.uint32), np.zeros((3, LANES), np.uint32)
    run_kernel(hip_module("lanes"), "dpp_with_inactive_lanes", x, out, active, block=LANES)
    shifted = [bool(i % 16 and on[i - 1]) for i in range(LANES)]
    assert out[0].tolist() == [(x[i - 1] if shifted[i] else OLD) if on[i] else 0 for i in range(LANES)]
    assert out[1].tolist() == [x[i - 1] if on[i] and shifted[i] else 0 for i in range(LANES)]
    assert out[2].tolist() == [(x[i ^ 15] if on[i ^ 15] else OLD) if on[i] else 0 for i in range(LANES)]


def test_swizzles(rng: np.random.Generator) -> None:
    x, out = rng.integers(0, 900, LANES, np.uint32), np.zeros((6, LANES), np.uint32)
    run_kernel(hip_module("lanes"), "swizzles", x, out, block=LANES)
    sources: list[Callable[[int], int]] = [
        lambda i: i ^ 1,
        lambda i: i ^ 16,
        lambda i: i // 4 * 4,
        lambda i: i // 32 * 32 + (i % 4 | 5),
        lambda i: i ^ 3,
        lambda i: i // 4 * 4 + 3,
    ]
    for found, source in zip(out, sources, strict=True):
        assert found.tolist() == [x[source(i)] for i in range(LANES)]


def test_permutes(rng: np.random.Generator) -> None:
    x, index = rng.integers(0, 900, LANES, np.uint32), rng.integers(0, LANES, LANES, np.uint32)
    out = np.zeros((6, LANES), np.uint32)
    run_kernel(hip_module("lanes"), "permutes", x, index, out, block=LANES)
    pulled, pushed, *swapped = out.tolist()
    assert pulled == [x[i] for i in index]
    received = [0] * LANES
    for i in range(LANES):
        received[index[i]] = int(x[i])
    assert pushed == received
    rows_a = [x[i] if i // 16 % 2 == 0 else x[i - 16] + 100 for i in range(LANES)]
    rows_b = [x[i + 16] if i // 16 % 2 == 0 else x[i] + 100 for i in range(LANES)]
    halves_a = [x[i] if i < 32 else x[i - 32] + 100 for i in range(LANES)]
    halves_b = [x[i + 32] if i < 32 else x[i] + 100 for i in range(LANES)]
    assert swapped == [rows_a, rows_b, halves_a, halves_b]


def test_lane_reads_and_ballot(rng: np.random.Generator) -> None:
    first, chosen = 21, 50
    x, out = rng.integers(0, 900, LANES, np.uint32), np.zeros((5, LANES), np.uint32)
    run_kernel(hip_module("lanes"), "reads", x, out, first, chosen, block=LANES)
    odd = sum(1 << i for i in range(first, LANES) if x[i] & 1)
    on = range(first, LANES)
    assert out[0].tolist() == [x[first] if i in on else 0 for i in range(LANES)]
    assert out[1].tolist() == [x[chosen] if i in on else 0 for i in range(LANES)]
    assert out[2].tolist() == [odd >> i % 2 * 32 & 0xFFFFFFFF if i in on else 0 for i in range(LANES)]
    assert out[3].tolist() == [5 + (odd & (1 << i) - 1).bit_count() if i in on else 0 for i in range(LANES)]
    assert out[4].tolist() == [57 if i == chosen else x[i] for i in range(LANES)]


# ---- LDS


@pytest.mark.parametrize("seed", range(3))
def test_tree_reduction(rng: np.random.Generator, seed: int) -> None:
    groups = 3
    x, out = rng.integers(-1000, 1000, (groups, THREADS)).astype(np.float32), np.zeros(groups, np.float32)
    run_kernel(hip_module("lds"), "tree_sum", x, out, grid=(groups, 1, 1), seed=seed)
    np.testing.assert_array_equal(out, x.sum(1))


def test_lds_atomics(rng: np.random.Generator) -> None:
    x = rng.integers(5, 1000, THREADS, np.uint32)
    out, total = np.zeros(LANES + 2 * THREADS + 1, np.uint32), np.zeros(1, np.float32)
    run_kernel(hip_module("lds"), "counts", x, out, total)
    np.testing.assert_array_equal(out[:LANES], np.bincount(x % LANES, minlength=LANES))
    for tickets in out[LANES:-1].reshape(2, THREADS):
        assert sorted(tickets.tolist()) == [*range(THREADS)]
    assert out[-1] == x.min()
    assert total[0] == x.sum()


def test_narrow_lds_accesses(rng: np.random.Generator) -> None:
    x, out = rng.integers(0, 2**32, THREADS, np.uint32), np.zeros((THREADS, 4), np.uint32)
    run_kernel(hip_module("lds"), "narrow", x, out)
    for thread in range(THREADS):
        value = int(x[thread ^ 64])
        stored = struct.pack("<BBHIQ", 0, value & 0xFF, value >> 16, 0, value * value)
        word, signed_byte, signed_half = (
            struct.unpack("<I", stored[:4])[0],
            struct.unpack_from("<b", stored, 3)[0],
            struct.unpack_from("<h", stored, 8)[0],
        )
        expected = [word, signed_byte & 0xFFFFFFFF, signed_half & 0xFFFFFFFF, stored[15]]
        assert out[thread].tolist() == expected


def test_halves_of_registers(rng: np.random.Generator) -> None:
    x, out = rng.integers(0, 2**32, THREADS, np.uint32), np.zeros((THREADS, 3), np.uint32)
    run_kernel(hip_module("lds"), "halves", x, out)
    thread = np.arange(THREADS)
    low, high = x[thread ^ 5], x[thread ^ 70]
    np.testing.assert_array_equal(out[:, 0], low >> 8 & 0xFFFF | (high >> 8 & 0xFFFF) << 16)
    np.testing.assert_array_equal(out[:, 1], low & 0xFF | (high & 0xFF) << 16)
    extended = np.stack([low, high], 1).astype(np.int8).astype(np.int16)
    np.testing.assert_array_equal(out[:, 2].copy().view(np.int16).reshape(-1, 2), extended)


# ---- device memory


def test_atomics(rng: np.random.Generator) -> None:
    x = rng.integers(0, 2**32, THREADS, np.uint32)
    start = rng.integers(0, 2**32, 11, np.uint32)
    start[9] = 0
    words, wide = start.copy(), np.array([5, 9], np.uint64)
    total, total_wide, old = np.zeros(1, np.float32), np.zeros(1), np.zeros(2 * THREADS, np.uint32)
    counts = run_kernel(hip_module("memory"), "atomics", words, wide, total, total_wide, x, old)
    both = np.append(x, start[0])
    assert words[0] == both.sum(dtype=np.uint32)
    assert words[1] == (int(start[1]) - int(x.sum(dtype=np.uint64))) % 2**32
    assert words[2] == np.bitwise_and.reduce(np.append(x, start[2]))
    assert words[3] == np.bitwise_or.reduce(np.append(x, start[3]))
    assert words[4] == np.bitwise_xor.reduce(np.append(x, start[4]))
    assert (words[5], words[6]) == (min(x.min(), start[5]), max(x.max(), start[6]))
    signed = x.view(np.int32)
    assert words.view(np.int32)[7] == min(signed.min(), start.view(np.int32)[7])
    assert words.view(np.int32)[8] == max(signed.max(), start.view(np.int32)[8])
    assert wide.tolist() == [5 + (x.astype(object) << 20).sum(), int(x.max()) << 20]
    assert total[0] == (x & 0xFF).sum()
    assert total_wide[0] == x.sum(dtype=np.float64)
    assert sorted(old[:THREADS].tolist()) == [*range(THREADS)]
    assert words[9] == THREADS
    # the exchanges form one chain: every value but the last is somebody's old value
    assert sorted([*old[THREADS:].tolist(), int(words[10])]) == sorted([int(start[10]), *range(THREADS)])
    assert counts.scopes["global_atomic_cmpswap", "sc0"] > 0


def test_narrow_memory_accesses(rng: np.random.Generator) -> None:
    x, out = rng.integers(0, 256, 512, np.uint8), np.zeros(768 + 8 * THREADS, np.uint8)
    run_kernel(hip_module("memory"), "narrow", x, out)
    np.testing.assert_array_equal(out[:THREADS], x[:THREADS] + 1)
    np.testing.assert_array_equal(out[256:768].view(np.uint16), x.view(np.uint16) ^ 0xFF00)
    np.testing.assert_array_equal(out[768:1792].view(np.int32), x.view(np.int8)[:THREADS])
    np.testing.assert_array_equal(out[1792:].view(np.int32), x.view(np.int16))


def test_wide_accesses_and_their_traffic(rng: np.random.Generator) -> None:
    x = rng.integers(0, 2**32, (THREADS, 4), np.uint32)
    out = np.zeros_like(x)
    counts = run_kernel(hip_module("memory"), "copy_wide", x, out)
    np.testing.assert_array_equal(out, x[::-1])
    assert counts.bytes_stored == x.nbytes
    assert counts.bytes_loaded == x.nbytes + 4 * 16  # the two pointers, once a wave


def test_loads_into_lds(rng: np.random.Generator) -> None:
    x, out = rng.integers(0, 2**32, THREADS, np.uint32), np.zeros(2 * THREADS, np.uint32)
    counts = run_kernel(hip_module("memory"), "through_lds", x, out)
    np.testing.assert_array_equal(out[:THREADS], x[::-1])
    np.testing.assert_array_equal(out[THREADS:].reshape(64, 4), x.reshape(64, 4)[::-1])
    assert counts.instructions["global_load_lds_dwordx4"] == 1


def test_buffer_accesses_beyond_the_buffer(rng: np.random.Generator) -> None:
    x, out = rng.integers(0, 2**31, 2 * THREADS, np.uint32), np.zeros(2 * THREADS, np.uint32)
    words = 2 * THREADS - 3
    run_kernel(hip_module("memory"), "buffer_copy", x, out, 4 * words)
    np.testing.assert_array_equal(out[:words], x[:words] + 1)
    np.testing.assert_array_equal(out[words:], 0)


def test_addresses_pass_32_bits() -> None:
    """Only one row of the pool exists, 20 GiB from its start."""
    module, memory, slot, row_words = hip_module("memory"), Memory(), 5 << 20, 1024
    pool, x, y = 0x7E00_0000_0000, np.arange(row_words, dtype=np.uint32), np.zeros(THREADS, np.uint32)
    memory.add(pool + 4 * row_words * slot, x, "row")
    kernarg = module.kernels["pool_row"].kernarg(pool, memory.place(y), slot, row_words)
    run([Launch(module, "pool_row", kernarg, 1, THREADS)], memory)
    np.testing.assert_array_equal(y, x[:THREADS])


def test_a_table_in_the_code_object(rng: np.random.Generator) -> None:
    index, out = rng.integers(0, 2**32, THREADS, np.uint32), np.zeros(THREADS, np.uint32)
    counts = run_kernel(hip_module("memory"), "table_lookup", index, out)
    primes = [n for n in range(2, 54) if all(n % d for d in range(2, n))]
    assert out.tolist() == [primes[i % 16] for i in index]
    assert counts.instructions["s_getpc_b64"] > 0


def test_a_trap_is_an_error() -> None:
    x = np.arange(THREADS, dtype=np.uint32) + 1000
    run_kernel(hip_module("memory"), "trap", x)
    x[77] = 7
    with pytest.raises(TrapError, match=r"s_trap at .*wave 1\): s_trap 2"):
        run_kernel(hip_module("memory"), "trap", x)


# ---- conversions


def test_narrow_formats_by_every_code(rng: np.random.Generator) -> None:
    codes = np.arange(256, dtype=np.uint8)
    fp8, bf8, pair = (np.zeros(256, np.float32) for _ in range(3))
    run_kernel(hip_module("convert"), "widen", codes, fp8, bf8, pair)
    np.testing.assert_array_equal(fp8, codes.view(ml_dtypes.float8_e4m3fn).astype(np.float32))
    np.testing.assert_array_equal(bf8, codes.view(ml_dtypes.float8_e5m2).astype(np.float32))
    np.testing.assert_array_equal(pair, fp8)


def test_rounding_to_narrow_formats(rng: np.random.Generator) -> None:
    """Every code of each format, the values half-way between neighbours, and what is just beside those."""
    chunks = []
    for dtype in (ml_dtypes.float8_e4m3fn, ml_dtypes.float8_e5m2):
        values = np.arange(256, dtype=np.uint8).view(dtype).astype(np.float32)
        values = np.unique(values[np.isfinite(values)])
        middle = (values[1:] + values[:-1]) / 2
        chunks += [values, middle, np.nextafter(middle, np.float32(np.inf)), np.nextafter(middle, np.float32(-np.inf))]
    ordinary = rng.normal(size=512) * np.ldexp(1.0, rng.integers(-140, 120, 512))
    chunks += [ordinary.astype(np.float32), np.array([np.inf, -np.inf, np.nan, 500, 1e6, -0.0, 3e38], np.float32)]
    x = np.concatenate(chunks)
    x = np.concatenate([x, np.zeros(-len(x) % THREADS, np.float32)])
    bf16, fp8, bf8 = (
        np.zeros(x.size, ml_dtypes.bfloat16),
        np.zeros(x.size, ml_dtypes.float8_e4m3fn),
        np.zeros(x.size, ml_dtypes.float8_e5m2),
    )
    run_kernel(hip_module("convert"), "narrow", x, bf16, fp8, bf8, grid=(x.size // THREADS, 1, 1))
    for found in (bf16, fp8, bf8):
        np.testing.assert_array_equal(found.astype(np.float32), x.astype(found.dtype).astype(np.float32))


def test_scaled_fp4(rng: np.random.Generator) -> None:
    """Division by the power of two in the scale's exponent, its mantissa and sign ignored; and back."""
    exponent = rng.integers(-20, 20, THREADS)
    scale = (np.ldexp(1.0, exponent) * rng.choice([1.0, 1.5, -1.25], THREADS)).astype(np.float32)
    grid = np.arange(-32, 33) / 4
    x = np.where(rng.random((THREADS, 8)) < 0.5, rng.choice(grid, (THREADS, 8)), rng.normal(size=(THREADS, 8), scale=3))
    x = np.ldexp(x, exponent[:, None]).astype(np.float32)
    packed, back = np.zeros(THREADS, np.uint32), np.zeros((THREADS, 4), np.float32)
    run_kernel(hip_module("convert"), "fp4", x, scale, packed, back)
    expected = np.ldexp(x, -exponent[:, None]).astype(ml_dtypes.float4_e2m1fn)
    codes = packed[:, None] >> 4 * np.arange(8, dtype=np.uint32) & 15
    np.testing.assert_array_equal(codes, expected.view(np.uint8))
    values = np.ldexp(expected.astype(np.float32), exponent[:, None])
    np.testing.assert_array_equal(back, values[:, [0, 1, 6, 7]])


def test_scaled_fp4_of_bf16(rng: np.random.Generator) -> None:
    exponent = rng.integers(-20, 20, THREADS)
    x = np.ldexp(rng.normal(size=(THREADS, 4), scale=3), exponent[:, None]).astype(ml_dtypes.bfloat16)
    scale, packed, back = np.ldexp(1.0, exponent).astype(np.float32), *np.zeros((2, THREADS), np.uint32)
    run_kernel(hip_module("convert"), "fp4_bf16", x.view(np.uint32), scale, packed, back)
    expected = np.ldexp(x.astype(np.float32), -exponent[:, None]).astype(ml_dtypes.float4_e2m1fn)
    codes = packed[:, None] >> np.array([0, 4, 16, 20], np.uint32) & 15
    np.testing.assert_array_equal(codes, expected.view(np.uint8))
    values = np.ldexp(expected.astype(np.float32), exponent[:, None])[:, 2:]
    np.testing.assert_array_equal(back.view(ml_dtypes.bfloat16).reshape(-1, 2).astype(np.float32), values)


def test_functions(rng: np.random.Generator) -> None:
    x = (rng.normal(size=THREADS) * np.ldexp(1.0, rng.integers(-30, 6, THREADS))).astype(np.float32)
    x[:4] = [0.0, np.inf, 1.0, -4.0]
    out = np.zeros((THREADS, 8), np.float32)
    run_kernel(hip_module("convert"), "functions", x, out)
    wide, magnitude = x.astype(np.float64), np.abs(x.astype(np.float64))
    with np.errstate(divide="ignore", invalid="ignore"):
        for column, exact in enumerate(
            [np.exp2(wide), np.log2(magnitude), 1 / wide, 1 / np.sqrt(magnitude), np.sqrt(magnitude)]
        ):
            np.testing.assert_allclose(out[:, column], exact, rtol=2.0**-23, atol=2.0**-126)
        np.testing.assert_array_equal(out[:, 6], np.where(np.isinf(x), np.nan, x - np.floor(x)))
    np.testing.assert_array_equal(out[:, 5], np.clip(x, -1.5, 2.5))
    np.testing.assert_array_equal(out[:, 7], np.minimum(x, np.maximum(x[np.arange(THREADS) ^ 1], 0.25)))


# ---- several workgroups and ranks at the same time

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
