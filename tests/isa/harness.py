"""Runs one kernel on the interpreter with numpy arrays as its buffers."""

from __future__ import annotations

from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from .build import compile_hip
from .gfx950 import Counts, Launch, Memory, Module, load, run

Array: TypeAlias = npt.NDArray[Any]
Argument: TypeAlias = Array | int | float | bytes

KERNELS = Path(__file__).parent / "kernels"


def hip_module(name: str, *defines: str) -> Module:
    """kernels/<name>.hip compiled for gfx950, with preprocessor symbols defined."""
    source = (KERNELS / f"{name}.hip").read_text()
    return load(compile_hip(source, f"-I{KERNELS}", *(f"-D{symbol}" for symbol in defines)))


def run_kernel(
    module: Module,
    kernel: str,
    *arguments: Argument,
    grid: tuple[int, int, int] = (1, 1, 1),
    block: int = 256,
    dynamic_lds: int = 0,
    seed: int = 0,
) -> Counts:
    """Execute one launch; arrays are placed in device memory and changed in place."""
    memory = Memory()
    values = [memory.place(a, f"argument {i}") if isinstance(a, np.ndarray) else a for i, a in enumerate(arguments)]
    kernarg = module.kernels[kernel].kernarg(*values, grid=grid, block=block)
    return run([Launch(module, kernel, kernarg, grid, block, dynamic_lds)], memory, seed)
