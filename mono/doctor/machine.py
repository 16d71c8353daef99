"""What of this machine the kernels need: GPU, compiler, compiled kernels, HIP bindings."""

from __future__ import annotations

import importlib.metadata
from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec
import torch

from sgl_amd_mono.build.compile import ARCHES, find
from sgl_amd_mono.build.toolchain import find_toolchain
from sgl_amd_mono.errors import BuildError

HIP_PYTHON = "hip-python"


class Gpu(msgspec.Struct, frozen=True):
    """The GPU that a process of this Python would use first."""

    name: str
    arch: str
    compute_units: int


class KernelBuild(msgspec.Struct, frozen=True, kw_only=True):
    """Whether one kernel source is built for one architecture, as it stands now."""

    kernel: str
    arch: str
    binary: Path | None
    problem: str = ""
    """Why there is no binary."""


class Machine(msgspec.Struct, frozen=True, kw_only=True):
    """What `look` found."""

    torch: str
    """Version; a build for ROCm says so in it or in `hip`."""
    hip: str | None
    """Version of HIP that torch was built for."""
    gpu: Gpu | None
    compiler: str | None
    kernels: tuple[KernelBuild, ...]
    """For the GPU's architecture, or for the one that is served where there is no GPU."""
    hip_python: str | None


def look(kernels: Sequence[str], served_arch: str) -> Machine:
    """Look at this machine; nothing is compiled."""
    gpu = find_gpu()
    return Machine(
        torch=torch.__version__,
        hip=torch.version.hip,
        gpu=gpu,
        compiler=_compiler(),
        kernels=tuple(_build(kernel, gpu.arch if gpu else served_arch) for kernel in kernels),
        hip_python=_hip_python(),
    )


def find_gpu() -> Gpu | None:
    """The AMD GPU that torch would use, or None."""
    if torch.version.hip is None or not torch.cuda.is_available():
        return None
    properties = torch.cuda.get_device_properties(torch.cuda.current_device())
    return Gpu(properties.name, properties.gcnArchName.split(":")[0], properties.multi_processor_count)


def gpu_refusals(machine: Machine, served_arch: str) -> Iterator[str]:
    """Why the GPU cannot run the kernels; of a server, SGLang says this itself."""
    if machine.gpu is None:
        yield "no GPU is visible"
    elif machine.gpu.arch != served_arch:
        yield f"the GPU is a {machine.gpu.arch}, the kernels serve {served_arch}"


def refusals(machine: Machine, workgroups: int) -> Iterator[str]:
    """Why the kernels could not be loaded or launched here, beside the architecture.

    Parameters
    ----------
    workgroups : what a launch needs resident at once, one on a compute unit.
    """
    if machine.gpu is not None and machine.gpu.compute_units < workgroups:
        yield (
            f"the GPU shows {machine.gpu.compute_units} compute units, a launch needs {workgroups}: "
            "take it out of its partitioned mode"
        )
    # without a compiler every kernel has the same problem
    yield from dict.fromkeys(build.problem for build in machine.kernels if build.problem)
    if machine.hip_python is None:
        yield f"{HIP_PYTHON} is not installed, which launches the kernels: run `pip install 'sgl-amd-mono[gpu]'`"


def _compiler() -> str | None:
    try:
        return str(find_toolchain())
    except BuildError:
        return None


def _build(kernel: str, arch: str) -> KernelBuild:
    if arch not in ARCHES:
        return KernelBuild(kernel=kernel, arch=arch, binary=None)
    try:
        return KernelBuild(kernel=kernel, arch=arch, binary=find(kernel, arch).binary)
    except BuildError as error:
        return KernelBuild(kernel=kernel, arch=arch, binary=None, problem=str(error))


def _hip_python() -> str | None:
    try:
        return importlib.metadata.version(HIP_PYTHON)
    except importlib.metadata.PackageNotFoundError:
        return None
