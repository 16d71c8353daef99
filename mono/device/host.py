"""The host device: runs a kernel's host build on the CPU, deterministically (hip/host)."""

from __future__ import annotations

import ctypes
import enum
import os
from collections.abc import Sequence

import msgspec
import torch

from sgl_amd_mono.build.compile import HOST, Artifact, build
from sgl_amd_mono.device.layout import read_layout
from sgl_amd_mono.errors import LaunchError

DEFAULT_WORKGROUPS = 8
_MESSAGE_BYTES = 1 << 16


class _Counters(ctypes.Structure):
    _fields_ = (
        ("streamed_bytes_read", ctypes.c_uint64),
        ("cached_bytes_read", ctypes.c_uint64),
        ("cached_lines_read", ctypes.c_uint64),
        ("bytes_written", ctypes.c_uint64),
        ("grid_barriers", ctypes.c_uint64),
    )


class _Launch(ctypes.Structure):
    _fields_ = (
        ("kernel", ctypes.c_char_p),
        ("args", ctypes.c_char_p),
        ("args_bytes", ctypes.c_uint64),
        ("workgroups", ctypes.c_uint32),
        ("phases", ctypes.c_uint32),
        ("counters", ctypes.POINTER(_Counters)),
    )


class _Options(ctypes.Structure):
    _fields_ = (
        ("seed", ctypes.c_uint64),
        ("has_peers", ctypes.c_uint32),
        ("counts_lines", ctypes.c_uint32),
        ("message_bytes", ctypes.c_uint32),
        ("reserved", ctypes.c_uint32),
        ("message", ctypes.c_char_p),
    )


class Status(enum.IntEnum):
    """How a run ended: `MonoHostStatus` of hip/host/run.h."""

    OK = 0
    FAULT = 1
    DEADLOCK = 2
    DIVERGENCE = 3
    INVALID = 4


class HostLaunchError(LaunchError):
    """A run on the host device that failed; `status` says how."""

    def __init__(self, status: Status, message: str) -> None:
        super().__init__(message)
        self.status = status


class PhaseCounters(msgspec.Struct, frozen=True):
    """What a phase did since the device was made, over all its launches and workgroups."""

    streamed_bytes_read: int
    """Weights and recurrent states: what a step reads once."""
    cached_bytes_read: int
    """Activations, indices, conv state: what several workgroups read, or one reads again; summed over lanes."""
    cached_lines_read: int
    """Cache lines that the cached reads touch, each once a launch: what they cost in memory traffic."""
    bytes_written: int
    grid_barriers: int
    """Barriers that followed the phase inside a launch."""


class HostDevice:
    """One kernel on the CPU.

    Parameters
    ----------
    kernel : name of the source, hip/kernels/<kernel>.hip; its entry is called <kernel>_step.
    workgroups : size of the grid. Results do not depend on it.
    seed : order in which workgroups and waves run; 0 runs them by index. Results do not depend on it either.
    has_peers : whether other processes write flags that a launch waits for. A wait then lasts up to the program's
        deadline; without peers a launch that nobody can continue fails at once.
    counts_lines : whether `PhaseCounters.cached_lines_read` is counted, which slows a launch down several times.
    """

    def __init__(
        self,
        kernel: str,
        *,
        workgroups: int = DEFAULT_WORKGROUPS,
        seed: int = 0,
        has_peers: bool = False,
        counts_lines: bool = False,
        artifact: Artifact | None = None,
    ) -> None:
        artifact = artifact or build(kernel, HOST)
        self.torch_device = torch.device("cpu")
        self.layout = read_layout(artifact.binary)
        self.fault_grace_s = 0.0
        self.workgroups = workgroups
        self.seed = seed
        self.has_peers = has_peers
        self.counts_lines = counts_lines
        self.launches = 0
        self._entry = f"{kernel}_step".encode()
        self._phases = [record.name for record in self.layout.values() if record.phase is not None]
        self._counters = (_Counters * len(self._phases))()
        self._run = ctypes.CDLL(os.fspath(artifact.binary)).mono_host_run
        self._run.argtypes = (ctypes.POINTER(_Launch), ctypes.c_uint32, ctypes.POINTER(_Options))

    def host_visible(self, nbytes: int) -> torch.Tensor:
        return torch.zeros(nbytes, dtype=torch.uint8)

    def is_capturing(self) -> bool:
        return False

    def launch(self, args: bytes) -> None:
        run_side_by_side([(self, args)])

    def counters(self) -> dict[str, PhaseCounters]:
        """Counters of every phase of the kernel, by its name."""
        names = PhaseCounters.__struct_fields__
        return {
            phase: PhaseCounters(*(getattr(counted, name) for name in names))
            for phase, counted in zip(self._phases, self._counters, strict=True)
        }


def run_side_by_side(launches: Sequence[tuple[HostDevice, bytes]]) -> None:
    """Run launches of several ranks at the same time, in one scheduler; the first device's seed decides the order.

    Raises
    ------
    HostLaunchError
        When a launch stops with a fault, nobody can continue, lanes diverge, or the arguments do not fit.
    """
    devices = [device for device, _ in launches]
    described = (_Launch * len(launches))(
        *(
            _Launch(device._entry, args, len(args), device.workgroups, len(device._phases), device._counters)
            for device, args in launches
        )
    )
    message = ctypes.create_string_buffer(_MESSAGE_BYTES)
    options = _Options(
        devices[0].seed,
        int(any(device.has_peers for device in devices)),
        int(any(device.counts_lines for device in devices)),
        _MESSAGE_BYTES,
        0,
        ctypes.cast(message, ctypes.c_char_p),
    )
    status = Status(devices[0]._run(described, len(launches), ctypes.byref(options)))
    if status is not Status.OK:
        raise HostLaunchError(status, message.value.decode())
    for device in devices:
        device.launches += 1
