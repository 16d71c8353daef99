"""Presents what a kernel occupies on a compute unit."""

from __future__ import annotations

from collections.abc import Iterable

from rich.table import Table

from sgl_amd_mono.build.codeobject import Kernel
from sgl_amd_mono.build.gates import LDS_BYTES

# a CDNA3/CDNA4 compute unit (LLVM AMDGPUUsage, AMDGPUSubtarget)
_SIMDS = 4
_MAX_WAVES = 8
_VGPRS = 512
_VGPR_GRANULE = 8


def waves_per_simd(kernel: Kernel, arch: str) -> int:
    """Waves of a kernel that a SIMD holds at once, as its registers and its LDS allow."""
    by_registers = _VGPRS // (_ceil_div(max(kernel.vgpr, 1), _VGPR_GRANULE) * _VGPR_GRANULE)
    if not kernel.lds:
        return min(_MAX_WAVES, by_registers)
    workgroups = LDS_BYTES[arch] // kernel.lds
    by_lds = _ceil_div(workgroups * _ceil_div(kernel.threads, kernel.wavefront), _SIMDS)
    return min(_MAX_WAVES, by_registers, by_lds)


def resource_table(rows: Iterable[tuple[str, Kernel]]) -> Table:
    """Table of (architecture, kernel) pairs, narrow enough for 80 columns."""
    table = Table(box=None, padding=(0, 1, 0, 0), caption="LDS, scratch and code in bytes; waves a SIMD")
    table.add_column("kernel", no_wrap=True)
    table.add_column("arch", no_wrap=True)
    for heading in ("VGPR", "AGPR", "SGPR", "LDS", "scratch", "spills", "waves", "code"):
        table.add_column(heading, justify="right", no_wrap=True)
    for arch, kernel in rows:
        spills = kernel.vgpr_spills + kernel.sgpr_spills
        numbers = (kernel.vgpr, kernel.agpr, kernel.sgpr, kernel.lds, kernel.scratch, spills)
        cells = (*numbers, waves_per_simd(kernel, arch), kernel.code)
        table.add_row(kernel.name, arch, *(f"{cell:,}" for cell in cells))
    return table


def _ceil_div(a: int, b: int) -> int:
    return -(-a // b)
