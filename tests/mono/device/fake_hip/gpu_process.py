"""What runs in a process of its own, which has loaded the fake HIP runtime and whose torch claims to have two GPUs.

Nothing here is a copy of mono/device/hip.py: that module runs as it is, through hip-python, unless a test asks for a
changed one.
"""

from __future__ import annotations

import ctypes
import functools
import inspect
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any
from unittest.mock import patch

import msgspec
import torch
from rocm.bindings.hip import hipError_t

from sgl_amd_mono.build.compile import HOST, Artifact, build
from sgl_amd_mono.device import hip
from sgl_amd_mono.device.base import Device
from sgl_amd_mono.device.host import HostDevice
from sgl_amd_mono.errors import MonoError
from sgl_amd_mono.models.glm53_flash.program import KERNEL
from sgl_amd_mono.program import Slicing
from tests.models.glm53_flash.kda_case import HalfLayer, random_cache, random_weights, random_x
from tests.mono.device.fake_hip.runtime import FakeHip

HIDDEN, HEADS, SLOTS = 128, 8, 5
WORKGROUPS = 6
CURRENT_GPU = 1
# a row of the output: bf16 NaNs
NEVER_WRITTEN = b"\xc0\x7f" * HIDDEN
STREAMS = (0x5EA0, 0x5EB0)

Change = tuple[str, str]


class Failing(msgspec.Struct, frozen=True):
    """A function of the runtime and the name of the error that it returns."""

    function: str
    error: str


class Outcome(msgspec.Struct):
    """How a run ended."""

    error: str | None = None
    complaints: Sequence[str] = ()
    """What the fake says of the calls that it got."""
    launches: int = 0
    pinned_bytes: int = 0
    """Memory that was asked for as visible to the GPU and the host."""
    results: Sequence[bytes] = ()
    """Output, convolution state and temporal state."""


def start(loaded: Path | None, rocm: Path) -> None:
    """Load a HIP runtime, as torch for ROCm does, and tell hip-python to look for one in `rocm`."""
    torch.set_num_threads(1)
    os.environ["ROCM_PATH"] = os.fspath(rocm)
    if loaded is not None:
        ctypes.CDLL(os.fspath(loaded))


def run_on_host(slots: Sequence[int]) -> Outcome:
    """A half layer on the host device."""
    return Outcome(results=_run_half_layer(HostDevice(KERNEL), slots, Slicing.STEP))


def run_on_hip(
    runtime: Path,
    slots: Sequence[int],
    slicing: Slicing = Slicing.STEP,
    *,
    arch: str | None = "gfx950",
    failing: Failing | None = None,
    change: Change | None = None,
) -> Outcome:
    """A half layer on the HIP device.

    Parameters
    ----------
    runtime : the fake's library.
    arch : architecture of the code object; None leaves it to the device.
    change : part of the source of mono/device/hip.py, and what it reads instead.
    """
    fake = _expecting(runtime, failing)
    outcome = Outcome()
    with _torch_with_gpus() as pinned:
        try:
            device = _hip_module(change).HipDevice(KERNEL, artifact=arch and _built(arch))
            outcome.results = _run_half_layer(OnCpuMemory(device), slots, slicing)
        except MonoError as error:
            outcome.error = str(error)
    outcome.complaints = fake.complaints
    outcome.launches = fake.launches
    outcome.pinned_bytes = sum(pinned)
    return outcome


def launch_bytes(runtime: Path, size: int) -> Outcome:
    """A launch with `size` bytes of arguments."""
    fake = _expecting(runtime)
    outcome = Outcome()
    with _torch_with_gpus():
        device = hip.HipDevice(KERNEL, artifact=_built("gfx950"))
        try:
            device.launch(bytes(size))
        except MonoError as error:
            outcome.error = str(error)
    outcome.launches = fake.launches
    return outcome


def make_device() -> Outcome:
    """A HIP device and nothing more; for runtimes that are not the fake or not alone."""
    with _torch_with_gpus():
        try:
            hip.HipDevice(KERNEL, artifact=_built("gfx950"))
        except MonoError as error:
            return Outcome(error=str(error))
    return Outcome()


class OnCpuMemory:
    """A HIP device whose tensors are the CPU's: this is where the fake runs the kernel."""

    def __init__(self, device: Device) -> None:
        self.torch_device = torch.device("cpu")
        self.layout = device.layout
        self.fault_grace_s = device.fault_grace_s
        self.workgroups = device.workgroups
        self.is_capturing = device.is_capturing
        self.host_visible = device.host_visible
        self.launch = device.launch


@functools.cache
def _built(arch: str) -> Artifact:
    return build(KERNEL, arch)


def _expecting(runtime: Path, failing: Failing | None = None) -> FakeHip:
    fake = FakeHip(runtime)
    fake.begin(
        module=_built("gfx950").binary.read_bytes(),
        library=_built(HOST).binary,
        grid=(WORKGROUPS, 1, 1),
        block=(256, 1, 1),
        lds_bytes=0,
        stream=STREAMS[CURRENT_GPU],
    )
    if failing is not None:
        fake.fail(failing.function, getattr(hipError_t, failing.error).value)
    return fake


def _run_half_layer(device: Device, slots: Sequence[int], slicing: Slicing) -> list[bytes]:
    half = HalfLayer(device, random_weights(HIDDEN, HEADS), random_cache(SLOTS, HEADS), slots)
    half.x.copy_(random_x(len(slots), HIDDEN))
    half.program.run(slicing)
    return [t.view(torch.uint8).numpy().tobytes() for t in (half.partial, half.cache.conv, half.cache.temporal)]


@contextmanager
def _torch_with_gpus() -> Iterator[list[int]]:
    """What hip.py asks of torch for ROCm, answered as on a machine with two GPUs; yields the sizes of pinned memory."""
    properties = SimpleNamespace(gcnArchName="gfx950:sramecc+:xnack-", multi_processor_count=WORKGROUPS)
    pinned = []
    zeros = torch.zeros

    def zeros_pinned_or_not(size: int, *, pin_memory: bool = False, **options: Any) -> torch.Tensor:
        if pin_memory:
            pinned.append(size)
        return zeros(size, **options)

    with (
        patch.object(torch.version, "hip", "7.0"),
        patch.object(torch, "zeros", zeros_pinned_or_not),
        patch.multiple(
            torch.cuda,
            is_available=lambda: True,
            current_device=lambda: CURRENT_GPU,
            get_device_properties=lambda device: properties,
            current_stream=lambda device: SimpleNamespace(cuda_stream=STREAMS[device.index]),
        ),
    ):
        yield pinned


def _hip_module(change: Change | None) -> ModuleType:
    if change is None:
        return hip
    old, new = change
    source = inspect.getsource(hip)
    assert source.count(old) == 1, f"{old!r} occurs {source.count(old)} times in {hip.__file__}"
    module = ModuleType(hip.__name__)
    exec(compile(source.replace(old, new), hip.__file__, "exec"), vars(module))
    return module
