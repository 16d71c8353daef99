"""Dense and expert half layers against transformers', up to the clamp; routing; quantised activations."""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType
from typing import Any

import msgspec
import pytest
import torch
from torch import Tensor

from sgl_amd_mono.models.glm53_flash.checkpoint import Checkpoint
from sgl_amd_mono.models.glm53_flash.checkpoint_tensors import Storage
from sgl_amd_mono.models.glm53_flash.reference import ops
from sgl_amd_mono.models.glm53_flash.reference.dense import dense_half_layer, dense_up, load_dense
from sgl_amd_mono.models.glm53_flash.reference.moe import MoeWeights, load_moe, moe_half_layer, moe_route
from sgl_amd_mono.models.glm53_flash.reference.ops import quantize_activation
from sgl_amd_mono.models.glm53_flash.reference.rounding import Rounding
from sgl_amd_mono.quant import decode_e2m1, round_bf16, round_e4m3

DENSE_LAYER, SPARSE_LAYER = 0, 1
# float32 against float64: sums of 2^8 products of 2^-24 each
BOUND = 2.0**-18


def draw(rows: int, width: int, size: float = 1.0) -> Tensor:
    return round_bf16(size * torch.randn(rows, width, generator=torch.Generator().manual_seed(0)).double())


def relative_rms(value: Tensor, expected: Tensor) -> float:
    return float((value - expected).square().mean().sqrt() / expected.square().mean().sqrt())


def check_against_upstream(checkpoint: Checkpoint, upstream: Any, size: float) -> None:
    y = draw(5, checkpoint.config.hidden_size, size)
    layers = upstream.model.language_model.layers
    with torch.no_grad():
        dense = layers[DENSE_LAYER].mlp(y.float())
        sparse = layers[SPARSE_LAYER].mlp(y[None].float())[0]
    assert relative_rms(dense_half_layer(load_dense(checkpoint, DENSE_LAYER), y, Rounding.EXACT), dense) < BOUND
    assert relative_rms(moe_half_layer(load_moe(checkpoint, SPARSE_LAYER), y, Rounding.EXACT), sparse) < BOUND


@pytest.mark.parametrize("size", [1.0, 30.0])
def test_half_layers_are_transformers(bf16: Checkpoint, upstream_bf16: Any, size: float) -> None:
    check_against_upstream(bf16, upstream_bf16, size)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("gate.clamp(max=limit)", "gate"),
        ("gate.clamp(max=limit)", "gate.clamp(-limit, limit)"),
        ("up.clamp(-limit, limit)", "up"),
        ("up.clamp(-limit, limit)", "up.clamp(max=limit)"),
    ],
)
def test_clamp_check_catches(
    bf16: Checkpoint, upstream_bf16: Any, mutate: Callable[[ModuleType, str, str], None], old: str, new: str
) -> None:
    mutate(ops, old, new)
    with pytest.raises(AssertionError):
        check_against_upstream(bf16, upstream_bf16, 30.0)


def routing_weights(logits: list[float], bias: list[float], checkpoint: Checkpoint) -> MoeWeights:
    """A router whose logits are those given when y is ones."""
    loaded = load_moe(checkpoint, SPARSE_LAYER)
    return MoeWeights(
        gate=torch.tensor(logits)[:, None],
        bias=torch.tensor(bias),
        experts=loaded.experts,
        top_k=2,
        routed_scaling_factor=2.5,
        limit=10.0,
    )


@pytest.mark.parametrize("rounding", Rounding)
def test_bias_chooses_and_does_not_weigh(bf16: Checkpoint, rounding: Rounding) -> None:
    w = routing_weights([0.0, 1.0, 2.0, -1.0], [0.0, 0.0, 0.0, 5.0], bf16)
    experts, weights = moe_route(w, torch.ones(1, 1), rounding)
    assert experts.tolist() == [[3, 2, 4]]
    scores = torch.sigmoid(torch.tensor([-1.0, 2.0], dtype=torch.float64))
    torch.testing.assert_close(weights[0, :2], 2.5 * scores / scores.sum())
    assert weights[0, 2] == 1


