"""Compiles one kernel source for one architecture, or finds the result of an earlier compilation."""

from __future__ import annotations

import hashlib
import platform
import shlex
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec

from sgl_amd_mono import hip
from sgl_amd_mono.build import cache
from sgl_amd_mono.build.toolchain import Toolchain, find_toolchain
from sgl_amd_mono.errors import BuildError

HOST = "host"
ARCHES = ("gfx950", "gfx942", HOST)
DEFAULT_ARCHES = ("gfx950", HOST)
"""What the package serves on and is tested on; a kernel may need more LDS than gfx942 has."""

SOURCES = Path(hip.__file__).parent
"""The kernel sources of the package: folders `kernels`, `phases`, `include` and `host`."""

_SOURCE_SUFFIXES = (".hip", ".h", ".cpp")


class Artifact(msgspec.Struct, frozen=True, kw_only=True):
    """One kernel source, compiled for one architecture."""

    kernel: str
    arch: str
    binary: Path
    """Code object (.co) of a GPU, shared object (.so) of the host."""
    assembly: Path | None
    """The code object's assembly text (.s); None for the host."""
    compiler: str
    cached: bool
    """Whether an earlier call had compiled it."""


def kernels(sources: Path = SOURCES) -> tuple[str, ...]:
    """Names of the kernel sources, one a model: `kernels/<name>.hip`."""
    return tuple(sorted(path.stem for path in (sources / "kernels").glob("*.hip")))


def build(kernel: str, arch: str, *, sources: Path = SOURCES) -> Artifact:
    """Compile `kernel` for `arch`, or take it from the cache when no source, flag or compiler has changed.

    Raises
    ------
    BuildError
        Unknown kernel or architecture, no compiler, or a compilation that fails: carries the compiler's whole output.
    """
    toolchain = _checked(kernel, arch, sources)
    entry, cached = cache.fetch(
        _key(kernel, arch, sources, toolchain), lambda out: _compile(kernel, arch, sources, toolchain, out)
    )
    return _artifact(kernel, arch, toolchain, entry, cached=cached)


def find(kernel: str, arch: str, *, sources: Path = SOURCES) -> Artifact:
    """What `build` made earlier; never compiles, so it is what a server calls.

    Raises
    ------
    BuildError
        As `build`, and when the kernel is not in the cache as its sources stand now.
    """
    toolchain = _checked(kernel, arch, sources)
    entry = cache.lookup(_key(kernel, arch, sources, toolchain))
    if entry is None:
        raise BuildError(
            f"Kernel {kernel} is not built for {arch} as its sources stand now (compiler: {toolchain}). "
            f"Run `amd-mono build --kernel {kernel} --arch {arch}`."
        )
    return _artifact(kernel, arch, toolchain, entry, cached=True)


def flags(arch: str) -> tuple[str, ...]:
    """Compiler flags that decide what the code does; include folders and outputs are not among them."""
    # contraction is off on every side, so that host and device round alike.
    common = ("-std=c++20", "-O3", "-ffp-contract=off")
    if arch == HOST:
        return ("-x", "c++", *common, "-fPIC", "-shared", "-Wl,--no-undefined")
    device = ("-x", "hip", f"--offload-arch={arch}", "--offload-device-only", "--no-gpu-bundle-output")
    return (*device, *common, "-nogpulib", "-nogpuinc", "-munsafe-fp-atomics")


def _checked(kernel: str, arch: str, sources: Path) -> Toolchain:
    if arch not in ARCHES:
        raise BuildError(f"Unknown architecture {arch}: expected one of {', '.join(ARCHES)}.")
    if kernel not in (known := kernels(sources)):
        raise BuildError(f"No kernel {kernel} in {sources / 'kernels'}: it has {', '.join(known) or 'none'}.")
    if arch == HOST and platform.machine() != "x86_64":
        raise BuildError(
            f"The host build needs an x86-64 machine, this one is {platform.machine()}: the executor's context switch "
            f"is written for x86-64 alone. The GPU architectures build here."
        )
    return find_toolchain()


def _key(kernel: str, arch: str, sources: Path, toolchain: Toolchain) -> str:
    digest = hashlib.sha256(msgspec.json.encode((kernel, arch, flags(arch), toolchain)))
    for path in sorted(path for path in sources.rglob("*") if path.suffix in _SOURCE_SUFFIXES):
        digest.update(f"{path.relative_to(sources)}\0{path.stat().st_size}\0".encode())
        digest.update(path.read_bytes())
    return digest.hexdigest()


def _compile(kernel: str, arch: str, sources: Path, toolchain: Toolchain, out: Path) -> None:
    source = sources / "kernels" / f"{kernel}.hip"
    # a message built from __FILE__ then reads the same wherever the sources lie.
    options = (*flags(arch), f"-I{sources / 'include'}", f"-I{sources}", f"-ffile-prefix-map={sources}=hip")
    with _linker(toolchain) as linker:
        if arch == HOST:
            executor = sorted((sources / "host").glob("*.cpp"))
            _run(*toolchain.host, *linker, *options, "-o", out / f"{kernel}.so", source, *executor)
        else:
            assembly = out / f"{kernel}.s"
            target = ("--target=amdgcn-amd-amdhsa", f"-mcpu={arch}")
            _run(*toolchain.device, *options, "-S", "-o", assembly, source)
            _run(*toolchain.device, *target, *linker, "-o", out / f"{kernel}.co", assembly)


@contextmanager
def _linker(toolchain: Toolchain) -> Iterator[tuple[str, ...]]:
    """Driver options that make it link with the tool chain's own linker, which they take as one program."""
    if not toolchain.linker:
        yield ()
        return
    with tempfile.TemporaryDirectory() as folder:
        script = Path(folder) / "ld.lld"
        script.write_text(f'#!/bin/sh\nexec {shlex.join(toolchain.linker)} "$@"\n')
        script.chmod(0o755)
        yield (f"--ld-path={script}",)


def _run(*command: str | Path) -> None:
    argv = [str(part) for part in command]
    done = subprocess.run(argv, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    if done.returncode != 0:
        raise BuildError(f"The compiler failed with status {done.returncode}: {shlex.join(argv)}\n{done.stdout}")


def _artifact(kernel: str, arch: str, toolchain: Toolchain, entry: Path, *, cached: bool) -> Artifact:
    host = arch == HOST
    return Artifact(
        kernel=kernel,
        arch=arch,
        binary=entry / f"{kernel}.so" if host else entry / f"{kernel}.co",
        assembly=None if host else entry / f"{kernel}.s",
        compiler=str(toolchain),
        cached=cached,
    )
