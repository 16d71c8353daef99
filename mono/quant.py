"""Number formats of quantised weights and activations, exact, in plain torch.

OCP MX 1.0 (e2m1 values, e8m0 scale a group of 32), OCP FP8 e4m3fn in [128, 128] blocks, bf16, and the byte orders
that aiter's gfx950 kernels read. Codes and bytes are uint8, decoded values float64: every value of these formats is
exact there.
"""

from __future__ import annotations

import torch
from torch import Tensor

from sgl_amd_mono.errors import LayoutError

MX_GROUP = 32
FP8_BLOCK = 128
E2M1_MAX = 6.0
E4M3_MAX = 448.0
E8M0_BIAS = 127

# aiter's shuffle: rows of one MFMA tile, bytes of one lane's load, loads of one K step
TILE_ROWS = 16
LOAD_BYTES = 16
LOADS_PER_STEP = 2

# OCP MX 1.0 table 5: magnitudes of codes 0..7; bit 3 is the sign
_E2M1_MAGNITUDES = (0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0)


def round_to_float(x: Tensor, precision: int, min_exponent: int) -> Tensor:
    """Round to the nearest binary float of a format with unbounded range, ties to even, subnormals included.

    Parameters
    ----------
    x : any shape, float64.
    precision : significand bits, the implicit one counted (bf16 8, e4m3 4, e2m1 2).
    min_exponent : exponent of the smallest normal number (bf16 -126, e4m3 -6, e2m1 0).
    """
    # frexp gives |significand| in [0.5, 1), so the leading bit weighs 2^(exponent - 1)
    exponent = torch.frexp(x).exponent - 1
    ulp_exponent = exponent.clamp(min=min_exponent) - (precision - 1)
    return torch.round(x * power_of_two(-ulp_exponent)) * power_of_two(ulp_exponent)


def power_of_two(exponent: Tensor) -> Tensor:
    """2^exponent, float64, of integers -1022..1023. torch.ldexp computes its power in float32 and overflows at 128."""
    return ((exponent.long() + 1023) << 52).view(torch.float64)


def round_bf16(x: Tensor) -> Tensor:
    """Round float64 to the nearest bf16 in one step; torch's cast goes through float32 and rounds twice."""
    rounded = round_to_float(x, precision=8, min_exponent=-126)
    return torch.where(rounded.abs() > torch.finfo(torch.bfloat16).max, torch.sign(x) * torch.inf, rounded)


def encode_e2m1(x: Tensor) -> Tensor:
    """Nearest e2m1 codes [...] uint8 of float values [...], ties to even, saturating at 6. NaN is refused."""
    if bool(torch.isnan(x).any()):
        raise LayoutError("e2m1 has no NaN: quantise finite values only")
    magnitude = round_to_float(x.abs().double(), precision=2, min_exponent=0).clamp(max=E2M1_MAX)
    table = torch.tensor(_E2M1_MAGNITUDES, dtype=torch.float64, device=x.device)
    code = torch.searchsorted(table, magnitude).to(torch.uint8)
    return code | (torch.signbit(x).to(torch.uint8) << 3)


def decode_e2m1(codes: Tensor) -> Tensor:
    """Values [...] float64 of e2m1 codes 0..15 [...] uint8."""
    magnitudes = torch.tensor(_E2M1_MAGNITUDES, dtype=torch.float64, device=codes.device)
    return torch.cat([magnitudes, -magnitudes])[codes.long()]


def pack_e2m1(codes: Tensor) -> Tensor:
    """Two codes a byte, the low nibble the even k: codes [..., K] uint8 -> [..., K/2] uint8."""
    return codes[..., 0::2] | (codes[..., 1::2] << 4)


def unpack_e2m1(packed: Tensor) -> Tensor:
    """Inverse of pack_e2m1: [..., K/2] uint8 -> codes [..., K] uint8."""
    return torch.stack([packed & 0xF, packed >> 4], dim=-1).flatten(-2)


