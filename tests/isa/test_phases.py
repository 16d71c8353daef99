"""Every phase at a tiny shape: the gfx950 machine code on the interpreter beside the host build on the host device."""

from __future__ import annotations

import functools

import msgspec
import pytest
import torch
from torch import Tensor

from sgl_amd_mono.build.compile import Artifact, build, kernels
from sgl_amd_mono.device.base import Device
from sgl_amd_mono.device.host import HostDevice
from sgl_amd_mono.errors import LaunchError
from sgl_amd_mono.models.glm53_flash.kda_buffers import KdaCache, StepInputs, allocate_kda_scratch
from sgl_amd_mono.models.glm53_flash.layout import KdaWeights
from sgl_amd_mono.models.glm53_flash.program import KERNEL, kda_half_layer
from sgl_amd_mono.program import CLOCK_TICKS_PER_SECOND, FaultKind, Program, Slicing

from .device import IsaDevice
from .gfx950 import load
from .gfx950.flow import Flow

pytestmark = [pytest.mark.isa, pytest.mark.host]

WORKGROUPS = 4
ROWS, HIDDEN, HEADS, HEAD_DIM, SLOTS = 3, 128, 8, 128, 4
VALUES = HEADS * HEAD_DIM


@functools.cache
def artifact() -> Artifact:
    return build(KERNEL, "gfx950")


class HalfLayer(msgspec.Struct, frozen=True):
    """The buffers of one KDA half layer."""

    weights: KdaWeights
    cache: KdaCache
    step: StepInputs
    x: Tensor
    partial: Tensor


def half_layer(seed: int) -> HalfLayer:
    generator = torch.Generator().manual_seed(seed)

    def normal(*shape: int, scale: float = 1.0, dtype: torch.dtype = torch.bfloat16) -> Tensor:
        return (torch.randn(shape, generator=generator) * scale).to(dtype)

    low_rank = HIDDEN**-0.5
    weights = KdaWeights(
        projection=(normal(3 * VALUES + HEADS + 2 * HEAD_DIM, HIDDEN, scale=low_rank),),
        forget_b=normal(VALUES, HEAD_DIM, scale=HEAD_DIM**-0.5),
        output_b=normal(VALUES, HEAD_DIM, scale=HEAD_DIM**-0.5),
        conv=normal(3 * VALUES, 4, scale=0.5, dtype=torch.float32),
        A_log=normal(HEADS, scale=0.1, dtype=torch.float32),
        dt_bias=normal(VALUES, scale=0.1, dtype=torch.float32),
        o_norm=normal(HEAD_DIM),
        o_proj=normal(HIDDEN, VALUES, scale=VALUES**-0.5),
        lower_bound=-5.0,
        norm_eps=1e-6,
    )
    cache = KdaCache(
        conv=normal(SLOTS, 3, 3 * VALUES),
        temporal=normal(SLOTS, HEADS, HEAD_DIM, HEAD_DIM, scale=0.1, dtype=torch.float32),
    )
    step = StepInputs(slots=torch.tensor([2, -1, 0], dtype=torch.int32))
    return HalfLayer(weights, cache, step, normal(ROWS, HIDDEN), torch.zeros(ROWS, HIDDEN, dtype=torch.bfloat16))


def program_of(device: Device, layer: HalfLayer, *, syncs: bool = True) -> Program:
    """The half layer's program with scratch full of NaN; without `syncs` its entries have no grid barriers."""
    scratch = allocate_kda_scratch(layer.weights, ROWS, device.torch_device)
    for tensor in msgspec.structs.astuple(scratch):
        tensor.fill_(torch.nan)
    entries = kda_half_layer(0, layer.weights, layer.cache, layer.step, scratch, layer.x, layer.partial)
    program = Program(device, [entry if syncs else msgspec.structs.replace(entry, sync=False) for entry in entries])
    if isinstance(device, IsaDevice):
        device.watch(program)
    return program


def isa_device(*, workgroups: int = WORKGROUPS, seed: int = 0) -> IsaDevice:
    return IsaDevice(artifact(), f"{KERNEL}_step", workgroups=workgroups, seed=seed)


def run(device: Device, slicing: Slicing, *, syncs: bool = True) -> HalfLayer:
    """A fresh half layer, run once."""
    layer = half_layer(seed=5)
    program_of(device, layer, syncs=syncs).run(slicing)
    return layer


def results(layer: HalfLayer) -> tuple[Tensor, Tensor, Tensor]:
    return layer.partial, layer.cache.conv, layer.cache.temporal


