"""Device memory: atomics, accesses of every width, loads into LDS, buffers, addresses."""

from __future__ import annotations

import numpy as np
import pytest

from .gfx950 import Launch, Memory, MemoryAccessError, run
from .gfx950.memory import Buffer
from .harness import hip_module, run_kernel

pytestmark = pytest.mark.isa

THREADS = 256


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


def test_an_access_may_be_unaligned_and_its_lanes_in_several_buffers() -> None:
    memory = Memory()
    a, b = np.arange(64, dtype=np.uint8), np.arange(100, 200, dtype=np.uint8)
    addresses = np.array([memory.place(a) + 3, memory.place(b) + 7, 0], np.uint64)
    addresses[2] = addresses[0] + np.uint64(10)
    words = memory.read(addresses, 4, 2)
    expected = [a[3:11], b[7:15], a[13:21]]
    assert words.T.copy().view(np.uint8).tolist() == [part.tolist() for part in expected]
    memory.write(addresses, 4, words + 1)
    assert (a[3], b[7], a[13], a[17]) == (4, 108, 14, 18)


@pytest.mark.parametrize(("offset", "position"), [(-4, 1), (61, 1), (1 << 32, 1)])
def test_a_lane_outside_is_named(offset: int, position: int) -> None:
    memory = Memory()
    base = memory.place(np.zeros(64, np.uint8), "table")
    with pytest.raises(MemoryAccessError) as caught:
        memory.read(np.array([base, base + offset], np.uint64), 4)
    assert caught.value.position == position


def test_buffers_do_not_overlap() -> None:
    memory = Memory()
    memory.add(0x1000, np.zeros(16, np.uint8), "first")
    with pytest.raises(ValueError, match="second at 0x100f overlaps first at 0x1000"):
        memory.add(0x100F, np.zeros(4, np.uint8), "second")
    with pytest.raises(ValueError, match="not contiguous"):
        memory.add(0x2000, np.zeros((4, 4), np.uint8)[:, 1], "column")
    memory.add(0x1010, np.zeros(4, np.uint8), "behind")
    with pytest.raises(MemoryAccessError, match=r"behind \+ 0x4"):
        memory.read(np.array([0x1014], np.uint64), 1)


def test_a_store_to_lds_beyond_what_is_allocated_is_an_error() -> None:
    lds = Buffer(0, np.zeros(64, np.uint8), "LDS")
    with pytest.raises(MemoryAccessError, match=r"LDS \+ 0x3e"):
        lds.write(np.array([0, 62], np.uint64), 4, np.zeros((1, 2), np.uint32))
