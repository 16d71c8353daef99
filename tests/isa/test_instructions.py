"""Single instructions that compilers seldom choose, in assembly, against their definition in plain Python or numpy.

A case gives the assembly of one instruction with the operands %[a] %[b] %[c] (vector cases: a word of each lane; scalar
cases: a word) and the destination %[d], which enters as `old` (64-bit cases: `a` in the high word), and what %[d] then
is.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import ml_dtypes
import numpy as np
import numpy.typing as npt
import pytest

from .build import compile_hip
from .gfx950 import Module, load
from .harness import KERNELS, run_kernel

pytestmark = pytest.mark.isa

Array = npt.NDArray[Any]

LANES = 64
MASK32, MASK64 = (1 << 32) - 1, (1 << 64) - 1


class Case(NamedTuple):
    """An instruction and its result, from the operands and the old destination."""

    text: str
    result: Callable[..., Any]
    wide: bool = False


def f16(x: Array, half: int) -> Array:
    """Half of a word as float64 [64]."""
    values: Array = x.view(np.float16)[half::2]
    return values.astype(np.float64)


def bf16(x: Array, half: int) -> Array:
    values: Array = x.view(ml_dtypes.bfloat16)[half::2]
    return values.astype(np.float64)


def pair16(low: Array, high: Array) -> Array:
    """Two half-precision results in a word."""
    return pair_of(np.float16, low, high)


def pair_of(dtype: Any, low: Array, high: Array) -> Array:
    """Two 16-bit results in a word."""
    return np.stack([low.astype(dtype), high.astype(dtype)], 1).view(np.uint32)[:, 0]


def f32(x: Array) -> Array:
    return x.view(np.float32)


def bits(x: Array) -> Array:
    return x.astype(np.float32).view(np.uint32)


def bytes_of(x: Array, dtype: Any) -> Array:
    """[64, 4 or 2] parts of the words."""
    parts: Array = x[:, None].view(dtype).astype(np.int64)
    return parts


def exact_dot(a: Array, b: Array, c: Array, part: Callable[[Array, int], Array]) -> Array:
    return bits(part(a, 0) * part(b, 0) + part(a, 1) * part(b, 1) + f32(c).astype(np.float64))


def dot(a: Array, b: Array, c: Array, dtype: Any) -> Array:
    """Sum of products of the integer parts of two words, plus a third."""
    signed_sum = np.dtype(dtype).kind == "i"
    total: Array = (bytes_of(a, dtype) * bytes_of(b, dtype)).sum(1) + (c.view(np.int32) if signed_sum else c)
    return total


def each(function: Callable[..., int], *words: Array) -> list[int]:
    """A function of Python ints, lane by lane."""
    return [function(*values) for values in zip(*(w.tolist() for w in words), strict=True)]


def low_times_low(a: Array, b: Array, c: Array, dtype: Any) -> Array:
    product = bytes_of(a, dtype)[:, 0] * bytes_of(b, dtype)[:, 0]
    total: Array = product + (c.view(np.int32) if np.dtype(dtype).kind == "i" else c)
    return total


def compared(function: Callable[[Array, Array], Any], with_nan: bool, a: Array, b: Array, c: Array, old: Array) -> Any:
    """A comparison of a, or of NaN, with b."""
    return function(np.full(LANES, np.nan, np.float32) if with_nan else f32(a), f32(b))


def frexp(x: Array) -> tuple[Array, Array]:
    return np.frexp(f32(x))


# lanes whose VCC bit is set give 1
VCC_TO_D = "v_cndmask_b32 %[d], 0, 1, vcc"
# a 64-bit operand with d in its high word
C_AND_D = "v_mov_b32 v42, %[c]\\n v_mov_b32 v43, %[d]\\n"
NAN = "0x7fc00000"
FLOAT_COMPARISONS: dict[str, Callable[[Array, Array], Any]] = {
    "lt": lambda a, b: a < b,
    "eq": lambda a, b: a == b,
    "le": lambda a, b: a <= b,
    "gt": lambda a, b: a > b,
    "lg": lambda a, b: (a < b) | (a > b),
    "ge": lambda a, b: a >= b,
    "o": lambda a, b: ~np.isnan(a + b),
    "u": lambda a, b: np.isnan(a + b),
    "nge": lambda a, b: ~(a >= b),
    "nlg": lambda a, b: ~((a < b) | (a > b)),
    "ngt": lambda a, b: ~(a > b),
    "nle": lambda a, b: ~(a <= b),
    "neq": lambda a, b: ~(a == b),
    "nlt": lambda a, b: ~(a < b),
}

VECTOR = [
    *(
        Case(f"v_cmp_{name}_f32 vcc, {first}, %[b]\\n {VCC_TO_D}", functools.partial(compared, function, first == NAN))
        for name, function in FLOAT_COMPARISONS.items()
        for first in ("%[a]", NAN)
    ),
    Case("v_dot2_f32_bf16 %[d], %[a], %[b], %[c]", lambda a, b, c, old: exact_dot(a, b, c, bf16)),
    Case("v_dot2_f32_f16 %[d], %[a], %[b], %[c]", lambda a, b, c, old: exact_dot(a, b, c, f16)),
    Case("v_dot2c_f32_bf16 %[d], %[a], %[b]", lambda a, b, c, old: exact_dot(a, b, old, bf16)),
    Case("v_dot4_i32_i8 %[d], %[a], %[b], %[c]", lambda a, b, c, old: dot(a, b, c, np.int8)),
    Case("v_dot4_u32_u8 %[d], %[a], %[b], %[c]", lambda a, b, c, old: dot(a, b, c, np.uint8)),
    Case("v_dot2_i32_i16 %[d], %[a], %[b], %[c]", lambda a, b, c, old: dot(a, b, c, np.int16)),
    Case("v_dot2_u32_u16 %[d], %[a], %[b], %[c]", lambda a, b, c, old: dot(a, b, c, np.uint16)),
    Case("v_pk_add_f16 %[d], %[a], %[b]", lambda a, b, c, old: pair16(f16(a, 0) + f16(b, 0), f16(a, 1) + f16(b, 1))),
    Case("v_pk_mul_f16 %[d], %[a], %[b]", lambda a, b, c, old: pair16(f16(a, 0) * f16(b, 0), f16(a, 1) * f16(b, 1))),
    Case(
        "v_pk_mul_f16 %[d], %[a], %[b] op_sel:[1,0] op_sel_hi:[0,1] neg_lo:[1,0] neg_hi:[0,1]",
        lambda a, b, c, old: pair16(-f16(a, 1) * f16(b, 0), f16(a, 0) * -f16(b, 1)),
    ),
    Case(
        "v_pk_fma_f16 %[d], %[a], %[b], %[c]",
        lambda a, b, c, old: pair16(f16(a, 0) * f16(b, 0) + f16(c, 0), f16(a, 1) * f16(b, 1) + f16(c, 1)),
    ),
    Case(
        "v_pk_max_f16 %[d], %[a], %[b]",
        lambda a, b, c, old: pair16(np.fmax(f16(a, 0), f16(b, 0)), np.fmax(f16(a, 1), f16(b, 1))),
    ),
    Case(
        "v_pk_min_f16 %[d], %[a], %[b]",
        lambda a, b, c, old: pair16(np.fmin(f16(a, 0), f16(b, 0)), np.fmin(f16(a, 1), f16(b, 1))),
    ),
    # of the destination only the half that op_sel names changes
    Case(
        "v_fma_f16 %[d], %[a], %[b], %[c]", lambda a, b, c, old: pair16(f16(a, 0) * f16(b, 0) + f16(c, 0), f16(old, 1))
    ),
    Case(
        "v_fma_f16 %[d], %[a], %[b], %[c] op_sel:[1,0,1,1]",
        lambda a, b, c, old: pair16(f16(old, 0), f16(a, 1) * f16(b, 0) + f16(c, 1)),
    ),
    Case("v_pack_b32_f16 %[d], %[a], -%[b] op_sel:[1,0,0]", lambda a, b, c, old: pair16(f16(a, 1), -f16(b, 0))),
    Case("v_add_f32 %[d], %[a], -|%[b]| clamp", lambda a, b, c, old: bits(np.clip(f32(a) - np.abs(f32(b)), 0, 1))),
    Case("v_mul_f32 %[d], -%[a], %[b] mul:4", lambda a, b, c, old: bits(f32(a) * f32(b) * -4)),
    Case(
        "v_maximum3_f32 %[d], %[a], %[b], %[c]",
        lambda a, b, c, old: bits(np.maximum(np.maximum(f32(a), f32(b)), f32(c))),
    ),
    Case(
        "v_minimum3_f32 %[d], %[a], %[b], %[c]",
        lambda a, b, c, old: bits(np.minimum(np.minimum(f32(a), f32(b)), f32(c))),
    ),
    Case("v_frexp_exp_i32_f32 %[d], %[a]", lambda a, b, c, old: frexp(a)[1]),
    Case("v_frexp_mant_f32 %[d], %[a]", lambda a, b, c, old: bits(frexp(a)[0])),
    Case(
        "v_cvt_pkrtz_f16_f32 %[d], %[a], %[b]",
        lambda a, b, c, old: pair16(toward_zero(f32(a)), toward_zero(f32(b))),
    ),
    Case(
        "v_cvt_pk_i16_i32 %[d], %[a], %[b]",
        lambda a, b, c, old: pair_of(np.int16, *(np.clip(x.view(np.int32), -0x8000, 0x7FFF) for x in (a, b))),
    ),
    Case(
        "v_cvt_pk_u16_u32 %[d], %[a], %[b]",
        lambda a, b, c, old: pair_of(np.uint16, *(np.minimum(x, 0xFFFF) for x in (a, b))),
    ),
    Case("v_bfm_b32 %[d], %[a], %[b]", lambda a, b, c, old: each(lambda x, y: ((1 << (x & 31)) - 1) << (y & 31), a, b)),
    Case(
        "v_alignbyte_b32 %[d], %[a], %[b], %[c]",
        lambda a, b, c, old: each(lambda x, y, z: (x << 32 | y) >> 8 * (z & 3) & MASK32, a, b, c),
    ),
    Case("v_mad_i32_i16 %[d], %[a], %[b], %[c]", lambda a, b, c, old: low_times_low(a, b, c, np.int16)),
    Case("v_mad_u32_u16 %[d], %[a], %[b], %[c]", lambda a, b, c, old: low_times_low(a, b, c, np.uint16)),
    Case("v_cvt_f32_bf16 %[d], %[a]", lambda a, b, c, old: a << 16),
    Case(
        "v_add_u16_sdwa %[d], %[a], %[b] dst_sel:WORD_1 dst_unused:UNUSED_PRESERVE src0_sel:BYTE_2 src1_sel:WORD_1",
        lambda a, b, c, old: (((a >> 16 & 0xFF) + (b >> 16)) & 0xFFFF) << 16 | old & 0xFFFF,
    ),
    Case(
        "v_add_u32_sdwa %[d], sext(%[a]), %[b] dst_sel:BYTE_1 dst_unused:UNUSED_PAD src0_sel:BYTE_3 src1_sel:WORD_0",
        lambda a, b, c, old: ((a.view(np.int32) >> 24) + (b & 0xFFFF).astype(np.int64) & 0xFF) << 8,
    ),
    Case(
        "v_mul_i32_i24 %[d], %[a], %[b]",
        lambda a, b, c, old: (a.view(np.int32) << 8 >> 8).astype(int) * (b.view(np.int32) << 8 >> 8),
    ),
    Case("v_bfrev_b32 %[d], %[a]", lambda a, b, c, old: each(lambda x: int(f"{x:032b}"[::-1], 2), a)),
    Case("v_cvt_f32_ubyte0 %[d], %[a]", lambda a, b, c, old: bits(a & 0xFF)),
    # second results: carries and borrows
    Case(f"v_subb_co_u32 %[d], vcc, %[a], %[b], exec\\n {VCC_TO_D}", lambda a, b, c, old: a <= b),
    Case(f"v_subbrev_co_u32 %[d], vcc, %[a], %[b], exec\\n {VCC_TO_D}", lambda a, b, c, old: b <= a),
    Case(f"v_addc_co_u32 %[d], vcc, %[a], %[b], exec\\n {VCC_TO_D}", lambda a, b, c, old: a.astype(int) + b >= MASK32),
    Case(
        f"{C_AND_D} v_mad_u64_u32 v[42:43], vcc, %[a], %[b], v[42:43]\\n {VCC_TO_D}",
        lambda a, b, c, old: each(lambda x, y, z, w: x * y + (w << 32 | z) >> 64, a, b, c, old),
    ),
    Case(
        f"{C_AND_D} v_mad_i64_i32 v[42:43], vcc, %[a], %[b], v[42:43]\\n {VCC_TO_D}",
        lambda a, b, c, old: each(lambda x, y, z, w: signed(x) * signed(y) + (signed(w) << 32 | z) < 0, a, b, c, old),
    ),
    Case("v_subrev_f32 %[d], %[a], %[b]", lambda a, b, c, old: bits(f32(b) - f32(a))),
    Case("v_pk_mov_b32 %[d], %[d], %[d] op_sel:[1,0]", lambda a, b, c, old: old >> 32 | old << 32, True),
    Case("v_swap_b32 %[d], %[a]", lambda a, b, c, old: a),
    Case(
        "v_accvgpr_write_b32 a0, %[a]\\n v_accvgpr_mov_b32 a1, a0\\n s_nop 7\\n v_accvgpr_read_b32 %[d], a1",
        lambda a, b, c, old: a,
    ),
    Case("v_mov_b32_sdwa %[d], %[a] dst_sel:DWORD src0_sel:WORD_1", lambda a, b, c, old: a >> 16),
    Case(
        "v_pk_add_i16 %[d], %[a], %[b]",
        lambda a, b, c, old: pair_of(np.int16, *(a.view(np.int16) + b.view(np.int16)).reshape(-1, 2).T),
    ),
    Case(
        "v_pk_sub_u16 %[d], %[a], %[b]",
        lambda a, b, c, old: pair_of(np.uint16, *(a.view(np.uint16) - b.view(np.uint16)).reshape(-1, 2).T),
    ),
]


def signed(x: int) -> int:
    return x - (x >> 31 << 32)


def overflows(x: int) -> bool:
    return not -(1 << 31) <= x < 1 << 31


def with_carry(x: int) -> int:
    return x + (x > MASK32)


def new_exec(function: Callable[[int, int], int], a: int, b: int, c: int, old: int) -> int:
    return function(old, MASK64)


EXEC_UPDATES: dict[str, Callable[[int, int], int]] = {
    "and": lambda s, e: s & e,
    "or": lambda s, e: s | e,
    "xor": lambda s, e: s ^ e,
    "nand": lambda s, e: ~(s & e),
    "nor": lambda s, e: ~(s | e),
    "xnor": lambda s, e: ~(s ^ e),
    "andn1": lambda s, e: ~s & e,
    "andn2": lambda s, e: s & ~e,
    "orn1": lambda s, e: ~s | e,
    "orn2": lambda s, e: s | ~e,
}

SCALAR = [
    Case("s_absdiff_i32 %[d], %[a], %[b]", lambda a, b, c, old: abs(signed(a) - signed(b))),
    Case("s_bfm_b32 %[d], %[a], %[b]", lambda a, b, c, old: ((1 << (a & 31)) - 1) << (b & 31)),
    Case("s_bfm_b64 %[d], %[a], %[b]", lambda a, b, c, old: ((1 << (a & 63)) - 1) << (b & 63), True),
    Case("s_bitset0_b32 %[d], %[a]", lambda a, b, c, old: old & ~(1 << (a & 31))),
    Case("s_bitset1_b32 %[d], %[a]", lambda a, b, c, old: old | 1 << (a & 31)),
    Case(
        "s_flbit_i32 %[d], %[a]",
        lambda a, b, c, old: next((i for i in range(1, 32) if (a >> 31 - i & 1) != a >> 31), -1),
    ),
    Case("s_flbit_i32_b32 %[d], %[a]", lambda a, b, c, old: 32 - a.bit_length() if a else -1),
    Case("s_ff0_i32_b32 %[d], %[a]", lambda a, b, c, old: next((i for i in range(32) if not a >> i & 1), -1)),
    Case("s_nand_b32 %[d], %[a], %[b]", lambda a, b, c, old: ~(a & b)),
    Case("s_nor_b32 %[d], %[a], %[b]", lambda a, b, c, old: ~(a | b)),
    Case("s_xnor_b32 %[d], %[a], %[b]", lambda a, b, c, old: ~(a ^ b)),
    Case("s_nand_b64 %[d], %[d], exec", lambda a, b, c, old: ~old, True),
    Case("s_nor_b64 %[d], %[d], -16", lambda a, b, c, old: ~(old | -16), True),
    Case("s_xnor_b64 %[d], %[d], 9", lambda a, b, c, old: ~(old ^ 9), True),
    Case("s_bfe_u64 %[d], %[d], 0x1c0005", lambda a, b, c, old: old >> 5 & (1 << 28) - 1, True),
    Case("s_brev_b64 %[d], %[d]", lambda a, b, c, old: int(f"{old:064b}"[::-1], 2), True),
    # second results: s_addc adds SCC
    *(
        Case(f"s_{name} %[d], %[a], %[b]\\n s_addc_u32 %[d], %[d], 0", result)
        for name, result in (
            ("add_i32", lambda a, b, c, old: a + b + overflows(signed(a) + signed(b))),
            ("sub_i32", lambda a, b, c, old: a - b + overflows(signed(a) - signed(b))),
            ("lshl1_add_u32", lambda a, b, c, old: with_carry(2 * a + b)),
            ("lshl2_add_u32", lambda a, b, c, old: with_carry(4 * a + b)),
            ("lshl3_add_u32", lambda a, b, c, old: with_carry(8 * a + b)),
            ("lshl4_add_u32", lambda a, b, c, old: with_carry(16 * a + b)),
            ("min_u32", lambda a, b, c, old: min(a, b) + (a < b)),
            ("max_u32", lambda a, b, c, old: max(a, b) + (a >= b)),
            ("min_i32", lambda a, b, c, old: min(signed(a), signed(b)) + (signed(a) < signed(b))),
            ("max_i32", lambda a, b, c, old: max(signed(a), signed(b)) + (signed(a) >= signed(b))),
        )
    ),
    # the new EXEC, restored afterwards
    *(
        Case(
            f"s_{name}_saveexec_b64 vcc, %[d]\\n s_mov_b64 %[d], exec\\n s_mov_b64 exec, vcc",
            functools.partial(new_exec, function),
            True,
        )
        for name, function in EXEC_UPDATES.items()
    ),
    Case("s_pack_ll_b32_b16 %[d], %[a], %[b]", lambda a, b, c, old: a & 0xFFFF | (b & 0xFFFF) << 16),
    Case("s_pack_lh_b32_b16 %[d], %[a], %[b]", lambda a, b, c, old: a & 0xFFFF | b >> 16 << 16),
    Case("s_pack_hh_b32_b16 %[d], %[a], %[b]", lambda a, b, c, old: a >> 16 | b >> 16 << 16),
    Case("s_bcnt0_i32_b32 %[d], %[a]", lambda a, b, c, old: 32 - a.bit_count()),
    Case("s_cmp_lt_u32 %[a], %[b]\\n s_cmov_b32 %[d], %[c]", lambda a, b, c, old: c if a < b else old),
    Case("s_mulk_i32 %[d], 0xfff3", lambda a, b, c, old: old * -13),
    Case("s_getreg_b32 %[d], hwreg(HW_REG_XCC_ID)", lambda a, b, c, old: 0),
    Case("s_setprio 2\\n s_memtime %[d]\\n s_waitcnt lgkmcnt(0)\\n s_mov_b64 %[d], 5", lambda a, b, c, old: 5, True),
]


def toward_zero(x: Array) -> Array:
    """float32 to float16, rounded toward zero."""
    with np.errstate(over="ignore"):
        near = x.astype(np.float16)
    return np.where(np.abs(near.astype(np.float32)) > np.abs(x), np.nextafter(near, np.float16(0)), near)


def kernel(number: int, case: Case, register: str) -> str:
    """A kernel of one instruction; the scalar variant moves its operands to scalar registers."""
    word = "u64" if case.wide else "u32"
    fetch = "{}" if register == "v" else "static_cast<u32>(__builtin_amdgcn_readfirstlane({}))"
    operands = ", ".join(f'[{name}] "{register}"({fetch.format(f"{name}[i]")})' for name in "abc")
    # an input that is changed has to be an output
    swapped = "u32 x = a[i];" if case.text.startswith("v_swap") else ""
    operands = operands.replace('[a] "v"(a[i])', "") if swapped else operands
    outputs = f'[d] "+{register}"(d)' + (', [a] "+v"(x)' if swapped else "")
    start = fetch.format("old[i]")
    if case.wide:
        start = f"static_cast<u64>({fetch.format('a[i]')}) << 32 | {start}"
    clobbers = '"a0", "a1"' if "accvgpr" in case.text else '"scc", "vcc", "v42", "v43"'
    return f"""
