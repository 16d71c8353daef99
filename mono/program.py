"""A step as a program of phases: a table in device memory, launched in slices (design.md section 3)."""

from __future__ import annotations

import enum
import itertools
from collections.abc import Iterable, Mapping, Sequence

import msgspec
import torch
from torch import Tensor

from sgl_amd_mono.device.base import Device
from sgl_amd_mono.device.layout import Value
from sgl_amd_mono.errors import LaunchError, LayoutError

CLOCK_TICKS_PER_SECOND = 100_000_000
DEFAULT_DEADLINE_S = 30.0
# of every struct that a launch reads: one cache line, `kCacheLineBytes`
_ALIGNMENT = 128


class Slicing(enum.Enum):
    """How a program is cut into launches; every slicing gives the same bits."""

    PHASE = "phase"
    LAYER = "layer"
    STEP = "step"


class Entry(msgspec.Struct, frozen=True, kw_only=True):
    """One phase of one layer.

    Attributes
    ----------
    args : fields of the phase's argument struct; a tensor stands for its address, None for a null pointer.
    sync : whether a grid barrier follows. False only when the next entry reads nothing that this one writes and
        writes nothing that this one reads.
    """

    phase: str
    layer: int
    args: Mapping[str, Tensor | Sequence[Tensor | None] | Value | None]
    sync: bool = True


class FaultKind(enum.IntEnum):
    """`mono::FaultKind`."""

    TIMEOUT = 1
    SLOT_OUT_OF_RANGE = 2


class Fault(msgspec.Struct, frozen=True):
    """What a launch recorded before it stopped."""

    kind: FaultKind
    rank: int
    phase: str
    layer: int
    workgroup: int
    expected: int
    seen: int

    def __str__(self) -> str:
        where = f"rank {self.rank}, layer {self.layer}, phase {self.phase}, workgroup {self.workgroup}"
        if self.kind is FaultKind.TIMEOUT:
            return f"{where}: a wait passed its deadline; expected epoch {self.expected}, saw {self.seen}"
        return f"{where}: a state slot is outside of the pool; expected one below {self.expected}, saw {self.seen}"


