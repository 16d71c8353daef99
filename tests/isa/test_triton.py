"""The interpreter's proof: binaries that Triton compiled for gfx950 give numpy's results on it."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import numpy.typing as npt
import pytest

from . import triton_kernels as kernels
from .gfx950 import Counts, load
from .harness import Argument, run_kernel

pytestmark = pytest.mark.isa

Array = npt.NDArray[Any]
Compiled = tuple[bytes, str, int, int]

M = N = 64
E8M0_BIAS = 127
BLOCK = 32


def execute(compiled: Compiled, *arguments: Argument, grid: tuple[int, int, int] = (1, 1, 1), seed: int = 0) -> Counts:
    """Run a kernel; arrays are placed in memory and changed in place."""
    code, name, block, lds_bytes = compiled
    # Triton appends two scratch pointers that these kernels do not use
    return run_kernel(load(code), name, *arguments, 0, 0, grid=grid, block=block, dynamic_lds=lds_bytes, seed=seed)


def pointers(**kinds: str) -> tuple[tuple[str, str], ...]:
    return tuple((name, kind) for name, kind in kinds.items())


@pytest.mark.parametrize("nonkdim", [16, 32])
@pytest.mark.parametrize(
    ("kind", "dtype"),
    [
        ("bf16", ml_dtypes.bfloat16),
        ("fp16", np.float16),
        ("fp32", np.float32),
        ("fp8e4nv", ml_dtypes.float8_e4m3fn),
        ("fp8e5", ml_dtypes.float8_e5m2),
    ],
)
def test_dot(rng: np.random.Generator, nonkdim: int, kind: str, dtype: Any) -> None:
    depth = 128
    compiled = kernels.compile_kernel(
        kernels.dot,
        pointers(a=f"*{kind}", b=f"*{kind}", c="*fp32"),
        (("M", M), ("N", N), ("K", depth), ("STEP", 64)),
        matrix_instr_nonkdim=nonkdim,
    )
    a, b = (rng.integers(-8, 9, (rows, depth)).astype(dtype) for rows in (M, N))
    c = np.zeros((M, N), np.float32)
    counts = execute(compiled, a, b, c)
    # small integers: every order of summation is exact
    np.testing.assert_array_equal(c, a.astype(np.float32) @ b.astype(np.float32).T)
    names = {
        ("fp8e4nv", 16): "v_mfma_f32_16x16x32_fp8_fp8",
        ("fp8e4nv", 32): "v_mfma_f32_32x32x64_f8f6f4",
        ("fp8e5", 16): "v_mfma_f32_16x16x32_bf8_bf8",
        ("fp8e5", 32): "v_mfma_f32_32x32x64_f8f6f4",
        ("bf16", 16): "v_mfma_f32_16x16x32_bf16",
        ("bf16", 32): "v_mfma_f32_32x32x16_bf16",
        ("fp16", 16): "v_mfma_f32_16x16x32_f16",
        ("fp16", 32): "v_mfma_f32_32x32x16_f16",
        ("fp32", 16): "v_mfma_f32_16x16x4_f32",
        ("fp32", 32): "v_mfma_f32_32x32x2_f32",
    }
    assert counts.instructions[names[kind, nonkdim]] > 0


def test_dot_with_a_transposing_load(rng: np.random.Generator) -> None:
    compiled = kernels.compile_kernel(
        kernels.dot_row_major,
        pointers(a="*bf16", b="*bf16", c="*fp32"),
        (("M", M), ("N", N), ("K", 64)),
        matrix_instr_nonkdim=16,
    )
    a, b = (rng.integers(-8, 9, (64, 64)).astype(ml_dtypes.bfloat16) for _ in "ab")
    c = np.zeros((M, N), np.float32)
    counts = execute(compiled, a, b, c)
    np.testing.assert_array_equal(c, a.astype(np.float32) @ b.astype(np.float32))
    assert counts.instructions["ds_read_b64_tr_b16"] > 0


def random_operand(rng: np.random.Generator, kind: str, rows: int, depth: int) -> tuple[Array, Array]:
    """Codes as the kernel loads them, and their float64 values [rows, depth]."""
    if kind == "e2m1":
        codes = rng.integers(0, 16, (rows, depth), np.uint8)
        values = codes.view(ml_dtypes.float4_e2m1fn).astype(np.float64)
        return codes[:, 0::2] | codes[:, 1::2] << 4, values
    dtype = {"e4m3": ml_dtypes.float8_e4m3fn, "e5m2": ml_dtypes.float8_e5m2}[kind]
    values = rng.normal(size=(rows, depth)).astype(dtype)
    return values.view(np.uint8), values.astype(np.float64)


@pytest.mark.parametrize("nonkdim", [16, 32])
@pytest.mark.parametrize(("kind_a", "kind_b"), [("e2m1", "e2m1"), ("e4m3", "e4m3"), ("e4m3", "e2m1"), ("e5m2", "e4m3")])
def test_dot_scaled(rng: np.random.Generator, nonkdim: int, kind_a: str, kind_b: str) -> None:
    depth = 512
    compiled = kernels.compile_kernel(
        kernels.dot_scaled,
        pointers(a="*u8", a_scale="*u8", b="*u8", b_scale="*u8", c="*fp32"),
        (("FORMAT_A", kind_a), ("FORMAT_B", kind_b), ("M", M), ("N", N), ("K", depth), ("STEP", 256)),
        matrix_instr_nonkdim=nonkdim,
    )
    (a, a_values), (b, b_values) = random_operand(rng, kind_a, M, depth), random_operand(rng, kind_b, N, depth)
    a_scale, b_scale = (rng.integers(E8M0_BIAS - 7, E8M0_BIAS + 7, (rows, depth // BLOCK), np.uint8) for rows in (M, N))
    c = np.zeros((M, N), np.float32)
    counts = execute(compiled, np.ascontiguousarray(a), a_scale, np.ascontiguousarray(b), b_scale, c)
    a_scaled, b_scaled = scaled(a_values, a_scale), scaled(b_values, b_scale)
    # each of the instructions of a column rounds once to float32
    bound = np.abs(a_scaled) @ np.abs(b_scaled).T * depth / 128 * 2.0**-24
    assert (np.abs(c - a_scaled @ b_scaled.T) <= bound).all()
    shape = {16: "16x16x128", 32: "32x32x64"}[nonkdim]
    assert counts.instructions[f"v_mfma_scale_f32_{shape}_f8f6f4"] > 0


def scaled(values: Array, scale: Array) -> Array:
    factors: Array = np.repeat(np.ldexp(1.0, scale.astype(int) - E8M0_BIAS), BLOCK, 1)
    return values * factors


@pytest.mark.parametrize(("kind", "dtype"), [("fp32", np.float32), ("i32", np.int32), ("fp64", np.float64)])
def test_reductions(rng: np.random.Generator, kind: str, dtype: Any) -> None:
    rows, columns = 8, 512
    compiled = kernels.compile_kernel(
        kernels.reduce_rows,
        pointers(x=f"*{kind}", total=f"*{kind}", largest=f"*{kind}", where="*i32"),
        (("ROWS", rows), ("COLUMNS", columns)),
    )
    x = rng.integers(-(2**12), 2**12, (rows, columns)).astype(dtype)
    total, largest, where = np.zeros(rows, dtype), np.zeros(rows, dtype), np.zeros(rows, np.int32)
    execute(compiled, x, total, largest, where)
    np.testing.assert_array_equal(total, x.sum(1))
    np.testing.assert_array_equal(largest, x.max(1))
    np.testing.assert_array_equal(where, x.argmax(1))


def test_softmax(rng: np.random.Generator) -> None:
    rows, columns = 4, 1024
    compiled = kernels.compile_kernel(
        kernels.softmax, pointers(x="*fp32", y="*fp32"), (("ROWS", rows), ("COLUMNS", columns))
    )
    x, y = rng.normal(size=(rows, columns), scale=4).astype(np.float32), np.zeros((rows, columns), np.float32)
    execute(compiled, x, y, grid=(rows, 1, 1))
    e = np.exp(x.astype(np.float64) - x.max(1, keepdims=True))
    # the exponent x * log2(e) is rounded to float32, and what the rounding loses becomes a relative error of the result
    spread = (x.max() - x.min()) * np.log2(np.e)
    np.testing.assert_allclose(y, e / e.sum(1, keepdims=True), rtol=(spread + 4) * 2.0**-24)


def test_scans(rng: np.random.Generator) -> None:
    size = 1024
    compiled = kernels.compile_kernel(
        kernels.scan, pointers(x="*i32", total="*i32", running_max="*i32"), (("SIZE", size),)
    )
    x, total, largest = rng.integers(-1000, 1000, size, np.int32), np.zeros(size, np.int32), np.zeros(size, np.int32)
    execute(compiled, x, total, largest)
    np.testing.assert_array_equal(total, np.cumsum(x))
    np.testing.assert_array_equal(largest, np.maximum.accumulate(x))


def test_sort(rng: np.random.Generator) -> None:
    size = 512
    compiled = kernels.compile_kernel(kernels.sort, pointers(x="*i32", y="*i32"), (("SIZE", size),))
    x, y = rng.integers(-(2**31), 2**31 - 1, size, np.int32), np.zeros(size, np.int32)
    execute(compiled, x, y)
    np.testing.assert_array_equal(y, np.sort(x))


def test_atomics_of_several_programs(rng: np.random.Generator) -> None:
    size, bins, grid = 256, 16, (3, 2, 1)
    programs = grid[0] * grid[1]
    compiled = kernels.compile_kernel(
        kernels.count_and_sum,
        pointers(x="*i32", bins="*i32", total="*fp32", counter="*i32"),
        (("SIZE", size), ("BINS", bins)),
    )
    x = rng.integers(0, 1000, size * programs, np.int32)
    found, total, counter = np.zeros(bins, np.int32), np.zeros(1, np.float32), np.zeros(2, np.int32)
    execute(compiled, x, found, total, counter, grid=grid, seed=5)
    np.testing.assert_array_equal(found, np.bincount(x % bins, minlength=bins))
    assert total[0] == x.sum()
    assert counter.tolist() == [x.max(), programs]


def test_conversions(rng: np.random.Generator) -> None:
    size, grid = 1024, (2, 1, 1)
    compiled = kernels.compile_kernel(
        kernels.convert,
        pointers(x="*fp32", bf16="*bf16", fp8="*fp8e4nv", bf8="*fp8e5", f16="*fp16", back="*fp32"),
        (("SIZE", size),),
    )
    x = (rng.normal(size=size * grid[0]) * np.ldexp(1.0, rng.integers(-20, 8, size * grid[0]))).astype(np.float32)
    x = np.clip(x, -448, 448)
    bf16, f16 = np.zeros(x.size, ml_dtypes.bfloat16), np.zeros(x.size, np.float16)
    fp8, bf8 = np.zeros(x.size, ml_dtypes.float8_e4m3fn), np.zeros(x.size, ml_dtypes.float8_e5m2)
    back = np.zeros(x.size, np.float32)
    execute(compiled, x, bf16, fp8, bf8, f16, back, grid=grid)
    for found in (bf16, f16, fp8, bf8):
        np.testing.assert_array_equal(found, x.astype(found.dtype))
    np.testing.assert_array_equal(back, x.astype(fp8.dtype).astype(np.float32) + x.astype(bf8.dtype).astype(np.float32))


def test_integer_arithmetic(rng: np.random.Generator) -> None:
    size, grid = 512, (2, 1, 1)
    compiled = kernels.compile_kernel(
        kernels.integer_arithmetic,
        pointers(a="*u32", b="*u32", quotient="*u32", remainder="*u32", high="*u32", wide="*i64"),
        (("SIZE", size),),
    )
    a = rng.integers(0, 2**32, size * grid[0], np.uint32)
    b = np.maximum(
        rng.integers(0, 2**32, size * grid[0], np.uint32) >> rng.integers(0, 32, size * grid[0], np.uint32), 1
    )
    quotient, remainder, high = (np.zeros_like(a) for _ in range(3))
    wide = np.zeros(a.size, np.int64)
    execute(compiled, a, b, quotient, remainder, high, wide, grid=grid)
    np.testing.assert_array_equal(quotient, a // b)
    np.testing.assert_array_equal(remainder, a % b)
    np.testing.assert_array_equal(high, a.astype(np.uint64) * b >> np.uint64(32))
    # Triton's // truncates
    product = a.astype(np.int64) * b.astype(np.int64)
    np.testing.assert_array_equal(wide, np.sign(product) * (np.abs(product) // 7))


def test_norm_of_rows_of_odd_length(rng: np.random.Generator) -> None:
    rows, size, eps = 3, 333, 1e-6
    compiled = kernels.compile_kernel(
        kernels.norm, pointers(x="*bf16", weight="*fp32", y="*fp32", size="i32", eps="fp32"), (("BLOCK", 512),)
    )
    x = rng.normal(size=(rows, size)).astype(ml_dtypes.bfloat16)
    weight, y = rng.normal(size=size).astype(np.float32), np.zeros((rows, size), np.float32)
    execute(compiled, x, weight, y, size, eps, grid=(rows, 1, 1))
    exact = x.astype(np.float64)
    exact = exact / np.sqrt((exact**2).mean(1, keepdims=True) + eps) * weight
    np.testing.assert_allclose(y, exact, rtol=1e-5)


def test_double_precision(rng: np.random.Generator) -> None:
    size = 256
    compiled = kernels.compile_kernel(kernels.double_precision, pointers(x="*fp64", y="*fp64"), (("SIZE", size),))
    x, y = rng.normal(size=size), np.zeros(size + 1)
    execute(compiled, x, y)
    np.testing.assert_allclose(y[:size], np.sqrt(x * x + 1) / (x + 3), rtol=1e-15)
    np.testing.assert_allclose(y[size], x.sum(), rtol=1e-12)
