"""Arithmetic that several phases share, in float64."""

from __future__ import annotations

import torch
from torch import Tensor

from sgl_amd_mono.models.glm53_flash.checkpoint import Linear
from sgl_amd_mono.models.glm53_flash.checkpoint_tensors import Storage
from sgl_amd_mono.models.glm53_flash.reference.rounding import Rounding
from sgl_amd_mono.quant import dequantize_fp8_rows, dequantize_mxfp4, quantize_fp8_rows, quantize_mxfp4


def matmul(x: Tensor, weight: Tensor) -> Tensor:
    """x [..., K] times weight [N, K] transposed -> [..., N]."""
    return x.double() @ weight.double().T


def quantize_activation(x: Tensor, weight_storage: Storage, rounding: Rounding) -> Tensor:
    """x [..., K] as the standard path feeds it to a linear whose weight is stored so: FP8 1x128 or MXFP4 values."""
    if rounding is Rounding.STANDARD and weight_storage is Storage.FP8_BLOCK:
        return dequantize_fp8_rows(*quantize_fp8_rows(x))
    if rounding is Rounding.STANDARD and weight_storage is Storage.MXFP4:
        return dequantize_mxfp4(*quantize_mxfp4(x))
    return x.double()


def linear(x: Tensor, weight: Linear, rounding: Rounding) -> Tensor:
    """x [..., K] -> [..., N] through a linear layer, with one rounding of the result to bf16."""
    quantized = quantize_activation(x, weight.storage, rounding)
    return rounding.bf16(matmul(quantized, weight.dequantize()))


def rms_norm(x: Tensor, weight: Tensor, eps: float, rounding: Rounding) -> Tensor:
    """x [..., N] over its root mean square, times weight [N]; one rounding to bf16."""
    x = x.double()
    return rounding.bf16(x * torch.rsqrt(x.square().mean(-1, keepdim=True) + eps) * weight.double())


def clamped_swiglu(gate: Tensor, up: Tensor, limit: float) -> Tensor:
    """silu(min(gate, limit)) * clamp(up, -limit, limit) (spec 8.3, 9)."""
    gate = gate.clamp(max=limit)
    return gate * torch.sigmoid(gate) * up.clamp(-limit, limit)
