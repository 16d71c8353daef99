"""Reads what a compiler wrote into an ELF file: the resources of GPU kernels, and the bytes of a symbol."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec
from elftools.common.exceptions import ELFError
from elftools.elf.elffile import ELFFile
from elftools.elf.sections import Symbol, SymbolTableSection
from elftools.elf.segments import NoteSegment

from sgl_amd_mono.errors import BuildError

# name of the note that holds a code object's metadata (LLVM AMDGPUUsage, "Code Object V3 and Above Note Records")
_METADATA_NOTE = "AMDGPU"


class Kernel(msgspec.Struct, frozen=True, kw_only=True):
    """Resources of one kernel as its code object declares them (LLVM AMDGPUUsage, "Code Object Metadata")."""

    name: str
    threads: int
    """Largest workgroup that the kernel was compiled for."""
    wavefront: int
    vgpr: int
    """Vector registers a lane holds, AGPRs included."""
    agpr: int
    sgpr: int
    vgpr_spills: int
    sgpr_spills: int
    lds: int
    """Static LDS of a workgroup, bytes."""
    scratch: int
    """Private memory of a lane, bytes."""
    dynamic_stack: bool
    kernarg: int
    """Argument block, bytes."""
    code: int
    """Machine code, bytes."""


def read_kernels(path: Path) -> tuple[Kernel, ...]:
    """The kernels of a code object, in the order of its metadata.

    Raises
    ------
    BuildError
        When the file is no AMDGPU code object.
    """
    with _elf(path) as elf:
        return tuple(_kernel(path, elf, entry) for entry in _metadata(path, elf)["amdhsa.kernels"])


def read_symbol(path: Path, name: str) -> bytes:
    """The bytes that a code object or shared object holds under a data symbol, before any relocation.

    Raises
    ------
    BuildError
        When the file is no ELF file, or `name` is not in it with bytes of its own.
    """
    with _elf(path) as elf:
        symbol = _symbol(path, elf, name)
        start, size = symbol["st_value"], symbol["st_size"]
        for segment in elf.iter_segments("PT_LOAD"):
            offset = start - segment["p_vaddr"]
            if size and offset in range(segment["p_filesz"] - size + 1):
                return bytes(segment.data()[offset : offset + size])
    raise BuildError(f"Symbol {name} of {path} has no bytes in the file; expected initialised data.")


@contextmanager
def _elf(path: Path) -> Iterator[ELFFile]:
    try:
        with path.open("rb") as file:
            yield ELFFile(file)
    except (OSError, ELFError) as error:
        raise BuildError(f"Cannot read {path} as an ELF file: {error}. Run `amd-mono build` again.") from error


def _metadata(path: Path, elf: ELFFile) -> dict[str, Any]:
    for segment in elf.iter_segments():
        for note in segment.iter_notes() if isinstance(segment, NoteSegment) else ():
            if note["n_name"] == _METADATA_NOTE:
                return msgspec.msgpack.decode(note["n_descdata"], type=dict[str, Any])
    raise BuildError(f"{path} has no AMDGPU metadata; expected a code object.")


def _symbol(path: Path, elf: ELFFile, name: str) -> Symbol:
    for section in elf.iter_sections():
        if isinstance(section, SymbolTableSection):
            for symbol in section.get_symbol_by_name(name) or ():
                if symbol["st_shndx"] != "SHN_UNDEF":
                    return symbol
    raise BuildError(f"{path} has no symbol {name}.")


def _kernel(path: Path, elf: ELFFile, entry: dict[str, Any]) -> Kernel:
    return Kernel(
        name=entry[".name"],
        threads=entry[".max_flat_workgroup_size"],
        wavefront=entry[".wavefront_size"],
        vgpr=entry[".vgpr_count"],
        agpr=entry[".agpr_count"],
        sgpr=entry[".sgpr_count"],
        vgpr_spills=entry[".vgpr_spill_count"],
        sgpr_spills=entry[".sgpr_spill_count"],
        lds=entry[".group_segment_fixed_size"],
        scratch=entry[".private_segment_fixed_size"],
        dynamic_stack=entry[".uses_dynamic_stack"],
        kernarg=entry[".kernarg_segment_size"],
        code=_symbol(path, elf, entry[".name"])["st_size"],
    )
