"""Formats against their definitions: bit fields of the OCP specs, torch's casts, aiter's closed-form byte indices.

Every check is a function of the implementation, and the `broken` tests hand it a subtly wrong one and see it fail.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from sgl_amd_mono import quant
from sgl_amd_mono.errors import LayoutError

Codec = Callable[[Tensor], Tensor]


def e2m1_value(code: int) -> float:
    """OCP MX 1.0, section 5.3.3: sign, two exponent bits of bias 1, one mantissa bit; exponent 0 is subnormal."""
    sign, exponent, mantissa = -1.0 if code & 8 else 1.0, (code >> 1) & 3, code & 1
    return sign * (mantissa * 0.5 if exponent == 0 else 2.0 ** (exponent - 1) * (1 + mantissa / 2))


def nearest_even_e2m1(x: float) -> int:
    """By trying every code of x's sign: the nearest, the even code of two."""
    codes = range(8, 16) if math.copysign(1, x) < 0 else range(8)
    return min(codes, key=lambda code: (abs(e2m1_value(code) - x), code & 1))


def check_encode_e2m1(encode: Codec) -> None:
    # every eighth of a step, so all ties are met, and past the largest value
    grid = [sign * i / 16 for i in range(16 * 9) for sign in (1.0, -1.0)]
    expected = [nearest_even_e2m1(x) for x in grid]
    assert encode(torch.tensor(grid, dtype=torch.float64)).tolist() == expected


def check_round_e4m3(rounded: Codec) -> None:
    values = torch.arange(256, dtype=torch.uint8).view(torch.float8_e4m3fn).float()
    finite = values[values.isfinite()].sort().values
    ties = (finite[1:] + finite[:-1]) / 2
    random = torch.randn(4096, generator=torch.Generator().manual_seed(0)) * 100
    x = torch.cat([finite, ties, random[random.abs() <= 448], finite * (1 + 2**-12)]).clamp(-448, 448)
    torch.testing.assert_close(rounded(x.double()), x.to(torch.float8_e4m3fn).double(), rtol=0, atol=0)


def check_mxfp4_scale(scale: Codec) -> None:
    amax = torch.tensor([2.0**e * m for e in range(-20, 20) for m in (1.0, 1.25, 1.5, 1.50390625, 1.75, 1.99)])
    sixth = torch.tensor(1 / 6, dtype=torch.float32)
    significand, exponent = zip(*(math.frexp(float(a * sixth)) for a in amax), strict=True)
    expected = [127 + e - (s == 0.5) for s, e in zip(significand, exponent, strict=True)]
    assert scale(amax).tolist() == expected


