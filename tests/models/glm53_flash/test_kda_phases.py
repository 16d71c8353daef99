"""The KDA phases at the shapes of the released model, against the float64 reference and fla's naive recurrence."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch
from torch import Tensor

from sgl_amd_mono.device.host import HostDevice
from sgl_amd_mono.models.glm53_flash.checked_kda import REFERENCES, Snapshot
from sgl_amd_mono.models.glm53_flash.kda_buffers import KdaCache, KdaScratch
from sgl_amd_mono.models.glm53_flash.layout import KdaWeights
from sgl_amd_mono.models.glm53_flash.numerics import BOUNDS, compare
from sgl_amd_mono.models.glm53_flash.program import KERNEL
from sgl_amd_mono.models.glm53_flash.reference import kda
from sgl_amd_mono.models.glm53_flash.reference.rounding import Rounding
from sgl_amd_mono.program import Slicing
from tests.models.glm53_flash.kda_case import HEAD_DIM, HalfLayer, random_cache, random_weights, random_x

pytestmark = pytest.mark.host

HIDDEN = 4096
HEADS = 64
TP4_HEADS = HEADS // 4
POOL_SLOTS = 20


@pytest.fixture(scope="module")
def tp4() -> KdaWeights:
    return random_weights(HIDDEN, TP4_HEADS)


def check_every_phase(half: HalfLayer) -> None:
    """Runs phase by phase and compares each with its reference on what it read."""

    def copy(cache: KdaCache) -> KdaCache:
        return KdaCache(cache.conv.clone(), cache.temporal.clone())

    before = copy(half.cache)
    for i, entry in enumerate(half.program.entries):
        half.program.run(Slicing.PHASE, i, i + 1)
        snapshot = Snapshot(
            weights=half.weights,
            slots=half.step.slots,
            x=half.x,
            scratch=KdaScratch(**{name: getattr(half.scratch, name) for name in half.scratch.__struct_fields__}),
            partial=half.partial,
            before=before,
            after=copy(half.cache),
        )
        for output, (actual, expected) in REFERENCES[entry.phase](snapshot).items():
            for measured in compare(entry.phase, output, actual, expected):
                assert measured.ok, measured


@pytest.mark.parametrize(
    "slots",
    [[7], [3, 12], [5, -1, 0], [9, 2, -1, -1, 15, 0, 4, 11], [*range(19, 4, -1), -1]],
    ids=lambda slots: f"{len(slots)} rows",
)
def test_every_phase_matches_its_reference(slots: list[int], tp4: KdaWeights) -> None:
    half = HalfLayer(HostDevice(KERNEL), tp4, random_cache(POOL_SLOTS, TP4_HEADS), slots)
    half.x.copy_(random_x(len(slots), HIDDEN))
    check_every_phase(half)


@pytest.mark.parametrize("tp", [1, 2, 8])
def test_shapes_of_the_other_tensor_parallel_sizes(tp: int) -> None:
    """TP 1 is the one whose normed heads do not fit in LDS at once."""
    half = HalfLayer(HostDevice(KERNEL), random_weights(HIDDEN, HEADS // tp), random_cache(4, HEADS // tp), [2, -1, 3])
    half.x.copy_(random_x(3, HIDDEN))
    check_every_phase(half)


def run_whole(device: HostDevice, weights: KdaWeights, slots: list[int], slicing: Slicing) -> tuple[Tensor, ...]:
    half = HalfLayer(device, weights, random_cache(POOL_SLOTS, weights.heads), slots)
    half.x.copy_(random_x(len(slots), weights.o_proj.shape[0]))
    half.program.run(slicing)
    return half.partial, half.cache.conv, half.cache.temporal


def test_same_bits_for_every_grid_schedule_and_slicing(tp4: KdaWeights) -> None:
    slots = [5, -1, 0]
    expected = run_whole(HostDevice(KERNEL), tp4, slots, Slicing.STEP)
    others = [
        (HostDevice(KERNEL, workgroups=1), Slicing.PHASE),
        (HostDevice(KERNEL, workgroups=4, seed=3), Slicing.LAYER),
        (HostDevice(KERNEL, workgroups=256, seed=4), Slicing.STEP),
        *[(HostDevice(KERNEL, seed=seed), Slicing.STEP) for seed in (0, 1, 2)],
    ]
    for device, slicing in others:
        for actual, wanted in zip(run_whole(device, tp4, slots, slicing), expected, strict=True):
            assert torch.equal(actual.view(torch.int16), wanted.view(torch.int16))


def test_projections_apart_give_the_bits_of_joined_ones(tp4: KdaWeights) -> None:
    values, heads = TP4_HEADS * HEAD_DIM, TP4_HEADS
    joined = tp4.projection[0]
    layouts = [
        joined.split([values, values, values, heads, HEAD_DIM, HEAD_DIM]),
        joined.split([3 * values, heads + 2 * HEAD_DIM]),
    ]
    expected = run_whole(HostDevice(KERNEL), tp4, [1, 2], Slicing.STEP)
    for parts in layouts:
        fields = {name: getattr(tp4, name) for name in tp4.__struct_fields__}
        apart = KdaWeights(**{**fields, "projection": tuple(part.clone() for part in parts)})
        for actual, wanted in zip(run_whole(HostDevice(KERNEL), apart, [1, 2], Slicing.STEP), expected, strict=True):
            assert torch.equal(actual, wanted)


def test_sixty_four_steps_do_not_drift() -> None:
    """Real state shape, small hidden size. The reference keeps its own float64 state, fed with the kernel's inputs."""
    heads, hidden, slots = 8, 128, [2, 0, 5]
    half = HalfLayer(HostDevice(KERNEL), random_weights(hidden, heads), random_cache(6, heads), slots)
    state = half.cache.temporal[slots].double()
    window = half.cache.conv[slots].double()
    for step in range(64):
        half.x.copy_(random_x(len(slots), hidden, seed=100 + step))
        half.program.run(Slicing.STEP)
        projected = half.scratch.projected
        beta = projected[:, half.weights.channels : half.weights.channels + heads]
        _, window = kda.kda_conv(half.weights, projected, window, Rounding.STANDARD)
        _, state = kda.kda_update(
            half.weights, half.scratch.convolved, beta, half.scratch.gates[0], state, Rounding.STANDARD
        )
        assert torch.equal(half.cache.conv[slots].double(), window)
        error = (half.cache.temporal[slots] - state).abs().max() / state.abs().max()
        assert error <= BOUNDS["kda_update.state.rel"], step


