from __future__ import annotations

from pathlib import Path

import pytest

from sgl_amd_mono.build import toolchain
from sgl_amd_mono.build.toolchain import find_toolchain
from sgl_amd_mono.errors import BuildError


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A machine without compilers: `rocm/bin` is ROCm's, `bin` is all of PATH, and ziglang is not installed."""
    monkeypatch.delenv("SGLANG_AMD_MONO_COMPILER", raising=False)
    monkeypatch.setenv("ROCM_PATH", str(tmp_path / "rocm"))
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    monkeypatch.setattr(toolchain, "_zig", lambda: None)
    return tmp_path


def install(compiler: Path, version: str) -> Path:
    compiler.parent.mkdir(parents=True, exist_ok=True)
    compiler.write_text(f"#!/bin/sh\necho '{version}'\necho 'Target: x86_64'\n")
    compiler.chmod(0o755)
    return compiler


def test_first_found_wins(machine: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Installed one after the other in ascending preference, each takes over from the one before."""
    zig = install(machine / "ziglang" / "zig", "clang version 22.1.8")
    monkeypatch.setattr(toolchain, "_zig", lambda: zig)
    assert find_toolchain().name == "ziglang"

    for compiler in ("bin/clang++-22", "bin/amdclang++", "rocm/bin/amdclang++"):
        path = install(machine / compiler, f"the clang in {compiler}")
        found = find_toolchain()
        assert (found.name, found.version) == (path.name, f"the clang in {compiler}")
        assert found.device[0] == found.host[0] == str(path)
        assert found.linker == ()


def test_no_compiler_says_what_to_install(machine: Path) -> None:
    with pytest.raises(BuildError) as error:
        find_toolchain()
    for part in (f"{machine}/rocm/bin/amdclang++", "clang++-22", "clang-22 and lld-22", "pip install ziglang"):
        assert part in str(error.value)


@pytest.mark.parametrize("by_path", [True, False])
def test_the_chosen_compiler_is_used(machine: Path, monkeypatch: pytest.MonkeyPatch, by_path: bool) -> None:
    install(machine / "rocm" / "bin" / "amdclang++", "not this one")
    mine = install(machine / "bin" / "my-clang++", "mine")
    monkeypatch.setenv("SGLANG_AMD_MONO_COMPILER", str(mine) if by_path else mine.name)
    assert str(find_toolchain()) == "my-clang++ (mine)"


@pytest.mark.parametrize(("name", "advice"), [("no-such-clang", "no such program"), ("ziglang", "pip install ziglang")])
def test_a_chosen_compiler_that_is_missing(
    machine: Path, monkeypatch: pytest.MonkeyPatch, name: str, advice: str
) -> None:
    """It is an error, though another compiler is there."""
    install(machine / "bin" / "clang++-22", "not this one")
    monkeypatch.setenv("SGLANG_AMD_MONO_COMPILER", name)
    with pytest.raises(BuildError, match=f"SGLANG_AMD_MONO_COMPILER={name}.*{advice}"):
        find_toolchain()


def test_a_compiler_that_does_not_run(machine: Path) -> None:
    install(machine / "bin" / "clang++-22", "").write_text("#!/bin/sh\nexit 1\n")
    with pytest.raises(BuildError, match=r"clang.*does not run"):
        find_toolchain()


def test_ziglang_brings_its_own_cpp_library_where_the_system_has_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SGLANG_AMD_MONO_COMPILER", "ziglang")
    assert toolchain._includes(find_toolchain().device, "no-such-header") is False
    monkeypatch.setattr(toolchain, "_SYSTEM_HEADER", "no-such-header")
    assert find_toolchain().host[1] == "c++"
