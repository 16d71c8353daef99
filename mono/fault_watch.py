"""Says in the log what a kernel recorded before its fault ends the process.

On a GPU a launch fails after it was enqueued, by a memory fault that aborts the process: no call of ours returns an
error then. So a thread looks at the records that kernels write to host-visible memory; a kernel gives it
`Device.fault_grace_s` before it stops.
"""

from __future__ import annotations

import logging
import threading
import time

from sgl_amd_mono.program import Program

logger = logging.getLogger(__name__)

TURN_S = 0.05


class FaultWatch:
    """Watches the programs of one process until it ends."""

    def __init__(self) -> None:
        self._programs: list[Program] = []
        self._thread: threading.Thread | None = None

    def add(self, program: Program) -> None:
        """Watch `program` from now on, if its device stops by a fault of the process."""
        if program.device.fault_grace_s == 0:
            return
        self._programs.append(program)
        if self._thread is None:
            self._thread = threading.Thread(target=self._watch, name="monokernel fault watch", daemon=True)
            self._thread.start()

    def forget(self) -> None:
        """Watch none of the programs added so far."""
        self._programs.clear()

    def _watch(self) -> None:
        while True:
            for program in list(self._programs):
                if (fault := program.fault()) is not None:
                    logger.error("monokernel: %s", fault)
                    self._programs.remove(program)
            time.sleep(TURN_S)
