"""Conversions to and from narrow formats against ml_dtypes, and the approximate functions."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from .harness import hip_module, run_kernel

pytestmark = pytest.mark.isa

THREADS = 256


def test_narrow_formats_by_every_code(rng: np.random.Generator) -> None:
    codes = np.arange(256, dtype=np.uint8)
    fp8, bf8, pair = (np.zeros(256, np.float32) for _ in range(3))
    run_kernel(hip_module("convert"), "widen", codes, fp8, bf8, pair)
    np.testing.assert_array_equal(fp8, codes.view(ml_dtypes.float8_e4m3fn).astype(np.float32))
    np.testing.assert_array_equal(bf8, codes.view(ml_dtypes.float8_e5m2).astype(np.float32))
    np.testing.assert_array_equal(pair, fp8)


def test_rounding_to_narrow_formats(rng: np.random.Generator) -> None:
    """Every code of each format, the values half-way between neighbours, and what is just beside those."""
    chunks = []
    for dtype in (ml_dtypes.float8_e4m3fn, ml_dtypes.float8_e5m2):
        values = np.arange(256, dtype=np.uint8).view(dtype).astype(np.float32)
        values = np.unique(values[np.isfinite(values)])
        middle = (values[1:] + values[:-1]) / 2
        chunks += [values, middle, np.nextafter(middle, np.float32(np.inf)), np.nextafter(middle, np.float32(-np.inf))]
    ordinary = rng.normal(size=512) * np.ldexp(1.0, rng.integers(-140, 120, 512))
    chunks += [ordinary.astype(np.float32), np.array([np.inf, -np.inf, np.nan, 500, 1e6, -0.0, 3e38], np.float32)]
    x = np.concatenate(chunks)
    x = np.concatenate([x, np.zeros(-len(x) % THREADS, np.float32)])
    bf16, fp8, bf8 = (
        np.zeros(x.size, ml_dtypes.bfloat16),
        np.zeros(x.size, ml_dtypes.float8_e4m3fn),
        np.zeros(x.size, ml_dtypes.float8_e5m2),
    )
    run_kernel(hip_module("convert"), "narrow", x, bf16, fp8, bf8, grid=(x.size // THREADS, 1, 1))
    for found in (bf16, fp8, bf8):
        np.testing.assert_array_equal(found.astype(np.float32), x.astype(found.dtype).astype(np.float32))


def test_scaled_fp4(rng: np.random.Generator) -> None:
    """Division by the power of two in the scale's exponent, its mantissa and sign ignored; and back."""
    exponent = rng.integers(-20, 20, THREADS)
    scale = (np.ldexp(1.0, exponent) * rng.choice([1.0, 1.5, -1.25], THREADS)).astype(np.float32)
    grid = np.arange(-32, 33) / 4
    x = np.where(rng.random((THREADS, 8)) < 0.5, rng.choice(grid, (THREADS, 8)), rng.normal(size=(THREADS, 8), scale=3))
    x = np.ldexp(x, exponent[:, None]).astype(np.float32)
    packed, back = np.zeros(THREADS, np.uint32), np.zeros((THREADS, 4), np.float32)
    run_kernel(hip_module("convert"), "fp4", x, scale, packed, back)
    expected = np.ldexp(x, -exponent[:, None]).astype(ml_dtypes.float4_e2m1fn)
    codes = packed[:, None] >> 4 * np.arange(8, dtype=np.uint32) & 15
    np.testing.assert_array_equal(codes, expected.view(np.uint8))
    values = np.ldexp(expected.astype(np.float32), exponent[:, None])
    np.testing.assert_array_equal(back, values[:, [0, 1, 6, 7]])


def test_scaled_fp4_of_bf16(rng: np.random.Generator) -> None:
    exponent = rng.integers(-20, 20, THREADS)
    x = np.ldexp(rng.normal(size=(THREADS, 4), scale=3), exponent[:, None]).astype(ml_dtypes.bfloat16)
    scale, packed, back = np.ldexp(1.0, exponent).astype(np.float32), *np.zeros((2, THREADS), np.uint32)
    run_kernel(hip_module("convert"), "fp4_bf16", x.view(np.uint32), scale, packed, back)
    expected = np.ldexp(x.astype(np.float32), -exponent[:, None]).astype(ml_dtypes.float4_e2m1fn)
    codes = packed[:, None] >> np.array([0, 4, 16, 20], np.uint32) & 15
    np.testing.assert_array_equal(codes, expected.view(np.uint8))
    values = np.ldexp(expected.astype(np.float32), exponent[:, None])[:, 2:]
    np.testing.assert_array_equal(back.view(ml_dtypes.bfloat16).reshape(-1, 2).astype(np.float32), values)


def test_functions(rng: np.random.Generator) -> None:
    x = (rng.normal(size=THREADS) * np.ldexp(1.0, rng.integers(-30, 6, THREADS))).astype(np.float32)
    x[:4] = [0.0, np.inf, 1.0, -4.0]
    out = np.zeros((THREADS, 8), np.float32)
    run_kernel(hip_module("convert"), "functions", x, out)
    wide, magnitude = x.astype(np.float64), np.abs(x.astype(np.float64))
    with np.errstate(divide="ignore", invalid="ignore"):
        for column, exact in enumerate(
            [np.exp2(wide), np.log2(magnitude), 1 / wide, 1 / np.sqrt(magnitude), np.sqrt(magnitude)]
        ):
            np.testing.assert_allclose(out[:, column], exact, rtol=2.0**-23, atol=2.0**-126)
        np.testing.assert_array_equal(out[:, 6], np.where(np.isinf(x), np.nan, x - np.floor(x)))
    np.testing.assert_array_equal(out[:, 5], np.clip(x, -1.5, 2.5))
    np.testing.assert_array_equal(out[:, 7], np.minimum(x, np.maximum(x[np.arange(THREADS) ^ 1], 0.25)))
