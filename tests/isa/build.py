"""Compiles HIP kernels for gfx950 with the clang of the PyPI package ziglang, and C for this machine."""

from __future__ import annotations

import ctypes
import functools
import subprocess
import sys
import tempfile
from pathlib import Path

_TOOL = (sys.executable, "-m", "ziglang")
# clang's driver links only through a program called lld, which ziglang does not install: hence three steps
_DEVICE = (
    "-x",
    "hip",
    "--offload-arch=gfx950",
    "--offload-device-only",
    "-nogpulib",
    "-nogpuinc",
    "-std=c++20",
    "-O3",
    "-S",
)
_DEVICE_OBJECT = ("--target=amdgcn-amd-amdhsa", "-mcpu=gfx950", "-c")
# a fixed level of the instruction set, with fused multiply-add
_HOST = (
    "--target=x86_64-linux-gnu",
    "-march=x86-64-v3",
    "-x",
    "c++",
    "-std=c++20",
    "-O2",
    "-fPIC",
    "-ffreestanding",
    "-c",
)
_NUMERICS = ("-ffp-contract=off",)


class CompileError(Exception):
    """The compiler's whole output."""


@functools.cache
def compile_hip(source: str, *flags: str) -> bytes:
    """A code object from HIP source text; the bytes of an ELF."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "kernel"
        path.with_suffix(".hip").write_text(source)
        _run("clang", *_DEVICE, *_NUMERICS, *flags, "-o", f"{path}.s", f"{path}.hip")
        _run("clang", *_DEVICE_OBJECT, "-o", f"{path}.o", f"{path}.s")
        _run("ld.lld", "-shared", "--no-undefined", "-o", f"{path}.co", f"{path}.o")
        return path.with_suffix(".co").read_bytes()


@functools.cache
def compile_host(source: str) -> ctypes.CDLL:
    """A shared library for this x86-64 machine from C++ source text that calls no library."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "host"
        path.with_suffix(".cpp").write_text(source)
        _run("clang", *_HOST, *_NUMERICS, "-o", f"{path}.o", f"{path}.cpp")
        _run("ld.lld", "-shared", "-o", f"{path}.so", f"{path}.o")
        return ctypes.CDLL(f"{path}.so")


def _run(*command: str) -> None:
    done = subprocess.run([*_TOOL, *command], capture_output=True, text=True, check=False)
    if done.returncode:
        raise CompileError(f"{' '.join(command)}\n{done.stderr}")