def test_ties_go_to_the_lower_expert(bf16: Checkpoint) -> None:
    experts, _ = moe_route(routing_weights([1.0] * 6, [0.0] * 6, bf16), torch.ones(1, 1), Rounding.EXACT)
    assert experts.tolist() == [[0, 1, 6]]


def test_standard_routes_by_bf16_logits(bf16: Checkpoint) -> None:
    """1 + 2^-9 rounds to 1 in bf16, so the two tie and the lower wins; exactly, the higher does."""
    w = msgspec.structs.replace(routing_weights([-9.0, 1.0, 1 + 2**-9, -9.0], [0.0] * 4, bf16), top_k=1)
    assert moe_route(w, torch.ones(1, 1), Rounding.STANDARD)[0].tolist() == [[1, 4]]
    assert moe_route(w, torch.ones(1, 1), Rounding.EXACT)[0].tolist() == [[2, 4]]


def test_standard_routes_by_a_bf16_bias(bf16: Checkpoint) -> None:
    w = routing_weights([0.0] * 4, [-9.0, 1.0, 1 + 2**-9, -9.0], bf16)
    assert moe_route(w, torch.ones(1, 1), Rounding.STANDARD)[0][0, 0] == 1
    assert moe_route(w, torch.ones(1, 1), Rounding.EXACT)[0][0, 0] == 2


def test_activations_are_quantised_as_their_weights_storage_asks() -> None:
    x = draw(3, 256)
    for storage in Storage:
        assert torch.equal(quantize_activation(x, storage, Rounding.EXACT), x)
    assert torch.equal(quantize_activation(x, Storage.BF16, Rounding.STANDARD), x)

    fp8 = quantize_activation(x, Storage.FP8_BLOCK, Rounding.STANDARD).view(3, 2, 128)
    scales = (x.view(3, 2, 128).abs().amax(-1, keepdim=True).float() / 448).double()
    assert torch.equal(fp8 / scales, round_e4m3(fp8 / scales))

    fp4 = quantize_activation(x, Storage.MXFP4, Rounding.STANDARD).view(3, 8, 32)
    scale = torch.exp2(torch.ceil(torch.log2(x.view(3, 8, 32).abs().amax(-1, keepdim=True) / 6)))
    assert set((fp4 / scale).unique().tolist()) <= set(decode_e2m1(torch.arange(16, dtype=torch.uint8)).tolist())


@pytest.mark.parametrize(
    ("half_layer", "load", "layer", "least", "most"),
    [
        # two products in a row with activations of four significand bits: 2^-5 / sqrt(3) each in RMS, at full scale
        (dense_half_layer, load_dense, DENSE_LAYER, 2**-7, 2**-4),
        # the same with two significand bits
        (moe_half_layer, load_moe, SPARSE_LAYER, 2**-5, 2**-2),
    ],
)
def test_quantised_activations_err_as_their_format_does(
    mxfp4: Checkpoint, half_layer: Any, load: Any, layer: int, least: float, most: float
) -> None:
    weights, y = load(mxfp4, layer), draw(8, mxfp4.config.hidden_size)
    # the routing may flip, so it is compared with inputs that route alike
    error = relative_rms(half_layer(weights, y, Rounding.STANDARD), half_layer(weights, y, Rounding.EXACT))
    assert least < error < most


def test_dense_activation_is_rounded_only_before_an_unquantised_projection(bf16: Checkpoint, mxfp4: Checkpoint) -> None:
    y = draw(2, bf16.config.hidden_size)
    for checkpoint, rounded in ((bf16, True), (mxfp4, False)):
        activation = dense_up(load_dense(checkpoint, DENSE_LAYER), y, Rounding.STANDARD)
        assert torch.equal(activation, round_bf16(activation)) == rounded
