"""How fast the host device runs kernels: a matrix-vector product and a grid barrier, against the goals of the project.

Times are the best of several runs on this machine and say nothing about a GPU.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable

import torch
from rich.console import Console
from rich.table import Table

from sgl_amd_mono.device.host import HostDevice
from sgl_amd_mono.models.glm53_flash.program import KERNEL
from sgl_amd_mono.program import Entry, Program, Slicing

WORKGROUPS = 8
ROWS, SIZE = 16, 4096
GEMV_GOAL_MS = 60.0
BARRIER_GOAL_MS = 0.5
BARRIERS = 100


def best_ms(run: Callable[[], None], repeats: int) -> float:
    """Milliseconds of the fastest of `repeats` runs, after one that is not counted."""
    run()
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        run()
        times.append(time.perf_counter() - start)
    return 1e3 * min(times)


def gemv_program(device: HostDevice) -> Program:
    """16 rows times a 4096 x 4096 bf16 weight, by the projection phase."""
    args = {
        "x": torch.randn(ROWS, SIZE).bfloat16(),
        "weights": [torch.randn(SIZE, SIZE).bfloat16(), *[None] * 5],
        "weight_end": [SIZE] * 6,
        "projected": torch.empty(ROWS, SIZE, dtype=torch.bfloat16),
        "rows": ROWS,
        "hidden": SIZE,
        "columns": SIZE,
    }
    return Program(device, [Entry(phase="kda_project", layer=0, args=args)])


def barrier_program(device: HostDevice) -> Program:
    """A grid barrier after each of many convolutions of one padded row, which do nothing."""
    channels = 2
    args = {
        "projected": torch.zeros(1, channels).bfloat16(),
        "taps": torch.zeros(channels, 4),
        "slots": torch.full((1,), -1, dtype=torch.int32),
        "track_mask": None,
        "track_slots": None,
        "state": torch.zeros(1, 3, channels).bfloat16(),
        "convolved": torch.zeros(1, channels).bfloat16(),
        "state_slot_stride": 3 * channels,
        "rows": 1,
        "projected_columns": channels,
        "channels": channels,
        "pool_slots": 1,
    }
    return Program(device, [Entry(phase="kda_conv", layer=0, args=args)] * (BARRIERS + 1))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=7, help="runs of each case; the fastest counts (default: 7)")
    repeats = parser.parse_args().repeats
    device = HostDevice(KERNEL, workgroups=WORKGROUPS)
    gemv, barriers = gemv_program(device), barrier_program(device)
    gemv_ms = best_ms(lambda: gemv.run(Slicing.STEP), repeats)
    barrier_ms = best_ms(lambda: barriers.run(Slicing.STEP), repeats) / BARRIERS

    table = Table("case", title=f"Host device, {WORKGROUPS} workgroups of 256 threads (ms)", title_justify="left")
    for column in ("best", "goal"):
        table.add_column(column, justify="right")
    table.add_row(f"{ROWS}-row bf16 product with {SIZE} x {SIZE}", f"{gemv_ms:.1f}", f"< {GEMV_GOAL_MS:.0f}")
    table.add_row("grid barrier, with an empty phase", f"{barrier_ms:.3f}", f"< {BARRIER_GOAL_MS}")
    Console().print(table)


if __name__ == "__main__":
    main()