@pytest.mark.parametrize("kernel", kernels())
def test_every_instruction_is_known(kernel: str) -> None:
    module = load(build(kernel, "gfx950").binary.read_bytes())
    assert [message for name in module.kernels for message in module.unknown(name)] == []


@pytest.mark.parametrize("slicing", [Slicing.PHASE, Slicing.STEP])
def test_kda_half_layer_as_on_the_host_device(slicing: Slicing) -> None:
    """The devices differ in the last place of exp2, rcp and rsqrt, and so may what is computed from them."""
    found = results(run(isa_device(seed=1), slicing))
    host = results(run(HostDevice(KERNEL, workgroups=WORKGROUPS), slicing))
    start = half_layer(seed=5)
    assert all(not torch.equal(after, before) for after, before in zip(found, results(start), strict=True))
    # bf16 numbers: one unit in the last place, of the largest for sums that cancel
    for a, b in zip(found[:2], host[:2], strict=True):
        torch.testing.assert_close(a, b, rtol=2.0**-8, atol=2.0**-8 * b.float().abs().max().item())
        assert (a != b).float().mean() < 0.01
    torch.testing.assert_close(found[2], host[2], rtol=0, atol=2.0**-20 * host[2].abs().max().item())
    # row 1 is padding: nothing is stored for it, and slots 1 and 3 belong to nobody
    assert not found[0][1].any()
    for after, before in zip(found[1:], results(start)[1:], strict=True):
        assert torch.equal(after[[1, 3]], before[[1, 3]])


def test_bits_do_not_depend_on_grid_slicing_or_schedule() -> None:
    first = results(run(isa_device(workgroups=2, seed=3), Slicing.STEP))
    for device, slicing in ((isa_device(workgroups=5, seed=4), Slicing.STEP), (isa_device(seed=6), Slicing.PHASE)):
        for a, b in zip(first, results(run(device, slicing)), strict=True):
            assert torch.equal(a, b)


def test_a_missing_grid_barrier_is_seen() -> None:
    with_barriers = results(run(isa_device(seed=1), Slicing.STEP))
    without = results(run(isa_device(seed=1), Slicing.STEP, syncs=False))
    assert not all(torch.equal(a, b) for a, b in zip(with_barriers, without, strict=True))


def test_what_runs_is_what_the_lint_has_judged() -> None:
    """No executed instruction lies off its paths; the write-backs and invalidates of system scope are executed."""
    device = isa_device(seed=2)
    run(device, Slicing.STEP)
    on_paths = {insn.address for insn in Flow(device.module, device.entry).instructions}
    assert {entry.insn.address for entry in device.module.entries} <= on_paths
    assert all(device.counts.scopes[name, "sc0 sc1"] > 0 for name in ("buffer_wbl2", "buffer_inv"))


def test_a_slot_outside_of_the_pool_stops_the_launch() -> None:
    device, layer = isa_device(), half_layer(seed=5)
    layer.step.slots[0] = SLOTS
    program = program_of(device, layer)
    with pytest.raises(LaunchError, match=r"at 0x0 |0x0 is below every buffer"):
        program.run(Slicing.STEP)
    fault = program.fault()
    assert fault is not None
    assert (fault.kind, fault.layer, fault.expected, fault.seen) == (FaultKind.SLOT_OUT_OF_RANGE, 0, SLOTS, SLOTS)


def time_out() -> tuple[HalfLayer, Program]:
    """Launch one workgroup less than the grid barrier expects."""
    device, layer = isa_device(), half_layer(seed=5)
    entries = program_of(device, layer).entries
    # the interpreter's clock ticks once a wave instruction
    program = Program(device, entries, deadline_s=200_000 / CLOCK_TICKS_PER_SECOND)
    device.watch(program)
    args = program.launch_args(0, len(entries))
    device.workgroups -= 1
    with pytest.raises(LaunchError, match="0x0 is below every buffer"):
        device.launch(args)
    return layer, program


def test_a_workgroup_that_never_arrives_is_a_timeout() -> None:
    _, program = time_out()
    record = program.device.layout["FaultRecord"].unpack(program._record.numpy().tobytes())
    assert {name: record[name] for name in ("kind", "layer", "expected", "seen")} == {
        "kind": FaultKind.TIMEOUT,
        "layer": 0,
        "expected": 1,
        "seen": 0,
    }


def test_a_timeout_stops_the_launch_where_it_happens() -> None:
    layer, program = time_out()
    fault = program.fault()
    assert fault is not None
    assert fault.phase == "kda_project"
    for after, before in zip(results(layer), results(half_layer(seed=5)), strict=True):
        assert torch.equal(after, before)
