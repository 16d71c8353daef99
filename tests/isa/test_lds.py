"""LDS: a reduction, atomics, and accesses of every width, against numpy."""

from __future__ import annotations

import struct

import numpy as np
import pytest

from .harness import hip_module, run_kernel

pytestmark = pytest.mark.isa

LANES = 64
THREADS = 256


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