def decode_e8m0(scales: Tensor) -> Tensor:
    """Scales 2^(byte - 127), float64; byte 255 is NaN (OCP MX 1.0, section 5.4.1)."""
    return torch.where(scales == 255, torch.nan, power_of_two(scales.long() - E8M0_BIAS))


def mxfp4_scale(amax: Tensor) -> Tensor:
    """e8m0 byte of a group whose largest magnitude is `amax` [...]: amax / 6 rounded up to a power of two.

    aiter's RoundUp mode (spec 8.3): amax times fp32 1/6 in fp32; the exponent grows by one if any mantissa bit is set.
    """
    bits = (amax.float() * torch.tensor(1 / E2M1_MAX, dtype=torch.float32)).view(torch.int32)
    return ((bits >> 23) + ((bits & 0x7FFFFF) != 0)).to(torch.uint8)


def quantize_mxfp4(x: Tensor) -> tuple[Tensor, Tensor]:
    """MXFP4 along the last dimension: values [..., K] -> (packed [..., K/2] uint8, scales [..., K/32] uint8)."""
    if x.shape[-1] % MX_GROUP:
        raise LayoutError(f"MXFP4 groups {MX_GROUP} values along K; K = {x.shape[-1]} is not a multiple")
    groups = torch.unflatten(x.double(), -1, (-1, MX_GROUP))
    scales = mxfp4_scale(groups.abs().amax(-1))
    codes = encode_e2m1(groups / decode_e8m0(scales).unsqueeze(-1))
    return pack_e2m1(codes.flatten(-2)), scales


def dequantize_mxfp4(packed: Tensor, scales: Tensor) -> Tensor:
    """Values [..., K] float64 of packed [..., K/2] and scales [..., K/32], both uint8."""
    groups = torch.unflatten(decode_e2m1(unpack_e2m1(packed)), -1, (-1, MX_GROUP))
    return (groups * decode_e8m0(scales).unsqueeze(-1)).flatten(-2)


def round_e4m3(x: Tensor) -> Tensor:
    """Nearest OCP e4m3fn value [...] float64, ties to even, saturating at 448 (aiter's and torch's clamped casts)."""
    return round_to_float(x.double(), precision=4, min_exponent=-6).clamp(-E4M3_MAX, E4M3_MAX)


def quantize_fp8_rows(x: Tensor) -> tuple[Tensor, Tensor]:
    """Dynamic 1x128 FP8 of activations (spec 6.2).

    Values [..., K] -> (e4m3 values [..., K] float64, scales [..., K/128] float32). The scale is amax / 448 in fp32 and
    the quotient is rounded to fp32 before e4m3, as a kernel holds them; an all-zero group has scale 1.
    """
    if x.shape[-1] % FP8_BLOCK:
        raise LayoutError(f"FP8 activations are grouped by {FP8_BLOCK} along K; K = {x.shape[-1]} is not a multiple")
    groups = torch.unflatten(x.float(), -1, (-1, FP8_BLOCK))
    amax = groups.abs().amax(-1)
    scales = torch.where(amax == 0, 1.0, amax / E4M3_MAX)
    return round_e4m3(groups / scales.unsqueeze(-1)).flatten(-2), scales


def dequantize_fp8_rows(values: Tensor, scales: Tensor) -> Tensor:
    """Values [..., K] float64 of quantize_fp8_rows."""
    groups = torch.unflatten(values.double(), -1, (-1, FP8_BLOCK))
    return (groups * scales.double().unsqueeze(-1)).flatten(-2)


def quantize_fp8_block(weight: Tensor) -> tuple[Tensor, Tensor]:
    """Block FP8 of a weight [N, K] -> (float8_e4m3fn [N, K], weight_scale_inv float32 [ceil(N/128), ceil(K/128)])."""
    scales = _block_amax(weight) / E4M3_MAX
    scales = torch.where(scales == 0, 1.0, scales)
    values = round_e4m3(weight.float() / _spread_blocks(scales, weight.shape))
    return values.to(torch.float8_e4m3fn), scales


