"""Programs of KDA half layers: slicing over layers, and the tensors that are refused."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
import torch

from sgl_amd_mono.device.host import HostDevice
from sgl_amd_mono.errors import LayoutError
from sgl_amd_mono.models.glm53_flash.kda_buffers import KdaCache, StepInputs, allocate_kda_scratch
from sgl_amd_mono.models.glm53_flash.program import KERNEL, kda_half_layer
from sgl_amd_mono.program import Entry, Program, Slicing
from tests.models.glm53_flash.kda_case import HEAD_DIM, random_cache, random_weights, random_x

pytestmark = pytest.mark.host

HIDDEN, HEADS, SLOTS = 128, 8, 5


def run_chain(device: HostDevice, slicing: Slicing) -> tuple[list[torch.Tensor], int]:
    """Three half layers, each fed with the one before; every output and state, and the number of launches."""
    rows = 3
    streams = [random_x(rows, HIDDEN), *(torch.full((rows, HIDDEN), torch.nan).bfloat16() for _ in range(3))]
    step = StepInputs(slots=torch.tensor([4, -1, 1], dtype=torch.int32))
    weights = [random_weights(HIDDEN, HEADS, seed=layer) for layer in range(3)]
    caches = [random_cache(SLOTS, HEADS, seed=10 + layer) for layer in range(3)]
    scratch = allocate_kda_scratch(weights[0], rows, device.torch_device)
    entries: list[Entry] = []
    for layer in range(3):
        entries += kda_half_layer(
            layer, weights[layer], caches[layer], step, scratch, streams[layer], streams[layer + 1]
        )
    Program(device, entries).run(slicing)
    pools = [pool for cache in caches for pool in (cache.conv, cache.temporal)]
    return [*streams[1:], *pools], device.launches


def test_three_layers_have_the_same_bits_in_every_slicing() -> None:
    expected, launches = run_chain(HostDevice(KERNEL), Slicing.STEP)
    assert launches == 1
    assert all(tensor.isfinite().all() for tensor in expected)
    for slicing, count in ((Slicing.LAYER, 3), (Slicing.PHASE, 15)):
        for workgroups, seed in ((8, 0), (3, 7), (64, 8)):
            actual, launches = run_chain(HostDevice(KERNEL, workgroups=workgroups, seed=seed), slicing)
            assert launches == count
            for a, e in zip(actual, expected, strict=True):
                assert torch.equal(a, e)


class Parts(msgspec.Struct):
    """Arguments of one half layer, all of which the kernels read."""

    weights: Any
    cache: KdaCache
    step: StepInputs
    x: torch.Tensor
    partial: torch.Tensor


def good() -> Parts:
    x = random_x(2, HIDDEN)
    slots = torch.zeros(2, dtype=torch.int32)
    return Parts(
        random_weights(HIDDEN, HEADS), random_cache(SLOTS, HEADS), StepInputs(slots=slots), x, torch.empty_like(x)
    )


def entries(parts: Parts) -> list[Entry]:
    scratch = allocate_kda_scratch(parts.weights, parts.x.shape[0], torch.device("cpu"))
    return kda_half_layer(2, parts.weights, parts.cache, parts.step, scratch, parts.x, parts.partial)


def with_weight(parts: Parts, name: str, value: Any) -> Parts:
    parts.weights = msgspec.structs.replace(parts.weights, **{name: value})
    return parts


def with_conv(parts: Parts, conv: torch.Tensor) -> Parts:
    parts.cache = KdaCache(conv, parts.cache.temporal)
    return parts


def with_temporal(parts: Parts, temporal: torch.Tensor) -> Parts:
    parts.cache = KdaCache(parts.cache.conv, temporal)
    return parts


def with_rows(rows: int) -> Parts:
    parts = good()
    parts.x = torch.zeros(rows, HIDDEN).bfloat16()
    parts.partial = torch.empty_like(parts.x)
    parts.step = StepInputs(slots=torch.zeros(rows, dtype=torch.int32))
    return parts


def with_model(hidden: int, heads: int) -> Parts:
    parts = good()
    parts.weights = random_weights(hidden, heads)
    parts.cache = random_cache(SLOTS, heads)
    parts.x = torch.zeros(2, hidden).bfloat16()
    parts.partial = torch.empty_like(parts.x)
    return parts


def with_step(**fields: torch.Tensor) -> Parts:
    parts = good()
    parts.step = StepInputs(**{"slots": parts.step.slots, **fields})
    return parts


def misaligned(tensor: torch.Tensor) -> torch.Tensor:
    storage = torch.empty(tensor.numel() + 8, dtype=tensor.dtype)
    begin = 8 - storage.data_ptr() // tensor.element_size() % 8 + 1
    return storage[begin % 8 :][: tensor.numel()].view(tensor.shape)


def test_what_is_not_refused() -> None:
    assert [entry.phase for entry in entries(good())] == [
        "kda_project",
        "kda_gates",
        "kda_conv",
        "kda_update",
        "kda_output",
    ]


@pytest.mark.parametrize(
    ("parts", "message"),
    [
        (lambda: with_rows(17), "17 rows, the kernel takes 1 to 16"),
        (lambda: with_rows(0), "0 rows, the kernel takes 1 to 16"),
        (lambda: with_model(192, 8), "hidden size 192, the kernel takes multiples of 128"),
        (lambda: with_model(128, 4), "4 heads on this rank, the kernel takes multiples of 8"),
        (
            lambda: with_weight(good(), "o_norm", torch.ones(64).bfloat16()),
            "head_dim 64, the kernel is compiled for 128",
        ),
        (lambda: with_weight(good(), "projection", good().weights.projection[0].split(500)), "has 7 weights|takes 6"),
        (
            lambda: with_weight(good(), "projection", (good().weights.projection[0][8:],)),
            "the projection has 3328 rows",
        ),
        (lambda: with_weight(good(), "o_proj", good().weights.o_proj.float()), "o_proj is torch.float32"),
        (lambda: with_weight(good(), "conv", good().weights.conv.bfloat16()), "conv is torch.bfloat16"),
        (lambda: with_weight(good(), "dt_bias", misaligned(good().weights.dt_bias)), "dt_bias begins at"),
        (
            lambda: with_weight(good(), "forget_b", good().weights.forget_b.T.contiguous().T),
            "forget_b has strides",
        ),
        (lambda: with_conv(good(), good().cache.conv.float()), "conv state is torch.float32"),
        (lambda: with_conv(good(), good().cache.conv[:3]), "one index serves both"),
        (
            lambda: with_conv(good(), good().cache.conv.transpose(1, 2).contiguous().transpose(1, 2)),
            "conv state has strides .* free stride of the slot alone",
        ),
        (lambda: with_temporal(good(), good().cache.temporal.bfloat16()), "temporal state is torch.bfloat16"),
        (lambda: with_temporal(good(), good().cache.temporal.transpose(2, 3)), "temporal state has strides"),
        (
            lambda: with_temporal(
                good(),
                torch.zeros(SLOTS * (HEADS * HEAD_DIM**2 + 2)).as_strided(
                    (SLOTS, HEADS, HEAD_DIM, HEAD_DIM), (HEADS * HEAD_DIM**2 + 2, HEAD_DIM**2, HEAD_DIM, 1)
                ),
            ),
            "temporal state has a slot stride of 131074 elements",
        ),
        (lambda: with_step(slots=torch.zeros(2, dtype=torch.int64)), "slots is torch.int64"),
        (lambda: with_step(slots=torch.zeros(3, dtype=torch.int32)), r"slots has shape \[3\], expected \[2\]"),
        (lambda: with_step(track_mask=torch.zeros(2, dtype=torch.bool)), "track_mask and track_slots go together"),
        (
            lambda: with_step(track_mask=torch.zeros(2), track_slots=torch.zeros(2, dtype=torch.int64)),
            "track_mask is torch.float32",
        ),
    ],
)
def test_refuses_what_the_kernels_do_not_read(parts: Any, message: str) -> None:
    with pytest.raises(LayoutError, match=f"KDA layer 2: .*({message})"):
        entries(parts())


def test_a_refusal_names_every_reason() -> None:
    parts = with_conv(with_weight(good(), "o_proj", good().weights.o_proj.float()), good().cache.conv.float())
    with pytest.raises(LayoutError, match=r"o_proj is torch\.float32.*; .*conv state is torch\.float32"):
        entries(parts)