KERNEL case{number}(const u32* a, const u32* b, const u32* c, const u32* old, {word}* out) {{
  const u32 i = thread();
  {swapped}
  {word} d = {start};
  asm volatile("{case.text}" : {outputs} : {operands.lstrip(", ")} : {clobbers});
  out[i] = d;
}}"""


@functools.cache
def module(kind: str) -> Module:
    cases = {"v": VECTOR, "s": SCALAR}[kind]
    source = '#include "device.h"\n' + "".join(kernel(i, case, kind) for i, case in enumerate(cases))
    return load(compile_hip(source, f"-I{KERNELS}"))


def name(case: Case) -> str:
    return case.text.split()[0] + ("+" if "op_sel" in case.text else "")


@pytest.fixture
def operands() -> list[Array]:
    """Words [4][64] in which every part is an ordinary number: small half-precision numbers, whose sums are exact."""
    rng = np.random.default_rng(4)
    return [
        np.ldexp(rng.integers(-64, 64, 2 * LANES), rng.integers(-6, 0, 2 * LANES)).astype(np.float16).view(np.uint32)
        for _ in range(4)
    ]


@pytest.mark.parametrize("number", range(len(VECTOR)), ids=[name(case) for case in VECTOR])
def test_vector_instruction(operands: list[Array], number: int) -> None:
    case = VECTOR[number]
    out = np.zeros(LANES, np.uint64 if case.wide else np.uint32)
    run_kernel(module("v"), f"case{number}", *operands, out, block=LANES)
    a, b, c, old = operands
    if case.wide:
        old = a.astype(np.uint64) << np.uint64(32) | old
    expected = np.asarray(case.result(a, b, c, old))
    np.testing.assert_array_equal(out, expected if case.wide else expected.astype(np.int64) & MASK32)


@pytest.mark.parametrize("number", range(len(SCALAR)), ids=[name(case) for case in SCALAR])
def test_scalar_instruction(number: int) -> None:
    case, rng = SCALAR[number], np.random.default_rng(number)
    for _ in range(8):
        values = [int(x) >> int(rng.integers(0, 32)) for x in rng.integers(0, 2**32, 4)]
        out = np.zeros(LANES, np.uint64 if case.wide else np.uint32)
        run_kernel(module("s"), f"case{number}", *(np.full(LANES, v, np.uint32) for v in values), out, block=LANES)
        a, b, c, old = values
        expected = case.result(a, b, c, a << 32 | old) & MASK64 if case.wide else case.result(*values) & MASK32
        assert out.tolist() == [expected] * LANES