def check_shuffle_weight(shuffle: Codec) -> None:
    """Byte (n, k) of the weight at the index that spec 2.3 gives in closed form."""
    n_rows, n_bytes = 48, 96
    weight = torch.randint(0, 256, (n_rows, n_bytes), dtype=torch.uint8, generator=torch.Generator().manual_seed(1))
    flat = shuffle(weight).flatten()
    for n in range(n_rows):
        for k in range(n_bytes):
            at = ((n // 16) * (n_bytes // 32) + k // 32) * 512 + ((k // 16) % 2) * 256 + (n % 16) * 16 + k % 16
            assert flat[at] == weight[n, k], (n, k)


def check_shuffle_e8m0(shuffle: Codec) -> None:
    rows, columns = 64, 24
    # a ramp: neighbouring scales of real weights are often equal and would hide a swap
    scales = (torch.arange(rows * columns) % 251).to(torch.uint8).view(rows, columns)
    flat = shuffle(scales).flatten()
    for x in range(rows):
        for y in range(columns):
            at = (
                (x // 32 * columns) * 32
                + (y // 8) * 256
                + (y % 4) * 64
                + (x % 16) * 4
                + (y % 8) // 4 * 2
                + (x % 32) // 16
            )
            assert flat[at] == scales[x, y], (x, y)


def test_decode_e2m1_is_the_ocp_table() -> None:
    codes = torch.arange(16, dtype=torch.uint8)
    assert quant.decode_e2m1(codes).tolist() == [e2m1_value(code) for code in range(16)]


def test_encode_e2m1_is_nearest_even_over_all_codes() -> None:
    check_encode_e2m1(quant.encode_e2m1)


def test_encode_e2m1_refuses_nan() -> None:
    with pytest.raises(LayoutError, match="no NaN"):
        quant.encode_e2m1(torch.tensor([1.0, math.nan]))


def test_pack_puts_the_even_k_in_the_low_nibble() -> None:
    codes = torch.tensor([[0x1, 0x2, 0xF, 0x0]], dtype=torch.uint8)
    packed = quant.pack_e2m1(codes)
    assert packed.tolist() == [[0x21, 0x0F]]
    assert torch.equal(quant.unpack_e2m1(packed), codes)


def test_decode_e8m0_is_torchs() -> None:
    scales = torch.arange(256, dtype=torch.uint8)
    expected = scales.view(torch.float8_e8m0fnu).to(torch.float32).double()
    torch.testing.assert_close(quant.decode_e8m0(scales), expected, rtol=0, atol=0, equal_nan=True)


def test_round_e4m3_is_torchs_cast() -> None:
    check_round_e4m3(quant.round_e4m3)


def test_round_e4m3_saturates() -> None:
    assert quant.round_e4m3(torch.tensor([1e9, -465.0, math.inf])).tolist() == [448.0, -448.0, 448.0]


def test_mxfp4_scale_rounds_up() -> None:
    check_mxfp4_scale(quant.mxfp4_scale)


def test_mxfp4_scale_of_zero_and_of_float32_extremes() -> None:
    assert quant.mxfp4_scale(torch.tensor([0.0, 2.0**-149, 3.4e38])).tolist() == [0, 0, 253]


@given(st.lists(st.floats(-(2.0**100), 2.0**100, width=32), min_size=32, max_size=32))
def test_quantize_mxfp4_is_nearest_even_at_its_scale(values: list[float]) -> None:
    packed, scales = quant.quantize_mxfp4(torch.tensor(values, dtype=torch.float64))
    scale = 2.0 ** (int(scales) - 127)
    codes = quant.unpack_e2m1(packed).tolist()
    assert codes == [nearest_even_e2m1(value / scale) for value in values]
    decoded = quant.dequantize_mxfp4(packed, scales).tolist()
    assert decoded == [e2m1_value(code) * scale for code in codes]


def test_dequantize_mxfp4_uses_each_groups_own_scale() -> None:
    scales = torch.arange(100, 108, dtype=torch.uint8)
    packed = quant.pack_e2m1(torch.full((8 * 32,), 2, dtype=torch.uint8))
    expected = [2.0 ** (s - 127) for s in scales.tolist() for _ in range(32)]
    assert quant.dequantize_mxfp4(packed, scales).tolist() == expected


def test_quantize_mxfp4_refuses_a_broken_group() -> None:
    with pytest.raises(LayoutError, match="K = 33"):
        quant.quantize_mxfp4(torch.zeros(2, 33))


def test_fp8_rows_are_torchs_cast_at_the_groups_scale() -> None:
    x = torch.randn(3, 256, generator=torch.Generator().manual_seed(2)) * torch.tensor([1e-3, 1.0, 1e3])[:, None]
    values, scales = quant.quantize_fp8_rows(x)
    groups = x.view(3, 2, 128)
    expected_scales = groups.abs().amax(-1) / 448
    expected = (groups / expected_scales[..., None]).to(torch.float8_e4m3fn).double()
    assert torch.equal(scales, expected_scales)
    assert torch.equal(values.view(3, 2, 128), expected)
    assert torch.equal(quant.dequantize_fp8_rows(values, scales), (expected * scales.double()[..., None]).view(3, 256))


def test_fp8_rows_of_zeros_are_zeros() -> None:
    values, scales = quant.quantize_fp8_rows(torch.zeros(1, 128))
    assert not values.any()
    assert scales.isfinite().all()


@pytest.mark.parametrize("shape", [(256, 128), (200, 300)])
def test_fp8_blocks_are_torchs_cast_at_the_blocks_scale(shape: tuple[int, int]) -> None:
    # each block of another magnitude, so a scale taken from a neighbour shows
    n, k = shape
    ramp = 2.0 ** ((torch.arange(n)[:, None] // 128) * 3 + torch.arange(k)[None, :] // 128)
    weight = torch.randn(shape, generator=torch.Generator().manual_seed(3)) * ramp
    values, scales = quant.quantize_fp8_block(weight)
    for row in range(0, n, 128):
        for column in range(0, k, 128):
            block = (slice(row, row + 128), slice(column, column + 128))
            scale = weight[block].abs().max() / 448
            assert scales[row // 128, column // 128] == scale
            expected = (weight[block] / scale).to(torch.float8_e4m3fn)
            assert torch.equal(values[block].view(torch.uint8), expected.view(torch.uint8))
            assert torch.equal(quant.dequantize_fp8_block(values, scales)[block], expected.double() * scale.double())


def test_fp8_ue8m0_scale_is_the_next_power_of_two() -> None:
    x = torch.tensor([[448.0, 1.0], [449.0, 1.0], [224.0, 0.3], [1e-9, 0.0]], dtype=torch.float64)
    values, scales = quant.quantize_fp8_ue8m0(x)
    # the last group's amax is raised to 1e-4
    assert scales.tolist() == [1.0, 2.0, 0.5, 2.0 ** math.ceil(math.log2(1e-4 / 448))]
    expected = (x / scales[:, None]).float().to(torch.float8_e4m3fn).double()
    assert torch.equal(values, expected)


@given(st.floats(width=32, allow_nan=False))
def test_round_bf16_is_torchs_cast_of_float32(value: float) -> None:
    expected = torch.tensor(value, dtype=torch.float32).to(torch.bfloat16).double()
    assert torch.equal(quant.round_bf16(torch.tensor(value, dtype=torch.float64)), expected)


def test_round_bf16_rounds_once() -> None:
    # just above a tie: float32 drops the last bit, and torch's cast from float64 then rounds the tie to even
    x = torch.tensor(1 + 2**-8 + 2**-40, dtype=torch.float64)
    assert quant.round_bf16(x).item() == 1 + 2**-7
    assert x.to(torch.bfloat16).item() == 1.0


def test_shuffle_weight_is_aiters_closed_form() -> None:
    check_shuffle_weight(quant.shuffle_weight)


def test_shuffle_e8m0_is_aiters_closed_form() -> None:
    check_shuffle_e8m0(quant.shuffle_e8m0)


def test_shuffles_of_experts_are_shuffles_of_each() -> None:
    weight = torch.randint(0, 256, (3, 32, 64), dtype=torch.uint8, generator=torch.Generator().manual_seed(4))
    assert torch.equal(quant.shuffle_weight(weight), torch.stack([quant.shuffle_weight(expert) for expert in weight]))


def test_unshuffles_invert() -> None:
    weight = torch.randint(0, 256, (2, 32, 96), dtype=torch.uint8, generator=torch.Generator().manual_seed(5))
    assert torch.equal(quant.unshuffle_weight(quant.shuffle_weight(weight)), weight)
    assert torch.equal(quant.unshuffle_e8m0(quant.shuffle_e8m0(weight[0, :, :32])), weight[0, :, :32])


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: quant.shuffle_weight(torch.zeros(24, 64, dtype=torch.uint8)), "24 x 64"),
        (lambda: quant.unshuffle_weight(torch.zeros(32, 40, dtype=torch.uint8)), "32 x 40"),
        (lambda: quant.shuffle_e8m0(torch.zeros(32, 12, dtype=torch.uint8)), "32 x 12"),
        (lambda: quant.unshuffle_e8m0(torch.zeros(16, 8, dtype=torch.uint8)), "16 x 8"),
        (lambda: quant.shuffle_weight(torch.zeros(32, 64, dtype=torch.bfloat16)), "bfloat16"),
    ],
)
def test_shuffles_refuse_what_they_cannot_move(call: Callable[[], Tensor], message: str) -> None:
    with pytest.raises(LayoutError, match=message):
        call()


def round_half_away(x: Tensor) -> Tensor:
    return quant.encode_e2m1(x * (1 + 1e-9))


def truncate_e4m3(x: Tensor) -> Tensor:
    return quant.round_e4m3(x * (1 - 2**-5))


def scale_by_exponent(amax: Tensor) -> Tensor:
    return torch.floor(torch.log2(amax)).to(torch.int32).sub(2).add(127).to(torch.uint8)


def swap_halves(weight: Tensor) -> Tensor:
    n, k = weight.shape
    return quant.shuffle_weight(weight.view(n, k // 32, 2, 16).flip(2).reshape(n, k))


def swap_row_halves(scales: Tensor) -> Tensor:
    rows, columns = scales.shape
    return quant.shuffle_e8m0(scales.view(rows // 32, 2, 16, columns).flip(1).reshape(rows, columns))


@pytest.mark.parametrize(
    ("check", "broken"),
    [
        (check_encode_e2m1, round_half_away),
        (check_round_e4m3, truncate_e4m3),
        (check_mxfp4_scale, scale_by_exponent),
        (check_shuffle_weight, quant.unshuffle_weight),
        (check_shuffle_weight, swap_halves),
        (check_shuffle_e8m0, quant.unshuffle_e8m0),
        (check_shuffle_e8m0, swap_row_halves),
    ],
)
def test_checks_catch_a_broken_format(check: Callable[[Codec], None], broken: Codec) -> None:
    with pytest.raises(AssertionError):
        check(broken)