class Program:
    """The phases of one step for one number of rows, in device memory.

    Parameters
    ----------
    entries : phases in order. The program keeps their tensors alive.
    deadline_s : seconds that a workgroup waits for the others before the launch stops with a fault.

    Raises
    ------
    LayoutError
        When an entry names an unknown phase, or its arguments do not fit the phase's struct.
    """

    def __init__(
        self, device: Device, entries: Sequence[Entry], *, rank: int = 0, deadline_s: float = DEFAULT_DEADLINE_S
    ) -> None:
        self.device = device
        self.entries = tuple(entries)
        self._phases = {record.phase: record.name for record in device.layout.values() if record.phase is not None}
        self._args, self._table = self._upload()
        self._grid = self._to_device(bytes(device.layout["GridState"].size))
        self._record = device.host_visible(device.layout["FaultRecord"].size)
        self._context = self._to_device(
            device.layout["FaultContext"].pack(
                record=self._record.data_ptr(),
                deadline_ticks=round(deadline_s * CLOCK_TICKS_PER_SECOND),
                grace_ticks=round(device.fault_grace_s * CLOCK_TICKS_PER_SECOND),
                rank=rank,
            )
        )

    def slices(self, slicing: Slicing, begin: int = 0, end: int | None = None) -> list[tuple[int, int]]:
        """Launches of the entries [begin, end): contiguous ranges, in order."""
        stop = len(self.entries) if end is None else end
        if slicing is Slicing.STEP:
            return [(begin, stop)] if begin < stop else []
        if slicing is Slicing.PHASE:
            return [(i, i + 1) for i in range(begin, stop)]
        layers = itertools.groupby(range(begin, stop), lambda i: self.entries[i].layer)
        return [(span[0], span[-1] + 1) for span in (list(group) for _, group in layers)]

    def run(self, slicing: Slicing, begin: int = 0, end: int | None = None) -> None:
        """Enqueue the entries [begin, end) on the device's stream.

        Raises
        ------
        LaunchError
            When a launch is refused or fails; names the fault that the kernel recorded, if it did.
        """
        self.launch(self.launch_args(*span) for span in self.slices(slicing, begin, end))

    def launch(self, launches: Iterable[bytes]) -> None:
        """Enqueue launches of this program, each the bytes of its `launch_args`.

        Raises
        ------
        LaunchError
            As `run`.
        """
        try:
            for args in launches:
                self.device.launch(args)
        except LaunchError as error:
            if (fault := self.fault()) is not None:
                error.args = (f"{error}\n{fault}",)
            raise

    def launch_args(self, begin: int, end: int) -> bytes:
        """Bytes of the `LaunchArgs` that run the entries [begin, end) in one launch."""
        return self.device.layout["LaunchArgs"].pack(
            program=self._table.data_ptr(),
            grid=self._grid.data_ptr(),
            faults=self._context.data_ptr(),
            begin=begin,
            end=end,
            workgroups=self.device.workgroups,
        )

    def lose_an_arrival(self) -> None:
        """For tests of what must notice: the next grid barrier waits for a workgroup that never comes."""
        self._grid[: torch.int32.itemsize].view(torch.int32).sub_(1)

    def fault(self) -> Fault | None:
        """The fault that a launch of this program recorded, if any."""
        record = self.device.layout["FaultRecord"].unpack(self._record.numpy().tobytes())
        if record["kind"] == 0:
            return None
        return Fault(
            FaultKind(record["kind"]),
            record["rank"],
            self._phases[record["phase"]],
            record["layer"],
            record["workgroup"],
            record["expected"],
            record["seen"],
        )

    def _upload(self) -> tuple[Tensor, Tensor]:
        packed = [self._pack(entry) for entry in self.entries]
        sizes = [-(-len(args) // _ALIGNMENT) * _ALIGNMENT for args in packed]
        args = self._to_device(b"".join(a.ljust(size, b"\0") for a, size in zip(packed, sizes, strict=True)))
        offsets = itertools.accumulate(sizes[:-1], initial=0)
        record = self.device.layout["ProgramEntry"]
        rows = [
            record.pack(
                phase=self.device.layout[entry.phase].phase or 0,
                layer=entry.layer,
                sync=int(entry.sync),
                args=args.data_ptr() + offset,
            )
            for entry, offset in zip(self.entries, offsets, strict=True)
        ]
        return args, self._to_device(b"".join(rows))

    def _pack(self, entry: Entry) -> bytes:
        record = self.device.layout.get(entry.phase)
        if record is None or record.phase is None:
            raise LayoutError(f"the kernel has no phase {entry.phase!r}; it has {sorted(self._phases.values())}")
        return record.pack(**{name: self._value(entry, name, value) for name, value in entry.args.items()})

    def _value(self, entry: Entry, name: str, value: Tensor | Sequence[Tensor | None] | Value | None) -> Value:
        if value is None:
            return 0
        if isinstance(value, float):
            return value
        if isinstance(value, Tensor | int):
            return self._address_or_number(entry, name, value)
        return [0 if element is None else self._address_or_number(entry, name, element) for element in value]

    def _address_or_number(self, entry: Entry, name: str, value: Tensor | int) -> int:
        if isinstance(value, int):
            return value
        if value.device.type != self.device.torch_device.type:
            raise LayoutError(
                f"{entry.phase}.{name} of layer {entry.layer} is on {value.device}, "
                f"the program runs on {self.device.torch_device}"
            )
        return value.data_ptr()

    def _to_device(self, data: bytes) -> Tensor:
        memory = torch.empty(len(data) + _ALIGNMENT, dtype=torch.uint8, device=self.device.torch_device)
        begin = -memory.data_ptr() % _ALIGNMENT
        aligned = memory[begin : begin + len(data)]
        return aligned.copy_(torch.frombuffer(bytearray(data), dtype=torch.uint8))
