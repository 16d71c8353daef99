"""Hyper-connections against transformers' module, with so few Sinkhorn iterations that their order shows."""

from __future__ import annotations

import copy
from collections.abc import Callable
from types import ModuleType
from typing import Any

import pytest
import torch

from sgl_amd_mono.models.glm53_flash.reference import mhc
from sgl_amd_mono.models.glm53_flash.reference.mhc import MhcWeights, mhc_read, mhc_write
from sgl_amd_mono.models.glm53_flash.reference.rounding import Rounding
from sgl_amd_mono.quant import round_bf16

# float32 against float64: sums of 2^10 products of 2^-24 each
BOUND = 2.0**-18


def check_read(upstream: Any, iterations: int) -> None:
    layer = copy.deepcopy(upstream.model.language_model.layers[0])
    connection = layer.attn_hc
    connection.hc_sinkhorn_iters = iterations
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for parameter in connection.parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=generator))
    streams = torch.randn(3, 4, connection.fn.shape[1] // 4, generator=generator)
    w = MhcWeights(
        fn=connection.fn.detach(),
        base=connection.base.detach(),
        scale=connection.scale.detach(),
        norm=layer.input_layernorm.weight.detach(),
        norm_eps=1e-5,
        sinkhorn_iters=iterations,
        sinkhorn_eps=1e-6,
    )
    with torch.no_grad():
        post, comb, collapsed = connection(streams[None])
        expected = layer.input_layernorm(collapsed)[0], post[0], comb[0]
    for value, reference in zip(mhc_read(w, streams, Rounding.EXACT), expected, strict=True):
        torch.testing.assert_close(value, reference.double(), rtol=BOUND, atol=BOUND * float(reference.abs().max()))


@pytest.mark.parametrize("iterations", [1, 2, 20])
def test_read_is_transformers(upstream_bf16: Any, iterations: int) -> None:
    check_read(upstream_bf16, iterations)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("torch.softmax(comb, dim=2)", "torch.softmax(comb, dim=1)"),
        ("pre = torch.sigmoid(pre) + w.sinkhorn_eps", "pre = torch.softmax(pre, 1)"),
        ("flat.square().mean(1, keepdim=True)", "flat.square().sum(1, keepdim=True)"),
        ("comb.view(-1, streams, streams)", "comb.view(-1, streams, streams).transpose(1, 2)"),
    ],
)
def test_read_check_catches(
    upstream_bf16: Any, mutate: Callable[[ModuleType, str, str], None], old: str, new: str
) -> None:
    mutate(mhc, old, new)
    with pytest.raises(AssertionError):
        check_read(upstream_bf16, 2)


def test_write_sums_over_the_first_index_of_comb() -> None:
    x, y = torch.randn(1, 4, 8).double(), torch.randn(1, 8).double()
    post, comb = torch.rand(1, 4).double(), torch.rand(1, 4, 4).double()
    expected = torch.zeros(4, 8).double()
    for k in range(4):
        expected[k] = post[0, k] * y[0] + sum(comb[0, j, k] * x[0, j] for j in range(4))
    torch.testing.assert_close(mhc_write(x, y, post, comb, Rounding.EXACT)[0], expected)
    rounded = mhc_write(x, y, post, comb, Rounding.STANDARD)
    assert torch.equal(rounded, round_bf16(mhc_write(x, y, post, comb, Rounding.EXACT)))