def dequantize_fp8_block(weight: Tensor, scales: Tensor) -> Tensor:
    """Values [N, K] float64 of float8_e4m3fn [N, K] and its weight_scale_inv [ceil(N/128), ceil(K/128)] float32."""
    return weight.double() * _spread_blocks(scales.double(), weight.shape)


def quantize_fp8_ue8m0(x: Tensor) -> tuple[Tensor, Tensor]:
    """Per-vector FP8 with a power-of-two scale, 2^ceil(log2(max(amax, 1e-4) / 448)) (spec 7.1).

    Values [..., D] -> (e4m3 values [..., D] float64, scales [...] float64).
    """
    quotient = x.double().abs().amax(-1).clamp(min=1e-4) / E4M3_MAX
    significand, exponent = torch.frexp(quotient)
    scales = power_of_two(exponent - (significand == 0.5).int())
    return round_e4m3(x / scales.unsqueeze(-1)), scales


def shuffle_weight(weight: Tensor) -> Tensor:
    """aiter's (16, 16) shuffle of one-byte elements [..., N, K] (spec 2.3); N in multiples of 16, K of 32."""
    steps = _steps("shuffle_weight", weight)
    tiles = weight.reshape(-1, TILE_ROWS, steps, LOADS_PER_STEP, LOAD_BYTES)
    return tiles.permute(0, 2, 3, 1, 4).reshape(weight.shape)


def unshuffle_weight(weight: Tensor) -> Tensor:
    """Inverse of shuffle_weight."""
    steps = _steps("unshuffle_weight", weight)
    tiles = weight.reshape(-1, steps, LOADS_PER_STEP, TILE_ROWS, LOAD_BYTES)
    return tiles.permute(0, 3, 1, 2, 4).reshape(weight.shape)


def shuffle_e8m0(scales: Tensor) -> Tensor:
    """aiter's e8m0_shuffle (spec 2.3) of scales [rows, K/32] uint8: rows by 32, columns by 8; same shape."""
    _require_multiples("shuffle_e8m0", scales, 32, 8)
    rows, columns = scales.shape
    return scales.reshape(rows // 32, 2, 16, columns // 8, 2, 4).permute(0, 3, 5, 2, 4, 1).reshape(rows, columns)


def unshuffle_e8m0(scales: Tensor) -> Tensor:
    """Inverse of shuffle_e8m0."""
    _require_multiples("unshuffle_e8m0", scales, 32, 8)
    rows, columns = scales.shape
    return scales.reshape(rows // 32, columns // 8, 4, 16, 2, 2).permute(0, 5, 3, 1, 4, 2).reshape(rows, columns)


def _block_amax(weight: Tensor) -> Tensor:
    n, k = weight.shape
    padded = torch.nn.functional.pad(weight.float().abs(), (0, -k % FP8_BLOCK, 0, -n % FP8_BLOCK))
    return padded.view(-(-n // FP8_BLOCK), FP8_BLOCK, -(-k // FP8_BLOCK), FP8_BLOCK).amax((1, 3))


def _spread_blocks(scales: Tensor, shape: torch.Size) -> Tensor:
    spread = scales.repeat_interleave(FP8_BLOCK, 0).repeat_interleave(FP8_BLOCK, 1)
    return spread[: shape[0], : shape[1]]


def _steps(what: str, weight: Tensor) -> int:
    """K steps of a row tile."""
    step = LOADS_PER_STEP * LOAD_BYTES
    _require_multiples(what, weight, TILE_ROWS, step)
    return weight.shape[-1] // step


def _require_multiples(what: str, tensor: Tensor, rows: int, columns: int) -> None:
    if tensor.element_size() != 1:
        raise LayoutError(f"{what} moves one-byte elements; got {tensor.dtype}")
    n, k = tensor.shape[-2:]
    if n % rows or k % columns:
        raise LayoutError(f"{what} needs rows in multiples of {rows} and columns of {columns}; got {n} x {k}")
