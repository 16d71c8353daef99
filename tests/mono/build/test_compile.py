from __future__ import annotations

import ctypes
import re
from pathlib import Path

import pytest

from sgl_amd_mono.build import compile as compiler
from sgl_amd_mono.build.compile import ARCHES, build, find, kernels
from sgl_amd_mono.errors import BuildError

pytestmark = pytest.mark.compile

DEVICE_SOURCE = """
#include "mono/scale.h"
extern "C" __attribute__((global)) void scale(float* x, float* sum) {
  x[0] = x[0] * kScale + x[1];
  __atomic_fetch_add(sum, x[0], __ATOMIC_RELAXED);
}
"""
HOST_SOURCE = """
#include <string>
#include "host/executor.h"
#include "mono/scale.h"
extern "C" float scale(float x, float y) { return executed(x * kScale + y); }
extern "C" const char* file() { static const std::string name(__FILE__); return name.c_str(); }
"""


@pytest.fixture
def tree(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Sources in the package's layout and an empty cache: kernel `scale` for the GPU, `served` for the host."""
    monkeypatch.setenv("SGLANG_AMD_MONO_CACHE", str(tmp_path / "cache"))
    sources = {
        "kernels/scale.hip": DEVICE_SOURCE,
        "kernels/served.hip": HOST_SOURCE,
        "include/mono/scale.h": "constexpr float kScale = 1.0f + 0x1p-12f;",
        "host/executor.h": "float executed(float x);",
        "host/executor.cpp": '#include "host/executor.h"\nfloat executed(float x) { return x; }',
    }
    for name, text in sources.items():
        path = tmp_path / "hip" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return tmp_path / "hip"


def test_kernels_are_the_sources_in_the_folder(tree: Path) -> None:
    assert kernels(tree) == ("scale", "served")


@pytest.mark.parametrize("arch", ["gfx950", "gfx942"])
def test_device_build(tree: Path, arch: str) -> None:
    artifact = build("scale", arch, sources=tree)
    assert artifact.assembly is not None
    assert f'.amdgcn_target "amdgcn-amd-amdhsa--{arch}"' in artifact.assembly.read_text()
    assert artifact.binary.read_bytes().startswith(b"\x7fELF")
    assert sorted(path.name for path in artifact.binary.parent.iterdir()) == ["SHA256SUMS", "scale.co", "scale.s"]


def test_host_build_runs(tree: Path) -> None:
    artifact = build("served", "host", sources=tree)
    assert artifact.assembly is None
    library = ctypes.CDLL(str(artifact.binary))
    library.scale.argtypes, library.scale.restype = (ctypes.c_float, ctypes.c_float), ctypes.c_float
    library.file.restype = ctypes.c_char_p
    assert library.scale(2.0, 1.0) == 3.0 + 2.0**-11
    assert library.file() == b"hip/kernels/served.hip"


def test_products_are_not_contracted(tree: Path) -> None:
    """A product is rounded before it is added, on host and device alike; clang contracts both by default or on a GPU.

    (1 + 2^-12)^2 - (1 + 2^-11) is 2^-24 exactly, and 0 when the product has been rounded to float first.
    """
    library = ctypes.CDLL(str(build("served", "host", sources=tree).binary))
    library.scale.argtypes, library.scale.restype = (ctypes.c_float, ctypes.c_float), ctypes.c_float
    assert library.scale(1.0 + 2.0**-12, -(1.0 + 2.0**-11)) == 0.0

    assembly = build("scale", "gfx950", sources=tree).assembly
    assert assembly is not None
    assert not re.search(r"v_(fma|fmac|mac|mad|pk_fma)_", assembly.read_text())


def test_float_atomics_are_instructions(tree: Path) -> None:
    """Not loops of compare-and-swap, which is what a clang may write when it must assume fine-grained memory."""
    assembly = build("scale", "gfx950", sources=tree).assembly
    assert assembly is not None
    assert "global_atomic_add_f32" in assembly.read_text()
    assert "cmpswap" not in assembly.read_text()


@pytest.mark.parametrize(
    ("path", "old", "new"),
    [
        ("kernels/scale.hip", "+ x[1]", "+ x[2]"),
        ("include/mono/scale.h", "0x1p-12f", "0x1p-13f"),
        ("host/executor.cpp", "return x;", "return-x;"),
    ],
)
def test_rebuilt_when_a_source_changes(tree: Path, path: str, old: str, new: str) -> None:
    """Also when the file keeps its size."""
    first = build("scale", "gfx950", sources=tree)
    again = build("scale", "gfx950", sources=tree)
    assert (first.cached, again.cached) == (False, True)
    assert first.binary == again.binary

    text = (tree / path).read_text()
    assert old in text
    (tree / path).write_text(text.replace(old, new))
    assert not build("scale", "gfx950", sources=tree).cached


def test_rebuilt_when_a_source_is_renamed(tree: Path) -> None:
    build("scale", "gfx950", sources=tree)
    (tree / "kernels" / "served.hip").rename(tree / "kernels" / "serving.hip")
    assert not build("scale", "gfx950", sources=tree).cached


def test_rebuilt_when_flags_or_compiler_change(tree: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    build("scale", "gfx950", sources=tree)
    with monkeypatch.context() as patch:
        flags = compiler.flags
        patch.setattr(compiler, "flags", lambda arch: (*flags(arch), "-DCHANGED"))
        assert not build("scale", "gfx950", sources=tree).cached

    shim = tree / "clang++"
    shim.write_text("#!/bin/sh\necho another version\n")
    shim.chmod(0o755)
    monkeypatch.setenv("SGLANG_AMD_MONO_COMPILER", str(shim))
    with pytest.raises(BuildError, match=r"not built.*another version"):
        find("scale", "gfx950", sources=tree)


def test_find_never_compiles(tree: Path) -> None:
    with pytest.raises(BuildError, match="amd-mono build --kernel scale --arch gfx950"):
        find("scale", "gfx950", sources=tree)
    built = build("scale", "gfx950", sources=tree)
    found = find("scale", "gfx950", sources=tree)
    assert found.binary == built.binary
    assert found.cached


@pytest.mark.parametrize("arch", ["gfx950", "host"])
def test_errors_carry_the_whole_output(tree: Path, arch: str) -> None:
    (tree / "kernels" / "broken.hip").write_text("int f() { return first_name; }\nint g() { return second_name; }\n")
    with pytest.raises(BuildError) as error:
        build("broken", arch, sources=tree)
    message = str(error.value)
    assert "first_name" in message
    assert "second_name" in message
    assert "broken.hip:2:" in message
    assert "-std=c++20" in message


def test_host_build_leaves_no_symbol_open(tree: Path) -> None:
    (tree / "kernels" / "open.hip").write_text('void absent();\nextern "C" void f() { absent(); }\n')
    with pytest.raises(BuildError, match=r"undefined.*absent"):
        build("open", "host", sources=tree)


def test_lds_above_the_limit_does_not_compile(tree: Path) -> None:
    (tree / "kernels" / "large.hip").write_text(
        "static __attribute__((shared)) volatile char lds[163841];\n"
        'extern "C" __attribute__((global)) void large(char* x) { lds[*x] = 1; *x = lds[*x]; }\n'
    )
    with pytest.raises(BuildError, match=r"local memory.*163841.*163840"):
        build("large", "gfx950", sources=tree)


def test_unknown_names_list_the_known_ones(tree: Path) -> None:
    with pytest.raises(BuildError, match=r"No kernel absent in .*: it has scale, served\."):
        build("absent", "gfx950", sources=tree)
    with pytest.raises(BuildError, match=f"Unknown architecture sm90: expected one of {', '.join(ARCHES)}"):
        build("scale", "sm90", sources=tree)


def test_host_build_is_refused_where_it_cannot_run(tree: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("platform.machine", lambda: "aarch64")
    with pytest.raises(BuildError, match=r"x86-64.*aarch64"):
        build("served", "host", sources=tree)
    assert build("scale", "gfx950", sources=tree)
