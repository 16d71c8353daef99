# mypy: ignore-errors
# Triton kernels are parsed by Triton, whose types are not Python's.
"""Kernels that another compiler (Triton) lowers to gfx950: its lowering, not ours, knows layouts and instructions."""

import functools
import warnings

import triton
import triton.language as tl
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

WAVE_LANES = 64


@functools.cache
def compile_kernel(kernel, signature, constants=(), num_warps=4, **options):
    """Compile for gfx950 without a GPU.

    Parameters
    ----------
    signature : tuple of (name, Triton type)
    constants : tuple of (name, value)

    Returns
    -------
    (code object, kernel name, block, dynamic LDS bytes)
    """
    values = dict(constants)
    types = {name: kind for name, kind in signature} | {name: "constexpr" for name in values}
    ordered = {name: types[name] for name in kernel.arg_names}
    with warnings.catch_warnings():
        # Triton 3.9 announces a change of its fusion default; it is set explicitly here
        warnings.simplefilter("ignore")
        built = triton.compile(
            ASTSource(kernel, signature=ordered, constexprs=values),
            target=GPUTarget("hip", "gfx950", WAVE_LANES),
            options={"num_warps": num_warps, "enable_fp_fusion": False, **options},
        )
    return built.asm["hsaco"], built.metadata.name, num_warps * WAVE_LANES, built.metadata.shared


@triton.jit
def dot(a, b, c, M: tl.constexpr, N: tl.constexpr, K: tl.constexpr, STEP: tl.constexpr):
    """c[M, N] = a[M, K] b[N, K]^T"""
    m, n, k = tl.arange(0, M), tl.arange(0, N), tl.arange(0, STEP)
    total = tl.zeros((M, N), tl.float32)
    for start in range(0, K, STEP):
        x = tl.load(a + m[:, None] * K + (start + k)[None, :])
        y = tl.load(b + n[None, :] * K + (start + k)[:, None])
        total = tl.dot(x, y, total)
    tl.store(c + m[:, None] * N + n[None, :], total)


@triton.jit
def dot_row_major(a, b, c, M: tl.constexpr, N: tl.constexpr, K: tl.constexpr):
    """c[M, N] = a[M, K] b[K, N]: b has to be transposed on its way to the matrix unit"""
    m, n, k = tl.arange(0, M), tl.arange(0, N), tl.arange(0, K)
    x = tl.load(a + m[:, None] * K + k[None, :])
    y = tl.load(b + k[:, None] * N + n[None, :])
    tl.store(c + m[:, None] * N + n[None, :], tl.dot(x, y).to(tl.float32))


