"""Exchanges between lanes: DPP controls, swizzles, permutes, lane reads and ballots, against plain Python."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from .harness import hip_module, run_kernel

pytestmark = pytest.mark.isa

LANES = 64
# what kernels/lanes.hip keeps where a source lane does not exist
OLD = 1000


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
