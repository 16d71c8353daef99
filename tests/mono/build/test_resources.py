from __future__ import annotations

import re
from pathlib import Path

import msgspec
import pytest
from rich.console import Console

from sgl_amd_mono.build.codeobject import read_kernels
from sgl_amd_mono.build.compile import build
from sgl_amd_mono.build.resources import resource_table, waves_per_simd

pytestmark = pytest.mark.compile

SOURCES = Path(__file__).parent


@pytest.mark.parametrize("arch", ["gfx950", "gfx942"])
def test_waves_are_those_of_the_compiler(arch: str) -> None:
    artifact = build("sizes", arch, sources=SOURCES)
    assert artifact.assembly is not None
    occupancy = [int(n) for n in re.findall(r"^; Occupancy: (\d+)", artifact.assembly.read_text(), re.MULTILINE)]
    waves = [waves_per_simd(kernel, arch) for kernel in read_kernels(artifact.binary)]
    assert waves == occupancy
    assert len(set(waves)) > 2


def test_lds_and_registers_limit_the_waves() -> None:
    """Four SIMDs of 512 registers and 160 KiB a compute unit: LDS for one workgroup of four waves is a wave a SIMD."""
    small = read_kernels(build("sizes", "gfx950", sources=SOURCES).binary)[0]
    for changes, waves in [
        ({"vgpr": 64}, 8),
        ({"vgpr": 65}, 7),
        ({"vgpr": 512}, 1),
        ({"lds": 160 * 1024}, 1),
        ({"lds": 80 * 1024}, 2),
        ({"lds": 80 * 1024, "threads": 1024}, 8),
    ]:
        assert waves_per_simd(msgspec.structs.replace(small, **changes), "gfx950") == waves


def test_table_shows_every_kernel() -> None:
    kernels = read_kernels(build("sizes", "gfx950", sources=SOURCES).binary)
    console = Console(width=160)
    with console.capture() as capture:
        console.print(resource_table(("gfx950", kernel) for kernel in kernels))
    rows = capture.get().splitlines()
    for kernel in kernels:
        (row,) = [row for row in rows if row.startswith(f"{kernel.name} ")]
        assert f"{kernel.lds:,}" in row
        assert f"{kernel.code:,}" in row