@triton.jit
def dot_scaled(
    a, a_scale, b, b_scale, c, FORMAT_A: tl.constexpr, FORMAT_B: tl.constexpr, M: tl.constexpr, N: tl.constexpr, K:
    tl.constexpr, STEP: tl.constexpr, ):  # fmt: skip
    """c[M, N] = (a * scales)[M, K] (b * scales)[N, K]^T with an e8m0 scale for every 32 elements along K"""
    PACK_A: tl.constexpr = 2 if FORMAT_A == "e2m1" else 1
    PACK_B: tl.constexpr = 2 if FORMAT_B == "e2m1" else 1
    m, n = tl.arange(0, M), tl.arange(0, N)
    ka, kb, ks = tl.arange(0, STEP // PACK_A), tl.arange(0, STEP // PACK_B), tl.arange(0, STEP // 32)
    total = tl.zeros((M, N), tl.float32)
    for start in range(0, K, STEP):
        x = tl.load(a + m[:, None] * (K // PACK_A) + (start // PACK_A + ka)[None, :])
        y = tl.load(b + n[None, :] * (K // PACK_B) + (start // PACK_B + kb)[:, None])
        xs = tl.load(a_scale + m[:, None] * (K // 32) + (start // 32 + ks)[None, :])
        ys = tl.load(b_scale + n[:, None] * (K // 32) + (start // 32 + ks)[None, :])
        total = tl.dot_scaled(x, xs, FORMAT_A, y, ys, FORMAT_B, total)
    tl.store(c + m[:, None] * N + n[None, :], total)


@triton.jit
def reduce_rows(x, total, largest, where, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    r, c = tl.arange(0, ROWS), tl.arange(0, COLUMNS)
    values = tl.load(x + r[:, None] * COLUMNS + c[None, :])
    tl.store(total + r, tl.sum(values, 1))
    tl.store(largest + r, tl.max(values, 1))
    tl.store(where + r, tl.argmax(values, 1))


@triton.jit
def softmax(x, y, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    row = tl.program_id(0)
    c = tl.arange(0, COLUMNS)
    values = tl.load(x + row * COLUMNS + c)
    e = tl.exp(values - tl.max(values, 0))
    tl.store(y + row * COLUMNS + c, e / tl.sum(e, 0))


@triton.jit
def scan(x, total, running_max, SIZE: tl.constexpr):
    i = tl.arange(0, SIZE)
    values = tl.load(x + i)
    tl.store(total + i, tl.cumsum(values, 0))
    tl.store(running_max + i, tl.associative_scan(values, 0, _larger))


@triton.jit
def _larger(a, b):
    return tl.maximum(a, b)


@triton.jit
def sort(x, y, SIZE: tl.constexpr):
    i = tl.arange(0, SIZE)
    tl.store(y + i, tl.sort(tl.load(x + i)))


@triton.jit
def count_and_sum(x, bins, total, counter, SIZE: tl.constexpr, BINS: tl.constexpr):
    """Atomics from several programs: integer counts, a float sum, the largest value, and a ticket."""
    program = tl.program_id(0) + tl.num_programs(0) * tl.program_id(1)
    i = program * SIZE + tl.arange(0, SIZE)
    values = tl.load(x + i)
    tl.atomic_add(bins + values % BINS, 1)
    tl.atomic_add(total, tl.sum(values.to(tl.float32), 0))
    tl.atomic_max(counter, tl.max(values, 0))
    tl.atomic_add(counter + 1, 1)


@triton.jit
def convert(x, bf16, fp8, bf8, f16, back, SIZE: tl.constexpr):
    i = tl.program_id(0) * SIZE + tl.arange(0, SIZE)
    values = tl.load(x + i)
    tl.store(bf16 + i, values.to(tl.bfloat16))
    tl.store(f16 + i, values.to(tl.float16))
    tl.store(fp8 + i, values.to(tl.float8e4nv))
    tl.store(bf8 + i, values.to(tl.float8e5))
    tl.store(back + i, values.to(tl.float8e4nv).to(tl.float32) + values.to(tl.float8e5).to(tl.float32))


@triton.jit
def integer_arithmetic(a, b, quotient, remainder, high, wide, SIZE: tl.constexpr):
    i = tl.program_id(0) * SIZE + tl.arange(0, SIZE)
    x, y = tl.load(a + i), tl.load(b + i)
    tl.store(quotient + i, x // y)
    tl.store(remainder + i, x % y)
    tl.store(high + i, tl.umulhi(x, y))
    tl.store(wide + i, x.to(tl.int64) * y.to(tl.int64) // 7)


@triton.jit
def norm(x, weight, y, size, eps, BLOCK: tl.constexpr):
    """RMS norm of a row whose length is not a power of two: masked loads and stores."""
    row = tl.program_id(0)
    c = tl.arange(0, BLOCK)
    inside = c < size
    values = tl.load(x + row * size + c, mask=inside, other=0.0).to(tl.float32)
    scale = tl.rsqrt(tl.sum(values * values, 0) / size + eps)
    tl.store(y + row * size + c, values * scale * tl.load(weight + c, mask=inside, other=0.0), mask=inside)


@triton.jit
def double_precision(x, y, SIZE: tl.constexpr):
    i = tl.arange(0, SIZE)
    values = tl.load(x + i)
    tl.store(y + i, tl.sqrt(values * values + 1.0) / (values + 3.0))
    tl.store(y + SIZE, tl.sum(values, 0))
