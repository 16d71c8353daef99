"""Matrix instructions (MFMA): D[M, N] = A[M, K] B[K, N] + C, one matrix a wave.

Layouts (toolchain.md section 6.3; proved by tests/isa/test_triton.py). M = N = 16 or 32, G = 64 / M lane groups, lane
l, group g = l / M:

- A: row l % M. B: column l % M. A lane holds the same K elements of both: without chunks, the contiguous run g.
  An f8f6f4 operand of 8-bit elements is two chunks of 16: k = 16 G c + 16 g + j.
- C and D: register r of lane l is row 4 G (r / 4) + 4 g + r % 4, column l % M.
- Scales: the e8m0 byte of lane l belongs to row (column) l % M and K block [32 g, 32 g + 32), whatever the lane's own
  elements are.

The order in which the hardware adds products is not specified. Here they are exact, summed with C in double
precision, and rounded once.
"""

from __future__ import annotations

import re
from collections.abc import Callable

import numpy as np

from .decode import File, Instruction, Operand
from .formats import E2M1, E4M3, E5M2, Array, bf16_decode, e8m0_decode
from .lanes import Step
from .sources import plain_source
from .wave import LANES, Wave

ReadMatrix = Callable[[Wave], Array]

_NAME = re.compile(r"v_mfma_(?:scale_)?f32_(\d+)x\d+x(\d+)_(\w+)")
_BLOCK = 32
_CHUNK = 16
_DECODE: dict[str, tuple[str, Callable[[Array], Array]]] = {
    "f32": ("f4", lambda x: x),
    "f16": ("f2", lambda x: x),
    "bf16": ("u2", bf16_decode),
    "fp8": ("u1", E4M3.decode),
    "bf8": ("u1", E5M2.decode),
    "fp4": ("u1", lambda x: E2M1.decode(np.stack([x & 15, x >> 4], -1).reshape(len(x), -1))),
}
# the cbsz and blgp fields of an f8f6f4 instruction; the 6-bit formats have no second opinion on their layout yet
_F8F6F4 = {0: "fp8", 1: "bf8", 4: "fp4"}
_ELEMENTS_PER_REGISTER = {"f32": 1, "f16": 2, "bf16": 2, "fp8": 4, "bf8": 4, "fp4": 8}


def bind(insn: Instruction) -> Step | None:
    """The step of a matrix instruction, or None for any other."""
    name = _NAME.fullmatch(insn.mnemonic)
    if name is None:
        return None
    rows, depth, types = int(name[1]), int(name[2]), name[3]
    fields = insn.fields
    if types == "f8f6f4":
        if fields["cbsz"] not in _F8F6F4 or fields["blgp"] not in _F8F6F4:
            raise insn.unknown("6-bit operand")
        type_a, type_b = _F8F6F4[fields["cbsz"]], _F8F6F4[fields["blgp"]]
    else:
        type_a, _, type_b = types.partition("_")
        type_b = type_b or type_a
        if fields["cbsz"] or fields["blgp"] or type_a not in _DECODE or type_b not in _DECODE:
            raise insn.unknown("matrix operation")
    read_a = _operand(insn.operands["src0"], type_a, rows, depth)
    read_b = _operand(insn.operands["src1"], type_b, rows, depth)
    if "scale_src0" in insn.operands:
        read_a = _scaled(insn, read_a, 0, rows)
        read_b = _scaled(insn, read_b, 1, rows)
    return _multiply(insn, read_a, read_b, rows)


def _operand(operand: Operand, element: str, rows: int, depth: int) -> ReadMatrix:
    """A as [rows, depth] (B transposed alike), in double precision."""
    groups = LANES // rows
    elements = depth // groups
    registers = elements // _ELEMENTS_PER_REGISTER[element]
    storage, decode = _DECODE[element]
    first = operand.index
    chunked = elements == 2 * _CHUNK and element in ("fp8", "bf8")

    def read(wave: Wave) -> Array:
        raw = np.ascontiguousarray(wave.v["u4"][first : first + registers].T).view(storage)
        values = decode(raw).astype(np.float64)
        by_row: Array = (
            values.reshape(groups, rows, 2, _CHUNK).transpose(1, 2, 0, 3)
            if chunked
            else values.reshape(groups, rows, elements).transpose(1, 0, 2)
        )
        return by_row.reshape(rows, depth)

    return read


def _scaled(insn: Instruction, read: ReadMatrix, position: int, rows: int) -> ReadMatrix:
    """Multiply each block of 32 elements by its lane's scale byte, chosen by op_sel."""
    operand = insn.operands[f"scale_src{position}"]
    byte = insn.fields["opsel"] >> position & 1 | (insn.fields["opsel_hi"] >> position & 1) << 1
    scale = plain_source(insn, Operand(operand.file, operand.index, "U32", 32))
    groups = LANES // rows

    def scaled(wave: Wave) -> Array:
        codes = np.broadcast_to(scale(wave) >> np.uint32(8 * byte) & np.uint32(0xFF), LANES)
        factors = e8m0_decode(codes).reshape(groups, rows).T
        values: Array = read(wave).reshape(rows, groups, _BLOCK) * factors[:, :, None]
        return values.reshape(rows, -1)

    return scaled


def _multiply(insn: Instruction, read_a: ReadMatrix, read_b: ReadMatrix, rows: int) -> Step:
    groups = LANES // rows
    quads = rows // (4 * groups)
    registers = 4 * quads
    addend, target = insn.operands["src2"], insn.operands["vdst"].index
    first = addend.index
    constant = None if addend.file is File.VECTOR else plain_source(insn, Operand(addend.file, first, "F32", 32))

    def step(wave: Wave) -> None:
        # a matrix instruction ignores EXEC
        product = read_a(wave) @ read_b(wave).T
        by_register = product.reshape(quads, groups, 4, rows).transpose(0, 2, 1, 3).reshape(registers, LANES)
        c = wave.v["f4"][first : first + registers] if constant is None else constant(wave)
        wave.v["f4"][target : target + registers] = by_register + c

    return step
