"""What a program needs of a device."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

import torch

from sgl_amd_mono.device.layout import Record

WORKGROUP_THREADS = 256
"""`kWorkgroupThreads` of hip/include/mono/base.h."""


class Device(Protocol):
    """One loaded kernel on one device; launches are in stream order."""

    torch_device: torch.device
    """Where the tensors of a launch live."""
    layout: Mapping[str, Record]
    """Argument structs of the kernel, as it was compiled."""
    fault_grace_s: float
    """Seconds between a fault's record and the end of the process that it brings; 0 where a launch raises instead."""
    workgroups: int
    """The grid of a launch: as many workgroups as are resident at once."""

    def host_visible(self, nbytes: int) -> torch.Tensor:
        """Zeroed bytes [nbytes] uint8 that kernels write and the host reads while a kernel runs."""
        ...

    def is_capturing(self) -> bool:
        """Whether launches are being recorded for replay, so that nothing may be bound or allocated."""
        ...

    def launch(self, args: bytes) -> None:
        """Enqueue one launch with the bytes of a `LaunchArgs`.

        Raises
        ------
        LaunchError
            When the launch is refused or fails; a device that runs in the background may report a failure later.
        """
        ...
