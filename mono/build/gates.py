"""What every kernel must meet on a GPU: limits on its resources, and instructions that it must not contain."""

from __future__ import annotations

import re
from collections.abc import Iterator

import msgspec

from sgl_amd_mono.build.codeobject import Kernel, read_kernels
from sgl_amd_mono.build.compile import Artifact

LDS_BYTES = {"gfx950": 160 * 1024, "gfx942": 64 * 1024}
"""LDS of one compute unit."""


class Violation(msgspec.Struct, frozen=True):
    """One gate that one kernel does not pass."""

    gate: str
    kernel: str
    found: str

    def __str__(self) -> str:
        return f"{self.kernel}: {self.gate}: {self.found}"


class Instruction(msgspec.Struct, frozen=True):
    """One instruction of an assembly text."""

    function: str
    line: int
    mnemonic: str
    operands: tuple[str, ...]
    """Registers and modifiers, in their order."""

    def __str__(self) -> str:
        return f"line {self.line}: {self.mnemonic} {' '.join(self.operands)}"


def violations(artifact: Artifact) -> tuple[Violation, ...]:
    """Every gate that a kernel of the artifact does not pass; a host artifact has none to pass."""
    if artifact.assembly is None:
        return ()
    kernels = read_kernels(artifact.binary)
    listing = instructions(artifact.assembly.read_text())
    return (
        *(violation for kernel in kernels for violation in resource_violations(kernel, artifact.arch)),
        *(violation for instruction in listing for violation in instruction_violations(instruction)),
    )


def resource_violations(kernel: Kernel, arch: str) -> Iterator[Violation]:
    """Gates on what the code object declares."""
    spills = kernel.vgpr_spills + kernel.sgpr_spills
    if kernel.scratch:
        yield Violation("no scratch memory", kernel.name, f"{kernel.scratch} bytes a lane")
    if spills:
        yield Violation("no spilled registers", kernel.name, f"{spills} registers")
    if kernel.dynamic_stack:
        yield Violation("no dynamic stack", kernel.name, "its size is not known at compile time")
    if kernel.lds > LDS_BYTES[arch]:
        yield Violation(f"LDS within {LDS_BYTES[arch]} bytes", kernel.name, f"{kernel.lds} bytes")


def instruction_violations(instruction: Instruction) -> Iterator[Violation]:
    """Gates on a single instruction."""
    mnemonic, operands = instruction.mnemonic, set(instruction.operands)

    def breaks(gate: str) -> Violation:
        return Violation(gate, instruction.function, str(instruction))

    # a pointer that was loaded from memory and not cast to the global address space
    if mnemonic.startswith("flat_"):
        yield breaks("no flat access")
    if mnemonic.startswith("scratch_"):
        yield breaks("no scratch access")
    # weights are read once, past the caches, so a narrow load wastes most of its request
    if mnemonic.startswith(("global_load_", "buffer_load_")) and "nt" in operands and not mnemonic.endswith("dwordx4"):
        yield breaks("streaming loads are 16 bytes wide")
    # without scope bits both act on the wave alone: no other cache line is written back or dropped
    if mnemonic in ("buffer_inv", "buffer_wbl2") and not operands & {"sc0", "sc1"}:
        yield breaks("cache maintenance names its scope")


def instructions(assembly: str) -> Iterator[Instruction]:
    """Instructions of an assembly text as clang writes it: a line each, labels and directives left out."""
    function = ""
    for number, line in enumerate(assembly.splitlines(), start=1):
        code = line.split(";", 1)[0].strip()
        if label := re.fullmatch(r"(\w+):", code):
            function = label[1]
        elif code and not code.startswith(".") and not code.endswith(":"):
            mnemonic, *operands = re.split(r"[,\s]+", code)
            yield Instruction(function, number, mnemonic, tuple(operands))
