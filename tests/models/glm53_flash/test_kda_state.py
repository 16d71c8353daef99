"""Which memory a KDA half layer touches: slots, padding, strides, tracking, bytes."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import Tensor

from sgl_amd_mono.build.compile import HOST, build
from sgl_amd_mono.device.host import HostDevice
from sgl_amd_mono.errors import LaunchError
from sgl_amd_mono.models.glm53_flash.kda_buffers import KdaCache
from sgl_amd_mono.models.glm53_flash.layout import KdaWeights
from sgl_amd_mono.models.glm53_flash.program import KERNEL
from sgl_amd_mono.models.glm53_flash.reference import kda
from sgl_amd_mono.program import FaultKind, Slicing
from tests.kernel_sources import with_change
from tests.models.glm53_flash.kda_case import HEAD_DIM, HalfLayer, random_cache, random_weights, random_x

pytestmark = pytest.mark.host

HIDDEN, HEADS, SLOTS = 128, 8, 9
CHANNELS = 3 * HEADS * HEAD_DIM
STATE = HEADS * HEAD_DIM * HEAD_DIM


@pytest.fixture(scope="module")
def weights() -> KdaWeights:
    return random_weights(HIDDEN, HEADS)


def run(
    device: HostDevice, weights: KdaWeights, cache: KdaCache, slots: list[int], x: Tensor | None = None
) -> HalfLayer:
    half = HalfLayer(device, weights, cache, slots)
    half.x.copy_(random_x(len(slots), HIDDEN) if x is None else x)
    half.program.run(Slicing.STEP)
    return half


def paged_cache(page: int, pad: int) -> tuple[KdaCache, Tensor]:
    """Pools that share pages, a slot a page: temporal, padding, convolution, padding; canaries at both ends."""
    pages = SLOTS + 2
    storage = torch.randint(0, 256, (pages * page,), dtype=torch.uint8, generator=torch.Generator().manual_seed(3))
    temporal = storage.view(torch.float32).as_strided(
        (SLOTS, HEADS, HEAD_DIM, HEAD_DIM), (page // 4, HEAD_DIM**2, HEAD_DIM, 1), page // 4
    )
    conv = storage.view(torch.bfloat16).as_strided(
        (SLOTS, 3, CHANNELS), (page // 2, CHANNELS, 1), (page + STATE * 4 + pad) // 2
    )
    dense = random_cache(SLOTS, HEADS)
    temporal.copy_(dense.temporal)
    conv.copy_(dense.conv)
    return KdaCache(conv, temporal), storage


def test_only_the_slots_of_the_step_change(weights: KdaWeights) -> None:
    """Every byte of a page-major pool outside of the three slots stays: other slots, padding, canaries, slot 0."""
    pad = 64
    page = STATE * 4 + pad + 3 * CHANNELS * 2 + 192
    cache, storage = paged_cache(page, pad)
    before = storage.clone()
    slots = [7, -1, 3, 4]
    half = run(HostDevice(KERNEL), weights, cache, slots)
    allowed = torch.zeros_like(storage, dtype=torch.bool)
    for slot in slots:
        if slot >= 0:
            begin = (1 + slot) * page
            allowed[begin : begin + STATE * 4] = True
            allowed[begin + STATE * 4 + pad : begin + STATE * 4 + pad + 3 * CHANNELS * 2] = True
    assert torch.equal(storage[~allowed], before[~allowed])
    # the strides change nothing
    dense = run(HostDevice(KERNEL), weights, random_cache(SLOTS, HEADS), slots)
    assert torch.equal(half.partial, dense.partial)
    assert torch.equal(cache.conv, dense.cache.conv)
    assert torch.equal(cache.temporal, dense.cache.temporal)


def test_a_padded_row_is_zero_and_reaches_nothing(weights: KdaWeights) -> None:
    """NaN in the padded rows' inputs: their outputs are zeros, and the other rows keep their bits."""
    slots = [-1, 5, -1, 2]
    clean = run(HostDevice(KERNEL), weights, random_cache(SLOTS, HEADS), slots)
    x = random_x(4, HIDDEN)
    x[[0, 2]] = torch.nan
    poisoned = run(HostDevice(KERNEL), weights, random_cache(SLOTS, HEADS), slots, x)
    assert torch.equal(poisoned.partial, clean.partial)
    assert torch.equal(poisoned.partial[[0, 2]].view(torch.int16), torch.zeros(2, HIDDEN, dtype=torch.int16))
    assert torch.equal(poisoned.cache.temporal, clean.cache.temporal)
    assert torch.equal(poisoned.cache.conv, clean.cache.conv)


def test_a_step_of_padded_rows_alone_writes_no_state(weights: KdaWeights) -> None:
    cache, before = random_cache(SLOTS, HEADS), random_cache(SLOTS, HEADS)
    half = run(HostDevice(KERNEL), weights, cache, [-1, -1])
    assert not half.partial.any()
    assert torch.equal(cache.conv, before.conv)
    assert torch.equal(cache.temporal, before.temporal)


def test_large_states_stay_finite(weights: KdaWeights) -> None:
    cache = random_cache(SLOTS, HEADS)
    cache.temporal.mul_(1e5)
    half = run(HostDevice(KERNEL), weights, cache, [1, 2])
    assert half.partial.isfinite().all()
    assert cache.temporal.isfinite().all()


