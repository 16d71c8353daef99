"""The HIP device: launches a kernel's code object on an AMD GPU, on torch's current stream."""

from __future__ import annotations

import ctypes
from pathlib import Path
from typing import Any

import torch

from sgl_amd_mono.build.codeobject import read_kernels
from sgl_amd_mono.build.compile import Artifact, build
from sgl_amd_mono.device.base import WORKGROUP_THREADS
from sgl_amd_mono.device.layout import read_layout
from sgl_amd_mono.errors import BuildError, LaunchError

_RUNTIME = "libamdhip64.so"

_REBUILD = "Build the kernels for this GPU again with `amd-mono build`."
_REMEDIES = {
    "hipErrorNoDevice": "Check that HIP_VISIBLE_DEVICES names a GPU and that this user may open /dev/kfd.",
    "hipErrorOutOfMemory": "The GPU has no memory left: stop what else runs on it, or give SGLang's pools less of it.",
    "hipErrorInvalidImage": _REBUILD,
    "hipErrorNoBinaryForGpu": _REBUILD,
    "hipErrorNotFound": _REBUILD,
    "hipErrorLaunchFailure": "This launch or an earlier one failed on the GPU: end this process and start again.",
}
# several turns of what watches for records
_FAULT_GRACE_S = 0.25
_OTHER_REMEDY = "Start again with AMD_LOG_LEVEL=3, and the HIP runtime says why."


class HipDevice:
    """One kernel on torch's current GPU.

    Parameters
    ----------
    kernel : name of the source, hip/kernels/<kernel>.hip; its entry is called <kernel>_step.
    artifact : its code object; by default the one of this GPU's architecture.

    Raises
    ------
    LaunchError
        No AMD GPU, no HIP bindings, or a code object that the driver refuses.
    BuildError
        A code object whose kernel takes other arguments than its own layout table says.
    """

    def __init__(self, kernel: str, *, artifact: Artifact | None = None) -> None:
        if torch.version.hip is None or not torch.cuda.is_available():
            raise LaunchError(
                f"No AMD GPU: torch {torch.__version__} sees none. Install torch for ROCm on a machine with an MI355X, "
                "or run on the CPU with the host device."
            )
        properties = torch.cuda.get_device_properties(torch.cuda.current_device())
        artifact = artifact or build(kernel, properties.gcnArchName.split(":")[0])
        self.torch_device = torch.device("cuda", torch.cuda.current_device())
        self.layout = read_layout(artifact.binary)
        self.fault_grace_s = _FAULT_GRACE_S
        self.workgroups = properties.multi_processor_count
        entry = f"{kernel}_step"
        self._arguments = _argument_type(artifact, entry, self.layout["LaunchArgs"].size)
        self._launching = f"launch {entry} with {self.workgroups} workgroups on {self.torch_device}"
        self._hip = _bindings()
        loading = f"load {artifact.binary} on {self.torch_device}"
        self._module = self._call(loading, self._hip.hipModuleLoadData, artifact.binary.read_bytes())
        finding = f"find {entry} in {artifact.binary}"
        self._function = self._call(finding, self._hip.hipModuleGetFunction, self._module, entry.encode())

    def host_visible(self, nbytes: int) -> torch.Tensor:
        return torch.zeros(nbytes, dtype=torch.uint8, pin_memory=True)

    def is_capturing(self) -> bool:
        return torch.cuda.is_current_stream_capturing()

    def launch(self, args: bytes) -> None:
        if len(args) != (size := ctypes.sizeof(self._arguments)):
            raise LaunchError(f"Cannot {self._launching}: it takes {size} bytes of arguments, not {len(args)}.")
        grid, block, lds = (self.workgroups, 1, 1), (WORKGROUP_THREADS, 1, 1), 0
        stream = torch.cuda.current_stream(self.torch_device).cuda_stream
        extra = (self._arguments.from_buffer_copy(args),)
        launch = self._hip.hipModuleLaunchKernel
        self._call(self._launching, launch, self._function, *grid, *block, lds, stream, None, extra)

    def _call(self, purpose: str, function: Any, *args: Any) -> Any:
        status, *results = function(*args)
        if status != self._hip.hipError_t.hipSuccess:
            remedy = _REMEDIES.get(status.name, _OTHER_REMEDY)
            raise LaunchError(f"Cannot {purpose}: {function.__name__} returned {status.name}. {remedy}")
        return results[0] if results else None


def _argument_type(artifact: Artifact, entry: str, size: int) -> type[ctypes.Structure]:
    kernels = {kernel.name: kernel for kernel in read_kernels(artifact.binary)}
    if entry not in kernels:
        raise BuildError(f"{artifact.binary} has no kernel {entry}; it has {sorted(kernels)}. Rebuild the kernels.")
    if kernels[entry].kernarg != size:
        raise BuildError(
            f"{artifact.binary}: kernel {entry} takes {kernels[entry].kernarg} bytes of arguments, "
            f"its layout table says {size}. Rebuild the kernels."
        )

    class Arguments(ctypes.Structure):
        _fields_ = (("words", ctypes.c_uint64 * (size // ctypes.sizeof(ctypes.c_uint64))),)

    return Arguments


def _bindings() -> Any:
    """hip-python, on the HIP runtime that torch has loaded.

    Two runtimes in one process do not share streams, modules or memory. Where hip-python finds its own (ROCm's Python
    packages, ROCM_PATH, the loader's path) is its own affair, so it loads it here and then they are counted.
    """
    try:
        # not `from hip import hip`: in a checkout of this project, `hip` is the folder of the kernels.
        from rocm.bindings import hip
    except ImportError as error:
        raise LaunchError("The HIP bindings are missing: install sgl-amd-mono[gpu] (hip-python 10).") from error
    try:
        hip.hipRuntimeGetVersion()
    except RuntimeError as error:
        raise LaunchError(
            f"hip-python cannot load the HIP runtime: {error}. Set ROCM_PATH to the ROCm installation that torch uses."
        ) from error
    if len(runtimes := _mapped_runtimes()) > 1:
        raise LaunchError(
            f"torch and hip-python have loaded two HIP runtimes: {', '.join(map(str, runtimes))}. Set ROCM_PATH to the "
            f"folder whose lib/{_RUNTIME} is torch's and start again."
        )
    return hip


def _mapped_runtimes(maps: Path = Path("/proc/self/maps")) -> list[Path]:
    files = {Path(line.split(maxsplit=5)[5]) for line in maps.read_text().splitlines() if _RUNTIME in line}
    return sorted(files)
