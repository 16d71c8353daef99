"""Finds a clang that compiles the kernels for the GPU and for the host."""

from __future__ import annotations

import importlib.util
import shutil
import subprocess
from importlib.metadata import version as distribution_version
from pathlib import Path

import msgspec

from sgl_amd_mono import env
from sgl_amd_mono.errors import BuildError

ZIGLANG = "ziglang"

# libstdc++'s headers need the C library's, so one include proves that both are installed.
_SYSTEM_HEADER = "cstdio"

# a fixed level, never `native`: with AVX512_BF16 the conversion to bf16 flushes denormals
_HOST_LEVEL = "x86-64-v3"
_HOST_TARGET = "x86_64-linux-gnu"

# the oldest C library that a build by `zig c++` runs on: the one of manylinux_2_28 wheels
_ZIG_GLIBC = "2.28"


class Toolchain(msgspec.Struct, frozen=True, kw_only=True):
    """A compiler and how to call it."""

    name: str
    """As a user knows it: `amdclang++`, `clang++-22`, `ziglang`."""
    version: str
    device: tuple[str, ...]
    """Command of the C++ driver that builds for the GPU."""
    host: tuple[str, ...]
    """Command of the C++ driver that builds for the host, x86-64 Linux."""
    linker: tuple[str, ...] = ()
    """Command of an ld.lld that the drivers do not find by themselves; empty when they do."""

    def __str__(self) -> str:
        return f"{self.name} ({self.version})"


def find_toolchain() -> Toolchain:
    """The compiler that `SGLANG_AMD_MONO_COMPILER` names, else the first of ROCm's, clang 22 and ziglang's.

    Raises
    ------
    BuildError
        When there is none; says where it was looked for and what to install.
    """
    if chosen := env.COMPILER.get():
        return _chosen(chosen)
    rocm = Path(env.ROCM_PATH.get() or "/opt/rocm") / "bin" / "amdclang++"
    for candidate in (str(rocm), "amdclang++", "clang++-22"):
        if path := shutil.which(candidate):
            return _clang(path)
    if zig := _zig():
        return _ziglang(zig)
    raise BuildError(
        f"No compiler for the kernels: looked for {rocm}, amdclang++ and clang++-22 in PATH, and the Python package "
        f"{ZIGLANG}. Install one of them: ROCm 7, the Debian packages clang-22 and lld-22, or `pip install {ZIGLANG}`."
    )


def _chosen(name: str) -> Toolchain:
    if name == ZIGLANG:
        if zig := _zig():
            return _ziglang(zig)
        raise BuildError(
            f"{env.COMPILER.name}={name}: this Python has no package {ZIGLANG}. Run `pip install {ZIGLANG}`."
        )
    if path := shutil.which(name):
        return _clang(path)
    raise BuildError(
        f"{env.COMPILER.name}={name}: no such program. Give the name or the path of a clang++, or `{ZIGLANG}`."
    )


def _clang(path: str) -> Toolchain:
    native = (path, f"--target={_HOST_TARGET}", f"-march={_HOST_LEVEL}")
    return Toolchain(name=Path(path).name, version=_version(path), device=(path,), host=native)


def _ziglang(zig: Path) -> Toolchain:
    # `zig clang` is clang itself, but it lies beside neither its own headers nor a linker.
    clang = (str(zig), "clang", "--driver-mode=g++", "-resource-dir", str(zig.parent / "lib"))
    native = (*clang, f"--target={_HOST_TARGET}", f"-march={_HOST_LEVEL}")
    # `zig c++` brings its own C++ library, which its first call builds: about a minute, so second choice.
    bundled = (str(zig), "c++", "-target", f"{_HOST_TARGET}.{_ZIG_GLIBC}", f"-march={_HOST_LEVEL.replace('-', '_')}")
    return Toolchain(
        name=ZIGLANG,
        version=f"{distribution_version(ZIGLANG)}, {_version(str(zig), 'clang')}",
        device=clang,
        host=native if _includes(native, _SYSTEM_HEADER) else bundled,
        linker=(str(zig), "ld.lld"),
    )


def _zig() -> Path | None:
    spec = importlib.util.find_spec(ZIGLANG)
    return Path(spec.origin).parent / "zig" if spec and spec.origin else None


def _version(*command: str) -> str:
    try:
        done = subprocess.run([*command, "--version"], capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError) as error:
        raise BuildError(f"The compiler {' '.join(command)} does not run: {error}") from error
    return done.stdout.partition("\n")[0]


def _includes(command: tuple[str, ...], header: str) -> bool:
    probe = [*command, "-x", "c++", "-fsyntax-only", "-include", header, "/dev/null"]
    return subprocess.run(probe, capture_output=True, check=False).returncode == 0