def test_tracked_rows_are_kept_in_their_slot_too(weights: KdaWeights) -> None:
    """As the reference's copy after the step; an unmasked row's index, -1 or stale, is not looked at."""
    slots, mask, copies = [7, 3, -1, 0], [True, False, True, True], [8, -1, 5, 6]
    cache, untracked = random_cache(SLOTS, HEADS), random_cache(SLOTS, HEADS)
    half = HalfLayer(HostDevice(KERNEL), weights, cache, slots, track=(mask, copies))
    half.x.copy_(random_x(4, HIDDEN))
    half.program.run(Slicing.STEP)
    run(HostDevice(KERNEL), weights, untracked, slots)
    kda.kda_track(
        untracked.conv[None], untracked.temporal[None], torch.tensor(slots), torch.tensor(mask), torch.tensor(copies)
    )
    assert torch.equal(cache.conv, untracked.conv)
    assert torch.equal(cache.temporal, untracked.temporal)


@pytest.mark.parametrize(
    ("slots", "track", "seen"),
    [
        ([1, SLOTS], None, SLOTS),
        ([1, 2], ([True, True], [3, SLOTS + 4]), SLOTS + 4),
        ([1, 2], ([True, False], [-1, 0]), 2**32 - 1),
    ],
)
def test_a_slot_outside_of_the_pool_stops_the_launch(
    slots: list[int], track: tuple[list[bool], list[int]] | None, seen: int, weights: KdaWeights
) -> None:
    half = HalfLayer(HostDevice(KERNEL), weights, random_cache(SLOTS, HEADS), slots, track=track, layer=6)
    half.x.copy_(random_x(2, HIDDEN))
    with pytest.raises(LaunchError, match=f"layer 6, phase kda_conv.*expected one below {SLOTS}, saw {seen}"):
        half.program.run(Slicing.STEP)
    fault = half.program.fault()
    assert fault is not None
    assert (fault.kind, fault.expected, fault.seen) == (FaultKind.SLOT_OUT_OF_RANGE, SLOTS, seen)


def far_pools(tmp_path: Path, slots: int, stride: int) -> KdaCache:
    """Temporal pool whose last slot lies past 2^31 elements, in a sparse file."""
    file = torch.from_file(str(tmp_path / "pool"), shared=True, size=slots * stride, dtype=torch.float32)
    temporal = file.as_strided((slots, HEADS, HEAD_DIM, HEAD_DIM), (stride, HEAD_DIM**2, HEAD_DIM, 1))
    near = random_cache(slots, HEADS)
    temporal[slots - 1] = near.temporal[slots - 1]
    return KdaCache(near.conv, temporal)


def test_slots_are_addressed_in_64_bits(tmp_path: Path, weights: KdaWeights) -> None:
    """A state past 2^31 elements gets the bits of a near one; a kernel with a 32-bit offset leaves it as it was."""
    slots, stride = 3, 2**30 + 1024
    near = random_cache(slots, HEADS)
    expected = run(HostDevice(KERNEL), weights, near, [2])
    cache = far_pools(tmp_path, slots, stride)
    assert torch.equal(run(HostDevice(KERNEL), weights, cache, [2]).partial, expected.partial)
    assert torch.equal(cache.temporal[2], near.temporal[2])

    offset = "(slot * args.state_slot_stride + state_row)"
    # the low 31 bits: what is left of the offset in an i32, kept from becoming negative
    root = with_change(tmp_path / "hip", "phases/kda_update.h", offset, f"({offset} & 0x7fffffff)")
    mutant = HostDevice(KERNEL, artifact=build(KERNEL, HOST, sources=root))
    cache = far_pools(tmp_path, slots, stride)
    run(mutant, weights, cache, [2])
    assert not torch.equal(cache.temporal[2], near.temporal[2])


@pytest.mark.parametrize("rows", [1, 8])
def test_bytes_and_barriers(rows: int) -> None:
    """TP 4. Weights and states pass once; what lanes share is counted by the cache lines that it lies in."""
    hidden, heads = 4096, 16
    device = HostDevice(KERNEL, counts_lines=True)
    weights = random_weights(hidden, heads)
    half = HalfLayer(device, weights, random_cache(rows, heads), list(range(rows)))
    half.x.copy_(random_x(rows, hidden))
    half.program.run(Slicing.STEP)
    counted = device.counters().values()

    streamed_weights = [*weights.projection, weights.forget_b, weights.output_b, weights.o_proj]
    other_weights = [weights.conv, weights.A_log, weights.dt_bias, weights.o_norm]
    state, window = half.cache.temporal.nbytes, half.cache.conv.nbytes
    assert sum(c.streamed_bytes_read for c in counted) == sum(w.nbytes for w in streamed_weights) + state
    activations = sum(getattr(half.scratch, name).nbytes for name in half.scratch.__struct_fields__)
    # every activation is written once and read once
    least = sum(w.nbytes for w in [*streamed_weights, *other_weights]) + 2 * (state + window + activations)
    least += half.x.nbytes + half.partial.nbytes
    moved = sum(c.streamed_bytes_read + 128 * c.cached_lines_read + c.bytes_written for c in counted)
    assert moved <= 1.05 * least
    assert sum(c.grid_barriers for c in counted) == 3
