"""Machine code to instructions with typed operands, through the decoder of the PyPI package tinygrad.

That decoder is generated from AMD's machine-readable ISA description, and with each operand it gives its number
format ("F32", "PK2_BF16", "U64" ...) and its width. The semantic tables rely on both, so that one line of Python
states one instruction.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum

from tinygrad.renderer.amd import decode_inst
from tinygrad.renderer.amd.dsl import Reg

from .errors import UnknownInstructionError

WORD_BYTES = 4
# the longest encoding: a scaled matrix instruction
MAX_INSTRUCTION_BYTES = 16

# operand codes of the 9-bit source field
VCC = 106
M0 = 124
EXEC = 126
LITERAL = 255
FIRST_VGPR = 256
# the decoder leaves these as plain codes
_SCALE_SOURCES = ("scale_src0", "scale_src1")
_SDWA_SOURCE, _DPP_SOURCE = 249, 250
# how the register file of a wave is numbered: 256 vector registers, then 256 accumulation registers
FIRST_AGPR = 256


class File(Enum):
    """Where an operand lives."""

    VECTOR = "v"
    SCALAR = "s"
    CONSTANT = "c"


@dataclass(frozen=True, slots=True)
class Operand:
    """One operand.

    Attributes
    ----------
    index : int
        VECTOR: row of the register file, accumulation registers from 256. SCALAR: register number. CONSTANT: source
        code. format : str Number format, e.g. ``F32``, ``B64``, ``PK2_BF16``. bits : int Width of the whole operand.
    """

    file: File
    index: int
    format: str
    bits: int


@dataclass(frozen=True, slots=True)
class Instruction:
    """One decoded instruction.

    Attributes
    ----------
    encoding : str
        Instruction format: ``SOP1``, ``VOP3P``, ``GLOBAL`` ...
    mnemonic : str
        LLVM's name without ``_e32``/``_e64``/``_dpp``/``_sdwa``.
    fields : mapping
        Every encoding field by name, as an unsigned integer.
    operands : mapping
        The register operands by field name; ``src0`` is the vector register behind a DPP or SDWA marker.
    """

    address: int
    size: int
    encoding: str
    mnemonic: str
    fields: Mapping[str, int]
    operands: Mapping[str, Operand]
    text: str

    @property
    def dpp(self) -> bool:
        """Whether source 0 goes through a data-parallel-primitive lane pattern."""
        return "row_mask" in self.fields

    @property
    def sdwa(self) -> bool:
        """Whether operands are parts of registers (sub-dword addressing)."""
        return "src0_sel" in self.fields

    @property
    def scope(self) -> str:
        """Scope and cache bits in LLVM's order, e.g. ``"sc0 sc1"``; empty when none is set."""
        return " ".join(bit for bit in ("sc0", "nt", "sc1") if self.fields.get(bit))

    @property
    def sources(self) -> list[Operand]:
        """The explicit sources of a vector or scalar arithmetic instruction, in order."""
        names = ("src0", "ssrc0", "src1", "vsrc1", "ssrc1", "src2")
        return [self.operands[name] for name in names if name in self.operands]

    def unknown(self, what: str) -> UnknownInstructionError:
        """The error for a use of this instruction that is not modelled."""
        return UnknownInstructionError(f"{what}: {self.describe()}")

    def describe(self) -> str:
        """Mnemonic, address and text, for messages."""
        return f"{self.mnemonic} at {self.address:#x}: {self.text}"


def decode(code: bytes, address: int) -> Instruction:
    """Decode the instruction at the start of `code`.

    Raises
    ------
    UnknownInstructionError
        The bytes are no instruction of CDNA 3 or 4.
    """
    try:
        inst = decode_inst(code, "cdna")
    except ValueError as error:
        raise UnknownInstructionError(f"no instruction at {address:#x}: {code[:8].hex()}") from error
    values = {name: getattr(inst, name) for name, _ in inst._fields if name != "op"}
    fields = {
        name: value.offset if isinstance(value, Reg) else value for name, value in values.items() if value is not None
    }
    mnemonic = inst.op_name.lower().removesuffix("_e32").removesuffix("_e64")
    operands = {}
    for name, (number_format, bits, kind) in inst.operands.items():
        if isinstance(values.get(name), Reg) or name in _SCALE_SOURCES:
            file, index = _location(name, fields, kind.name)
            short_format = number_format.name.removeprefix("FMT_").removeprefix("NUM_")
            operands[name] = Operand(file, index, short_format, bits)
    if "sdst" in fields and "sdst" not in operands:
        # the carry-out or comparison mask of a sub-dword instruction is not in the operand table
        operands["sdst"] = Operand(File.SCALAR, fields["sdst"], "M64", 64)
    return Instruction(address, inst.size(), type(inst).__name__.split("_")[0], mnemonic, fields, operands, repr(inst))


def _location(name: str, fields: Mapping[str, int], kind: str) -> tuple[File, int]:
    code = fields[name]
    if name == "src0" and code in (_SDWA_SOURCE, _DPP_SOURCE):
        code = fields["vsrc0"]
        if fields.get("s0"):
            code -= FIRST_VGPR
    if name == "vsrc1" and fields.get("s1"):
        code -= FIRST_VGPR
    if kind in ("OPR_SREG", "OPR_SREG_NOVCC", "OPR_SDST"):
        # v_readlane and v_readfirstlane keep their scalar destination in a vector field
        return File.SCALAR, code % FIRST_VGPR
    if code < FIRST_VGPR:
        return (File.SCALAR if code <= EXEC + 1 else File.CONSTANT), code
    row = code - FIRST_VGPR
    return File.VECTOR, row + FIRST_AGPR if _is_accumulation(name, fields, kind) else row


def _is_accumulation(name: str, fields: Mapping[str, int], kind: str) -> bool:
    if kind in ("OPR_ACCVGPR", "OPR_SRC_ACCVGPR"):
        return True
    if "ACCVGPR" not in kind:
        return False
    if "acc_cd" in fields:
        if name in ("vdst", "src2"):
            return bool(fields["acc_cd"])
        return bool(fields["acc"] >> int(name == "src1") & 1)
    return bool(fields.get("acc"))
