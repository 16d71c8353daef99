"""Reads an AMDGPU code object (ELF): loadable image, kernel descriptors and kernel metadata.

Sources: LLVM AMDGPUUsage, sections "Code Object Metadata" and "Kernel Descriptor".
"""

from __future__ import annotations

import io
import struct
from dataclasses import dataclass
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt
from elftools.elf.elffile import ELFFile
from elftools.elf.sections import SymbolTableSection
from elftools.elf.segments import NoteSegment

from .errors import CodeObjectError

_EF_AMDGPU_MACH_MASK = 0xFF
_EF_AMDGPU_MACH_GFX950 = 0x4F
_NT_AMDGPU_METADATA = 32
# a kernel that preloads arguments starts with this many bytes that load them on older firmware
_PRELOAD_PROLOGUE_BYTES = 256
# the descriptor: LDS, scratch and kernarg sizes, pad, entry offset, pad, rsrc3, rsrc1, rsrc2, properties, preload, pad
_DESCRIPTOR = struct.Struct("<III4xq20xIIIHH4x")


@dataclass(frozen=True)
class Descriptor:
    """The 64-byte kernel descriptor, decoded as far as a launch needs it."""

    entry: int
    lds_bytes: int
    kernarg_bytes: int
    user_sgprs: int
    workgroup_id_axes: tuple[bool, bool, bool]
    float_mode: int
    properties: int
    preload_words: int
    preload_offset: int


@dataclass(frozen=True)
class Kernel:
    """One kernel of a code object.

    Attributes
    ----------
    size : int
        Bytes of its machine code.
    metadata : dict
        Its entry in ``amdhsa.kernels`` (``.kernarg_segment_size``, ``.args``, ``.vgpr_count`` ...).
    """

    name: str
    start: int
    size: int
    descriptor: Descriptor
    metadata: dict[str, Any]

    def kernarg(self, *values: int | float | bytes, grid: tuple[int, int, int] = (1, 1, 1), block: int = 0) -> bytes:
        """The kernel argument segment: explicit arguments in order, and the hidden ones that describe the grid.

        Raises
        ------
        CodeObjectError
            The number of arguments, or the size of one, is not what the code object declares.
        """
        arguments = self.metadata.get(".args", [])
        explicit = [a for a in arguments if not a[".value_kind"].startswith("hidden_")]
        if len(values) != len(explicit):
            raise CodeObjectError(f"{self.name} takes {len(explicit)} arguments, not {len(values)}")
        hidden = {f"hidden_block_count_{axis}": count for axis, count in zip("xyz", grid, strict=True)}
        hidden |= {f"hidden_group_size_{axis}": size for axis, size in zip("xyz", (block, 1, 1), strict=True)}
        segment = bytearray(self.descriptor.kernarg_bytes)
        for argument, value in [
            *zip(explicit, values, strict=True),
            *((a, hidden.get(a[".value_kind"])) for a in arguments),
        ]:
            if value is not None:
                offset, size = argument[".offset"], argument[".size"]
                packed = _pack(value, size)
                if len(packed) != size:
                    raise CodeObjectError(f"{self.name}: an argument of {len(packed)} bytes where {size} are expected")
                segment[offset : offset + size] = packed
        return bytes(segment)


def _pack(value: int | float | bytes, size: int) -> bytes:
    if isinstance(value, bytes):
        return value
    if isinstance(value, float):
        return struct.pack("<f" if size == struct.calcsize("f") else "<d", value)
    return (value & (1 << 8 * size) - 1).to_bytes(size, "little")


@dataclass(frozen=True)
class CodeObject:
    """An image laid out by virtual address, and the kernels in it."""

    image: npt.NDArray[np.uint8]
    kernels: dict[str, Kernel]


def read_code_object(data: bytes) -> CodeObject:
    """Parse a raw (unbundled) gfx950 code object.

    Raises
    ------
    CodeObjectError
        Not an AMDGPU ELF for gfx950, or one with relocations, which a loader would have to apply.
    """
    if data[:4] != b"\x7fELF":
        raise CodeObjectError("not an ELF file; expected a raw code object (compile with --no-gpu-bundle-output)")
    elf = ELFFile(io.BytesIO(data))
    machine, flags = elf["e_machine"], elf["e_flags"]
    if machine != "EM_AMDGPU" or flags & _EF_AMDGPU_MACH_MASK != _EF_AMDGPU_MACH_GFX950:
        raise CodeObjectError(f"ELF machine {machine}, flags {flags:#x}; expected AMDGPU code for gfx950")
    if any(section["sh_type"] in ("SHT_RELA", "SHT_REL") and section["sh_size"] for section in elf.iter_sections()):
        raise CodeObjectError(
            "the code object has relocations; expected position-independent code without pointer tables"
        )
    image = _image(elf)
    symbols = {
        symbol.name: symbol
        for section in elf.iter_sections()
        if isinstance(section, SymbolTableSection)
        for symbol in section.iter_symbols()
    }
    kernels = {}
    for metadata in _metadata(elf)["amdhsa.kernels"]:
        name = metadata[".name"]
        descriptor = _descriptor(image, symbols[metadata[".symbol"]]["st_value"])
        code = symbols[name]
        kernels[name] = Kernel(name, code["st_value"], code["st_size"], descriptor, metadata)
    return CodeObject(image, kernels)


def _image(elf: ELFFile) -> npt.NDArray[np.uint8]:
    loads = [s for s in elf.iter_segments() if s["p_type"] == "PT_LOAD"]
    image = np.zeros(max(s["p_vaddr"] + s["p_memsz"] for s in loads), np.uint8)
    for segment in loads:
        start = segment["p_vaddr"]
        image[start : start + segment["p_filesz"]] = np.frombuffer(segment.data(), np.uint8)
    return image


def _metadata(elf: ELFFile) -> dict[str, Any]:
    for segment in elf.iter_segments():
        if not isinstance(segment, NoteSegment):
            continue
        for note in segment.iter_notes():
            if note["n_name"] == "AMDGPU" and int(note["n_type"]) == _NT_AMDGPU_METADATA:
                return msgspec.msgpack.decode(note["n_descdata"], type=dict[str, Any])
    raise CodeObjectError("the ELF has no AMDGPU metadata note; expected a linked code object, not an object file")


def _descriptor(image: npt.NDArray[np.uint8], address: int) -> Descriptor:
    raw = image[address : address + _DESCRIPTOR.size].tobytes()
    lds, _scratch, kernarg, entry, _rsrc3, rsrc1, rsrc2, properties, preload = _DESCRIPTOR.unpack(raw)
    preload_words = preload & 0x7F
    return Descriptor(
        entry=address + entry + (_PRELOAD_PROLOGUE_BYTES if preload_words else 0),
        lds_bytes=lds,
        kernarg_bytes=kernarg,
        user_sgprs=rsrc2 >> 1 & 0x1F,
        workgroup_id_axes=(bool(rsrc2 >> 7 & 1), bool(rsrc2 >> 8 & 1), bool(rsrc2 >> 9 & 1)),
        float_mode=rsrc1 >> 12 & 0xFF,
        properties=properties,
        preload_words=preload_words,
        preload_offset=preload >> 7,
    )
