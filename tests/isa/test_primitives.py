"""Every primitive of hip/include/mono on both of its implementations, and against numpy.

kernels/primitives.hip is compiled for gfx950 and runs on the interpreter, and for the host and runs on the host device,
through the same program and launcher.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import numpy.typing as npt
import pytest
import torch

from sgl_amd_mono.build.compile import Artifact, build
from sgl_amd_mono.device.base import WORKGROUP_THREADS
from sgl_amd_mono.device.host import HostDevice
from sgl_amd_mono.program import Entry, Program, Slicing
from tests.kernel_sources import with_change, with_kernels

from .device import IsaDevice
from .harness import KERNELS

pytestmark = [pytest.mark.isa, pytest.mark.host]

Array = npt.NDArray[Any]

KERNEL = "primitives"
WORKGROUPS = 3
THREADS = WORKGROUPS * WORKGROUP_THREADS
LANES = 64
E8M0_BIAS = 127
# lanes hold these between 32-bit floats: one unit in the last place
ULP = 2.0**-23

Devices = Callable[[], tuple[HostDevice, IsaDevice]]


@pytest.fixture(scope="module")
def artifacts(tmp_path_factory: pytest.TempPathFactory) -> tuple[Artifact, Artifact]:
    """The kernel for the host and for gfx950."""
    sources = with_kernels(tmp_path_factory.mktemp("hip"), KERNELS / f"{KERNEL}.hip")
    return build(KERNEL, "host", sources=sources), build(KERNEL, "gfx950", sources=sources)


def devices_of(host: Artifact, gfx950: Artifact) -> Devices:
    def make() -> tuple[HostDevice, IsaDevice]:
        return (
            HostDevice(KERNEL, workgroups=WORKGROUPS, artifact=host),
            IsaDevice(gfx950, f"{KERNEL}_step", workgroups=WORKGROUPS, seed=1),
        )

    return make


@pytest.fixture(scope="module")
def devices(artifacts: tuple[Artifact, Artifact]) -> Devices:
    return devices_of(*artifacts)


def both(
    devices: Devices, phase: str, arguments: Mapping[str, Array | int], *outputs: str
) -> list[tuple[Array, Array]]:
    """Run one phase on both devices; the named outputs of (host device, interpreter)."""
    found = []
    for device in devices():
        own = {k: torch.from_numpy(v.copy()) if isinstance(v, np.ndarray) else v for k, v in arguments.items()}
        program = Program(device, [Entry(phase=phase, layer=0, args=own)])
        if isinstance(device, IsaDevice):
            device.watch(program)
        program.run(Slicing.STEP)
        found.append([own[name].numpy() for name in outputs])  # type: ignore[union-attr]
    return list(zip(*found, strict=True))


def values(rng: np.random.Generator) -> Array:
    """Float32 [THREADS] of all magnitudes, with infinities, NaN, zeros, denormals and powers of two."""
    x = (rng.normal(size=THREADS) * np.ldexp(1.0, rng.integers(-60, 60, THREADS))).astype(np.float32)
    special = [
        0.0,
        -0.0,
        np.inf,
        -np.inf,
        np.nan,
        1.0,
        -2.0,
        448.0,
        464.0,
        465.0,
        6.0,
        5.0,
        2.5,
        1e-40,
        3.4e38,
        2.0**-9,
    ]
    x[: len(special)] = special
    return x


def test_every_instruction_is_known(devices: Devices) -> None:
    assert devices()[1].module.unknown(f"{KERNEL}_step") == []


def test_wave_operations(devices: Devices, rng: np.random.Generator) -> None:
    x = rng.normal(size=THREADS).astype(np.float32)
    source = rng.integers(0, LANES, THREADS, np.uint32)
    arguments = {
        "x": x,
        "source": source,
        "floats": np.zeros((THREADS, 9), np.float32),
        "masks": np.zeros((THREADS, 2), np.uint64),
    }
    (host_floats, floats), (host_masks, masks) = both(devices, "wave_operations", arguments, "floats", "masks")
    # the reductions add in the same order on both
    np.testing.assert_array_equal(floats.view(np.uint32), host_floats.view(np.uint32))
    np.testing.assert_array_equal(masks, host_masks)
    waves, lane = x.reshape(-1, LANES), np.arange(LANES)
    np.testing.assert_array_equal(
        floats[:, 0], np.take_along_axis(waves, source.reshape(-1, LANES).astype(int), 1).ravel()
    )
    np.testing.assert_array_equal(floats[:, 1], waves[:, lane ^ 21].ravel())
    for column, group in ((2, 64), (3, 16), (4, 2), (8, 8)):
        total = np.repeat(x.reshape(-1, group).astype(np.float64).sum(1), group)
        np.testing.assert_allclose(floats[:, column], total, atol=group * ULP * 4)
    for column, group in ((5, 64), (6, 32), (7, 4)):
        np.testing.assert_array_equal(floats[:, column], np.repeat(x.reshape(-1, group).max(1), group))
    ballots = [sum(1 << int(i) for i in np.flatnonzero(wave > 0)) for wave in waves]
    assert masks[:, 0].tolist() == [ballot for ballot in ballots for _ in range(LANES)]
    by_wave = source.reshape(-1, LANES).astype(int)
    np.testing.assert_array_equal(masks[:, 1], np.take_along_axis(by_wave, by_wave, 1).ravel())


def test_conversions(devices: Devices, rng: np.random.Generator) -> None:
    x, codes = values(rng), rng.integers(0, 2**32, THREADS, np.uint32)
    codes[:256] = np.arange(256)
    arguments = {"x": x, "codes": codes, "results": np.zeros((THREADS, 12), np.uint32)}
    ((host, found),) = both(devices, "conversions", arguments, "results")
    names = [
        "to_bf16",
        "pack_bf16",
        "round_to_bf16",
        "to_f32",
        "e8m0_to_f32",
        "e8m0_ceil",
        "e4m3_to_f32",
        "f32_to_e4m3",
    ]
    names += ["e2m1_to_f32", "f32_to_e2m1", "pack_e2m1", "fma"]
    for column, name in enumerate(names):
        differs = np.flatnonzero(host[:, column] != found[:, column])
        floats = found[:, column].view(np.float32), host[:, column].view(np.float32)
        # the payload of a NaN is not specified
        if name in ("round_to_bf16", "to_f32", "e4m3_to_f32", "fma"):
            differs = differs[~(np.isnan(floats[0]) & np.isnan(floats[1]))[differs]]
        assert not len(differs), f"{name}({x[differs[0]]}, {codes[differs[0]]:#x}): {found[differs[0], column]:#x}"
    for column, dtype, right in (
        (0, ml_dtypes.bfloat16, x.astype(ml_dtypes.bfloat16)),
        # ours saturates, the OCP conversion of ml_dtypes gives NaN
        (7, ml_dtypes.float8_e4m3fn, np.clip(x, -448, 448).astype(ml_dtypes.float8_e4m3fn)),
    ):
        codes_found = found[:, column].astype(f"u{np.dtype(dtype).itemsize}")
        np.testing.assert_array_equal(codes_found.view(dtype).astype(np.float32), right.astype(np.float32))
    e4m3 = codes.astype(np.uint8).view(ml_dtypes.float8_e4m3fn).astype(np.float32)
    np.testing.assert_array_equal(found[:, 6].view(np.float32), e4m3)
    number = ~np.isnan(x)
    e2m1 = x[number].astype(ml_dtypes.float4_e2m1fn).view(np.uint8)
    np.testing.assert_array_equal(found[number, 9], e2m1)


def test_functions(devices: Devices, rng: np.random.Generator) -> None:
    """Within the units in the last place that hip/include/mono/math.h promises; on the interpreter no worse than 1."""
    x = (rng.normal(size=THREADS) * np.ldexp(1.0, rng.integers(-12, 6, THREADS))).astype(np.float32)
    ((host, found),) = both(devices, "functions", {"x": x, "results": np.zeros((THREADS, 7), np.float32)}, "results")
    wide = x.astype(np.float64)
    with np.errstate(over="ignore"):
        sigmoid = 1 / (1 + np.exp(-wide))
        exact = np.stack(
            [
                np.exp2(wide),
                np.log2(np.abs(wide)),
                1 / wide,
                np.abs(wide) ** -0.5,
                np.exp(wide),
                sigmoid,
                wide * sigmoid,
            ],
            1,
        )
    # an error of x * log2(e) becomes a relative error of e^x
    ulps = np.stack([np.ones_like(wide)] * 4 + [2 + 2 * np.abs(wide)] * 3, 1)
    in_range = (np.abs(exact) < 3e38) & (np.abs(exact) > 2.0**-126)
    for name, result in (("host", host), ("gfx950", found)):
        error = np.abs(result - exact) / np.maximum(np.abs(exact), 2.0**-126) / ULP
        assert (error <= ulps)[in_range].all(), f"{name}: {np.max((error / ulps)[in_range], axis=0)}"


def test_matrix_products(devices: Devices, rng: np.random.Generator) -> None:
    """Bitwise where the sums are exact."""
    waves, depth, scaled_depth = 5, 64, 128
    a, b = (rng.integers(-8, 9, (waves, 16, depth)).astype(ml_dtypes.bfloat16) for _ in "ab")
    fp4 = [rng.integers(0, 16, (waves, 16, scaled_depth), np.uint8) for _ in "ab"]
    fp8 = [rng.integers(-8, 9, (waves, 16, scaled_depth)).astype(ml_dtypes.float8_e4m3fn) for _ in "ab"]
    scales = [rng.integers(E8M0_BIAS - 2, E8M0_BIAS + 3, (waves, 16, 4), np.uint8) for _ in "ab"]
    c = rng.integers(-100, 100, (waves, 16, 16)).astype(np.float32)
    packed = [np.ascontiguousarray(codes[..., 0::2] | codes[..., 1::2] << 4) for codes in fp4]
    arguments: dict[str, Array | int] = {
        "a": a.view(np.uint16),
        "b": b.view(np.uint16),
        "a_fp4": packed[0],
        "b_fp4": packed[1],
        "a_fp8": fp8[0].view(np.uint8),
        "b_fp8": fp8[1].view(np.uint8),
        "a_scale": scales[0],
        "b_scale": scales[1],
        "c": c,
        "d": np.zeros((3, waves, 16, 16), np.float32),
        "waves": waves,
    }
    ((host, found),) = both(devices, "matrix_products", arguments, "d")
    factors = [np.repeat(np.ldexp(1.0, s.astype(int) - E8M0_BIAS), 32, -1) for s in scales]

    def product(x: Array, y: Array) -> Array:
        result: Array = c + x.astype(np.float64) @ y.astype(np.float64).transpose(0, 2, 1)
        return result

    fp4_values = [codes.view(ml_dtypes.float4_e2m1fn).astype(np.float64) for codes in fp4]
    exact = [
        product(a, b),
        product(fp4_values[0] * factors[0], fp4_values[1] * factors[1]),
        product(fp8[0].astype(np.float64) * factors[0], fp8[1].astype(np.float64) * factors[1]),
    ]
    np.testing.assert_array_equal(found, exact)
    np.testing.assert_array_equal(host, exact)


def test_memory_accesses(devices: Devices, rng: np.random.Generator) -> None:
    x = rng.integers(0, 2**32, (THREADS, 4), np.uint32)
    arguments = {
        "x": x,
        "copied": np.zeros_like(x),
        "streamed": np.zeros_like(x),
        "published": np.zeros(THREADS, np.uint32),
        "words": np.zeros(4, np.uint32),
    }
    results = both(devices, "memory_accesses", arguments, "copied", "streamed", "published", "words")
    mirrored = x[:, 0].reshape(WORKGROUPS, WORKGROUP_THREADS)[:, ::-1]
    expected = [
        x + 1,
        x ^ 5,
        mirrored[:, np.arange(WORKGROUP_THREADS) ^ 1].ravel(),
        [WORKGROUPS * WORKGROUP_THREADS * (WORKGROUP_THREADS - 1) // 2, 7, THREADS - 1, 0],
    ]
    for pair, right in zip(results, expected, strict=True):
        for found in pair:
            np.testing.assert_array_equal(found, right)


@pytest.mark.parametrize("seed", range(3))
def test_grid_barrier(devices: Devices, seed: int) -> None:
    rounds = 6
    expected = 0
    for r in range(1, rounds, 2):
        for w in range(WORKGROUPS):
            expected = (expected * 3 + r + w) % 2**32
    for device in devices():
        device.seed = seed
        parts, sums = torch.zeros(WORKGROUPS, dtype=torch.int32), torch.zeros(WORKGROUPS, dtype=torch.int32)
        entries = [
            Entry(phase="grid_exchange", layer=r, args={"parts": parts, "sums": sums, "rounds": r})
            for r in range(rounds)
        ]
        program = Program(device, entries)
        if isinstance(device, IsaDevice):
            device.watch(program)
        program.run(Slicing.STEP)
        assert sums.numpy().view(np.uint32).tolist() == [expected] * WORKGROUPS


WAVE, MFMA, CALLS = "include/mono/wave.h", "include/mono/mfma.h", f"kernels/{KERNEL}.hip"
A_SCALE = "const u8 a_scale = args.a_scale.load(matrix_row * 4 + "
MUTANTS = {
    "a sum of 32 lanes": (
        WAVE,
        "if constexpr (kLanes > 32) value = butterfly<32>(value, combine);",
        "",
        test_wave_operations,
    ),
    "a read within 32 lanes": (
        WAVE,
        "from_lane(f32 value, u32 source) {",
        "from_lane(f32 value, u32 source) {\n  source %= 32;",
        test_wave_operations,
    ),
    "a ballot of 32 lanes": (
        WAVE,
        "return __builtin_amdgcn_ballot_w64(predicate);",
        "return static_cast<u32>(__builtin_amdgcn_ballot_w64(predicate));",
        test_wave_operations,
    ),
    "swapped operands": (
        MFMA,
        "(bits_of<Operand>(a[s]), bits_of<Operand>(b[s]),",
        "(bits_of<Operand>(b[s]), bits_of<Operand>(a[s]),",
        test_matrix_products,
    ),
    "swapped scaled operands": (MFMA, "f8f6f4(a.data, b.data,", "f8f6f4(b.data, a.data,", test_matrix_products),
    "a swapped layout": (
        CALLS,
        "a[s] = args.a.load_vec<8>(matrix_row * kSteps * kMfmaDepth + s * kMfmaDepth + 8 * group);",
        "a[s] = args.a.load_vec<8>(matrix_row * kSteps * kMfmaDepth + s * kMfmaDepth + 8 * (group ^ 1));",
        test_matrix_products,
    ),
    "a scale of the next block": (CALLS, f"{A_SCALE}group)", f"{A_SCALE}(group + 1) % 4)", test_matrix_products),
}


@pytest.mark.parametrize(("file", "old", "new", "test"), MUTANTS.values(), ids=MUTANTS)
def test_a_mutant_fails_its_test(
    tmp_path: Path,
    artifacts: tuple[Artifact, Artifact],
    rng: np.random.Generator,
    file: str,
    old: str,
    new: str,
    test: Callable[[Devices, np.random.Generator], None],
) -> None:
    mutant = build(KERNEL, "gfx950", sources=with_change(tmp_path / "hip", file, old, new, KERNELS / f"{KERNEL}.hip"))
    with pytest.raises(AssertionError, match="not equal"):
        test(devices_of(artifacts[0], mutant), rng)
