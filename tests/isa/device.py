"""A device of the product whose kernels run on the interpreter: everything above it is the production path."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import msgspec
import numpy as np
import torch
from torch import Tensor

from sgl_amd_mono.build.compile import Artifact
from sgl_amd_mono.device.base import WORKGROUP_THREADS
from sgl_amd_mono.device.layout import read_layout
from sgl_amd_mono.errors import LaunchError
from sgl_amd_mono.program import Program

from .gfx950 import Counts, IsaError, Launch, Memory, load, run


class IsaDevice:
    """One gfx950 kernel on the interpreter, a `Device` of sgl_amd_mono.device.base.

    Device memory is the storage of the tensors of the programs given to `watch`, at their addresses in this process.

    Attributes
    ----------
    counts : Counts
        What the last launch did.
    """

    def __init__(self, artifact: Artifact, entry: str, *, workgroups: int, seed: int = 0) -> None:
        self.torch_device = torch.device("cpu")
        self.layout = read_layout(artifact.binary)
        self.fault_grace_s = 0.0
        self.workgroups = workgroups
        self.seed = seed
        self.module = load(artifact.binary.read_bytes())
        self.entry = entry
        self.counts = Counts()
        self._tensors: dict[int, tuple[str, Tensor]] = {}

    def host_visible(self, nbytes: int) -> Tensor:
        return torch.zeros(nbytes, dtype=torch.uint8)

    def watch(self, program: Program) -> None:
        """Make the tensors of a program device memory."""
        for name, tensor in _tensors_of(program, "program"):
            self._tensors.setdefault(tensor.untyped_storage().data_ptr(), (name, tensor))

    def is_capturing(self) -> bool:
        return False

    def launch(self, args: bytes) -> None:
        run_side_by_side([(self, args)])


def run_side_by_side(launches: Sequence[tuple[IsaDevice, bytes]], max_instructions: int = 10_000_000) -> None:
    """Run launches of several ranks at the same time; the first device's seed decides the order.

    What workgroups and ranks hand to each other is checked (see gfx950/sharing.py).

    Raises
    ------
    LaunchError
        When the interpreter stops: a fault, an unknown instruction, or no progress.
    """
    memory = Memory()
    tensors = {address: named for device, _ in launches for address, named in device._tensors.items()}
    for address, (name, tensor) in tensors.items():
        memory.add(address, _bytes_of(tensor), name)
    described = [
        Launch(device.module, device.entry, args, device.workgroups, WORKGROUP_THREADS) for device, args in launches
    ]
    try:
        counts = run(described, memory, launches[0][0].seed, max_instructions, checks_sharing=True)
    except IsaError as error:
        raise LaunchError(str(error)) from error
    for device, _ in launches:
        device.counts = counts


def _bytes_of(tensor: Tensor) -> np.ndarray[Any, np.dtype[np.uint8]]:
    return torch.empty(0, dtype=torch.uint8).set_(tensor.untyped_storage()).numpy()


def _tensors_of(value: object, name: str) -> Iterator[tuple[str, Tensor]]:
    """Every tensor with storage that an object holds, directly or in containers, with where it was found."""
    if isinstance(value, Tensor):
        if value.untyped_storage().nbytes():
            yield name, value
    elif isinstance(value, Mapping):
        for key, part in value.items():
            yield from _tensors_of(part, f"{name}.{key}")
    elif isinstance(value, list | tuple):
        for i, part in enumerate(value):
            yield from _tensors_of(part, f"{name}[{i}]")
    elif isinstance(value, msgspec.Struct):
        yield from _tensors_of(msgspec.structs.asdict(value), name)
    elif isinstance(value, Program):
        yield from _tensors_of(vars(value), name)
