"""What a KDA half layer should cost on an MI355X: bytes, launches and barriers times published constants.

Nothing here is measured.
Prints the table of the README. Constants are those of other systems on the same GPU; each names where it was seen.
"""

from __future__ import annotations

import argparse

from rich.console import Console
from rich.table import Table

HIDDEN = 4096
HEADS = 64
HEAD_DIM = 128
CONV_TAPS = 4
BF16, F32 = 2, 4

HBM_BYTES_PER_US = 8.0e6
"""Nominal bandwidth, 8 TB/s; kernels have been seen to reach 71 to 90 % of it (vllm #53906, ATOM #2130)."""
LAUNCH_US = 4.2
"""Dependent small kernels in a decode step on an MI355X (sglang #39554)."""
BARRIER_US = (1.5, 2.5)
"""A grid barrier over eight dies, estimated from flag round trips between dies (fleet-chiplet-megakernel)."""
STANDARD_LAUNCHES = 6
"""SGLang 0.5.23 on ROCm: projection, low-rank gates, convolution, delta rule, gated norm, output projection."""
BARRIERS = 4
"""Three inside the half layer and the one after it."""


def weight_bytes(tp: int) -> int:
    """Weights of one rank's half layer."""
    values = HEADS // tp * HEAD_DIM
    projection = 3 * values + HEADS // tp + 2 * HEAD_DIM
    bf16 = projection * HIDDEN + 2 * values * HEAD_DIM + HIDDEN * values + HEAD_DIM
    return bf16 * BF16 + (3 * values * CONV_TAPS + values + HEADS // tp) * F32


def state_bytes(tp: int, rows: int) -> int:
    """States of `rows` rows, once in and once out."""
    values = HEADS // tp * HEAD_DIM
    return 2 * rows * (values * HEAD_DIM * F32 + (CONV_TAPS - 1) * 3 * values * BF16)


def performance_table() -> Table:
    """Modelled times by tensor-parallel size and rows."""
    table = Table(title="KDA half layer on MI355X, modelled (us)", title_justify="left")
    for column in ("TP", "rows", "weights MB", "states MB", "memory floor", "fused", "standard path"):
        table.add_column(column, justify="right")
    for tp in (1, 2, 4, 8):
        for rows in (1, 8):
            weights, states = weight_bytes(tp), state_bytes(tp, rows)
            floor = (weights + states) / HBM_BYTES_PER_US
            fused = "-".join(f"{floor + BARRIERS * barrier:.1f}" for barrier in BARRIER_US)
            standard = max(floor, STANDARD_LAUNCHES * LAUNCH_US)
            cells = f"{weights / 1e6:.1f}", f"{states / 1e6:.1f}", f"{floor:.1f}", fused, f">= {standard:.1f}"
            table.add_row(str(tp), str(rows), *cells)
    return table


def main() -> None:
    argparse.ArgumentParser(description=__doc__).parse_args()
    Console().print(performance_table())


if __name__ == "__main__":
    main()
