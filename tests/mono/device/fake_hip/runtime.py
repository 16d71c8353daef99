"""The fake HIP runtime (fake_hip.h): how it is built, where hip-python finds it, and its controls."""

from __future__ import annotations

import ctypes
import os
import subprocess
from collections.abc import Sequence
from pathlib import Path

from sgl_amd_mono.build import compile
from sgl_amd_mono.build.compile import HOST, SOURCES
from sgl_amd_mono.build.toolchain import find_toolchain

# as ROCm installs it: the name that programs open is a link to the one that the library calls itself
LINK = "libamdhip64.so"
SONAME = "libamdhip64.so.7"

_HERE = Path(__file__).parent


class _Script(ctypes.Structure):
    _fields_ = (
        ("module", ctypes.c_char_p),
        ("module_bytes", ctypes.c_uint64),
        ("library", ctypes.c_char_p),
        ("grid", ctypes.c_uint32 * 3),
        ("block", ctypes.c_uint32 * 3),
        ("lds_bytes", ctypes.c_uint32),
        ("stream", ctypes.c_uint64),
    )


def install(root: Path) -> Path:
    """Build the fake into `root`/lib, as in a ROCm installation; the path of the library."""
    library = root / "lib" / SONAME
    library.parent.mkdir(parents=True)
    toolchain = find_toolchain()
    includes = (f"-I{SOURCES}", f"-I{SOURCES / 'include'}", f"-I{_HERE}")
    with compile._linker(toolchain) as linker:
        command = [*toolchain.host, *linker, *compile.flags(HOST), "-Wall", "-Wextra", "-Werror", *includes]
        subprocess.run([*command, f"-Wl,-soname,{SONAME}", "-o", library, *sorted(_HERE.glob("*.cpp"))], check=True)
    (library.parent / LINK).symlink_to(SONAME)
    return library


class FakeHip:
    """Controls of the fake that this process has loaded from `library`."""

    def __init__(self, library: Path) -> None:
        self._library = ctypes.CDLL(os.fspath(library))
        self._library.fake_hip_begin.argtypes = (ctypes.POINTER(_Script),)
        self._library.fake_hip_fail.argtypes = (ctypes.c_char_p, ctypes.c_int)
        self._library.fake_hip_complaints.restype = ctypes.c_char_p
        self._library.fake_hip_launches.restype = ctypes.c_uint64

    def begin(
        self,
        *,
        module: bytes,
        library: Path,
        grid: Sequence[int],
        block: Sequence[int],
        lds_bytes: int,
        stream: int,
    ) -> None:
        """Expect these from now on; forget what was before."""
        size = ctypes.c_uint32 * 3
        self._script = _Script(module, len(module), os.fsencode(library), size(*grid), size(*block), lds_bytes, stream)
        self._library.fake_hip_begin(self._script)

    def fail(self, function: str, error: int) -> None:
        """Have every later call of `function` return `error`."""
        self._library.fake_hip_fail(function.encode(), error)

    @property
    def complaints(self) -> list[str]:
        """What differed from the script, and what a launch that failed while it ran said."""
        return str(self._library.fake_hip_complaints().decode()).splitlines()

    @property
    def launches(self) -> int:
        return int(self._library.fake_hip_launches())
