"""The HIP device: launches a kernel's code object on an AMD GPU, on torch's current stream."""

from __future__ import annotations

import ctypes
import os
from pathlib import Path
from typing import Any

import torch

from sgl_amd_mono.build.codeobject import read_kernels
from sgl_amd_mono.build.compile import Artifact, build
from sgl_amd_mono.device.base import WORKGROUP_THREADS
from sgl_amd_mono.device.layout import read_layout
from sgl_amd_mono.errors import BuildError, LaunchError

_RUNTIME = "libamdhip64.so"


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
        self.workgroups = properties.multi_processor_count
        entry = f"{kernel}_step"
        self._arguments = _argument_type(artifact, entry, self.layout["LaunchArgs"].size)
        self._hip = _bindings()
        self._module = self._call(self._hip.hipModuleLoadData, artifact.binary.read_bytes())
        self._function = self._call(self._hip.hipModuleGetFunction, self._module, entry.encode())

    def host_visible(self, nbytes: int) -> torch.Tensor:
        return torch.zeros(nbytes, dtype=torch.uint8, pin_memory=True)

    def is_capturing(self) -> bool:
        return torch.cuda.is_current_stream_capturing()

    def launch(self, args: bytes) -> None:
        grid, block, lds = (self.workgroups, 1, 1), (WORKGROUP_THREADS, 1, 1), 0
        stream = torch.cuda.current_stream(self.torch_device).cuda_stream
        extra = (self._arguments.from_buffer_copy(args),)
        self._call(self._hip.hipModuleLaunchKernel, self._function, *grid, *block, lds, stream, None, extra)

    def _call(self, function: Any, *args: Any) -> Any:
        status, *results = function(*args)
        if status != self._hip.hipError_t.hipSuccess:
            raise LaunchError(f"{function.__name__} failed: {status!r}")
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
    """hip-python, after making sure that its first call will not load a second HIP runtime beside torch's.

    Two runtimes in one process do not share streams, modules or memory.
    """
    try:
        from hip import hip  # type: ignore[attr-defined, unused-ignore]
    except ImportError as error:
        raise LaunchError("The HIP bindings are missing: install sgl-amd-mono[gpu] (hip-python).") from error
    mapped = _mapped_runtimes()
    if mapped and not _resolves_to_loaded_runtime():
        raise LaunchError(
            f"torch has loaded {mapped[0]}, but the name {_RUNTIME} leads hip-python to another copy. "
            f"Put {mapped[0].parent} first in LD_LIBRARY_PATH and start again."
        )
    return hip


def _mapped_runtimes(maps: Path = Path("/proc/self/maps")) -> list[Path]:
    files = {Path(line.split(maxsplit=5)[5]) for line in maps.read_text().splitlines() if _RUNTIME in line}
    return sorted(files)


def _resolves_to_loaded_runtime() -> bool:
    try:
        ctypes.CDLL(_RUNTIME, mode=os.RTLD_NOLOAD)
    except OSError:
        return False
    return True
