"""The watch on fault records: a record that a kernel writes is logged before the process ends, once."""

from __future__ import annotations

import logging
import time

import pytest

from sgl_amd_mono.device.host import HostDevice
from sgl_amd_mono.fault_watch import TURN_S, FaultWatch
from sgl_amd_mono.models.glm53_flash.program import KERNEL
from sgl_amd_mono.program import FaultKind, Program
from tests.models.glm53_flash.kda_case import HalfLayer, random_cache, random_weights


class StoppingDevice(HostDevice):
    """A host device that claims to end its process as a GPU does."""

    def __init__(self) -> None:
        super().__init__(KERNEL)
        self.fault_grace_s = 0.25


def program_on(device: HostDevice) -> Program:
    heads = 8
    return HalfLayer(device, random_weights(128, heads), random_cache(1, heads), [0]).program


def write_record(program: Program) -> None:
    record = program.device.layout["FaultRecord"]
    kind = FaultKind.TIMEOUT
    written = record.pack(claimed=1, kind=kind, rank=3, phase=0, layer=7, workgroup=11, expected=5, seen=4)
    program._record.numpy()[:] = list(written)


def logged(caplog: pytest.LogCaptureFixture) -> list[str]:
    deadline = time.monotonic() + 20 * TURN_S
    while not caplog.messages and time.monotonic() < deadline:
        time.sleep(TURN_S)
    # a second turn, which must not say it again
    time.sleep(2 * TURN_S)
    return caplog.messages


def test_a_record_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    watch, program = FaultWatch(), program_on(StoppingDevice())
    watch.add(program)
    with caplog.at_level(logging.ERROR):
        write_record(program)
        (message,) = logged(caplog)
    assert "rank 3, layer 7, phase kda_project, workgroup 11: a wait passed its deadline" in message


def test_a_forgotten_program_and_a_device_that_raises_are_not_watched(caplog: pytest.LogCaptureFixture) -> None:
    watch = FaultWatch()
    forgotten, raising = program_on(StoppingDevice()), program_on(HostDevice(KERNEL))
    watch.add(forgotten)
    watch.forget()
    watch.add(raising)
    with caplog.at_level(logging.ERROR):
        write_record(forgotten)
        write_record(raising)
        assert logged(caplog) == []
