from __future__ import annotations

import re
from pathlib import Path

import pytest

from sgl_amd_mono.build.codeobject import read_kernels, read_symbol
from sgl_amd_mono.build.compile import Artifact, build
from sgl_amd_mono.errors import BuildError

pytestmark = pytest.mark.compile

SOURCES = Path(__file__).parent


@pytest.fixture(params=["gfx950", "gfx942", "host"])
def table(request: pytest.FixtureRequest) -> Artifact:
    return build("table", request.param, sources=SOURCES)


def test_symbol_bytes(table: Artifact) -> None:
    assert read_symbol(table.binary, "layout_table") == b"Args.x 0 8\nArgs.count 8 4\n\0"


def test_absent_symbol(table: Artifact) -> None:
    with pytest.raises(BuildError, match="no symbol absent_table"):
        read_symbol(table.binary, "absent_table")


def test_symbol_without_bytes_in_the_file(table: Artifact) -> None:
    with pytest.raises(BuildError, match=r"zeroed_table.*no bytes"):
        read_symbol(table.binary, "zeroed_table")


def test_not_an_elf_file(tmp_path: Path) -> None:
    (tmp_path / "text").write_text("text")
    for path in (tmp_path / "text", tmp_path / "absent"):
        with pytest.raises(BuildError, match=f"Cannot read {path}"):
            read_symbol(path, "layout_table")


def test_host_library_has_no_gpu_kernels() -> None:
    with pytest.raises(BuildError, match="no AMDGPU metadata"):
        read_kernels(build("table", "host", sources=SOURCES).binary)


def comments(assembly: Path, key: str) -> list[int]:
    """The number that clang writes under `key` after each kernel of an assembly text."""
    return [int(number) for number in re.findall(rf"^; {key}[:=]? *=? *(\d+)", assembly.read_text(), re.MULTILINE)]


@pytest.mark.parametrize("arch", ["gfx950", "gfx942"])
def test_resources_are_those_of_the_compiler(arch: str) -> None:
    """The code object's metadata against clang's comments in the assembly text, which another part of clang writes."""
    artifact = build("sizes", arch, sources=SOURCES)
    kernels = read_kernels(artifact.binary)
    assert artifact.assembly is not None
    assert len(kernels) == 6
    assert [k.vgpr for k in kernels] == comments(artifact.assembly, "TotalNumVgprs")
    assert [k.agpr for k in kernels] == comments(artifact.assembly, "NumAgprs")
    assert [k.sgpr for k in kernels] == comments(artifact.assembly, "TotalNumSgprs")
    assert [k.scratch for k in kernels] == comments(artifact.assembly, "ScratchSize")
    assert [k.lds for k in kernels] == comments(artifact.assembly, "LDSByteSize")
    assert [k.code for k in kernels] == comments(artifact.assembly, "codeLenInByte")


def test_resources_follow_the_source() -> None:
    """`kernels/sizes.hip` says what each of its kernels asks for."""
    kernels = {kernel.name: kernel for kernel in read_kernels(build("sizes", "gfx950", sources=SOURCES).binary)}
    assert all(kernel.wavefront == 64 for kernel in kernels.values())
    assert kernels["small"].kernarg == 12
    assert kernels["many_registers"].vgpr >= 160
    assert kernels["indexed_array"].scratch >= 256
    assert kernels["accumulators"].agpr >= 16
    assert kernels["large_lds"].lds == 48 * 1024
    assert [kernels[name].threads for name in ("small", "full_workgroup")] == [256, 1024]
    assert kernels["full_workgroup"].vgpr_spills > 0
    assert kernels["small"].vgpr_spills == kernels["small"].sgpr_spills == 0