def test_recurrence_matches_flash_linear_attention(fla: SimpleNamespace) -> None:
    """Twelve steps, fed to fla's recurrence as one sequence: inputs are what the kernel's own earlier phases wrote."""
    heads, hidden, slots, steps = 8, 128, [3, 1], 12
    half = HalfLayer(HostDevice(KERNEL), random_weights(hidden, heads), random_cache(4, heads), slots)
    weights = half.weights
    # fla keeps the state as [K, V]
    initial = half.cache.temporal[slots].transpose(-1, -2).clone()
    inputs: list[tuple[Tensor, ...]] = []
    outputs = []
    for step in range(steps):
        half.x.copy_(random_x(len(slots), hidden, seed=step))
        half.program.run(Slicing.STEP)
        beta = half.scratch.projected[:, weights.channels : weights.channels + heads].float().sigmoid()
        qkv = half.scratch.convolved.float().view(len(slots), 3, heads, HEAD_DIM)
        inputs.append((*qkv.unbind(1), half.scratch.gates[0].float().view(len(slots), heads, HEAD_DIM), beta))
        outputs.append(half.scratch.output.view(len(slots), heads, HEAD_DIM).clone())
    q, k, v, forget, beta = (torch.stack(parts, dim=1) for parts in zip(*inputs, strict=True))
    g = fla.lowerbound_gate(
        forget, weights.A_log, weights.dt_bias, lower_bound=weights.lower_bound, output_dtype=torch.float32
    )

    def norm(values: Tensor) -> Tensor:
        return values * torch.rsqrt(values.square().sum(-1, keepdim=True) + 1e-6)

    expected, final = fla.recurrent_kda(norm(q), norm(k), v, g, beta, initial_state=initial, output_final_state=True)
    for measured in compare("kda_update", "output", torch.stack(outputs, dim=1), expected):
        # fla's output is not rounded to bf16: half an ulp more in each element
        assert measured.value <= measured.limit + 2.0**-8, measured
    (state,) = compare("kda_update", "state", half.cache.temporal[slots].transpose(-1, -2), final)
    assert state.ok, state
