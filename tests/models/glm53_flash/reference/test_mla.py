"""Attention over chosen latents against torch's attention; the absorbed projections are compared in test_model."""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType

import pytest
import torch
from torch import Tensor

from sgl_amd_mono.models.glm53_flash.reference import mla
from sgl_amd_mono.models.glm53_flash.reference.mla import mla_attend
from sgl_amd_mono.models.glm53_flash.reference.rounding import Rounding
from sgl_amd_mono.quant import round_bf16

SCALE = 0.25


def inputs(tokens: int) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(tokens)
    return (
        round_bf16(torch.randn(4, 32, generator=generator).double()),
        round_bf16(torch.randn(tokens, 32, generator=generator).double()),
    )


def attend_by_torch(q: Tensor, kv: Tensor) -> Tensor:
    return torch.nn.functional.scaled_dot_product_attention(q[None], kv[None], kv[None], scale=SCALE)[0]


def check_attend(tokens: int) -> None:
    q, kv = inputs(tokens)
    torch.testing.assert_close(mla_attend(q, kv, SCALE, Rounding.EXACT), attend_by_torch(q, kv), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("tokens", [1, 63, 64, 65, 150])
def test_attend_is_torchs(tokens: int) -> None:
    check_attend(tokens)


@pytest.mark.parametrize(
    ("old", "new"),
    [("peak + total.log()", "peak"), ("peak + total.log()", "total.log()"), ("T * scale", "T")],
)
def test_attend_check_catches(mutate: Callable[[ModuleType, str, str], None], old: str, new: str) -> None:
    mutate(mla, old, new)
    with pytest.raises(AssertionError):
        check_attend(150)


def test_attend_over_nothing_is_zero() -> None:
    q, kv = inputs(0)
    assert torch.equal(mla_attend(q, kv, SCALE, Rounding.STANDARD), torch.zeros_like(q))


def test_standard_rounds_within_its_points() -> None:
    """Probabilities, block outputs and the result are each rounded by 2^-9, of values no larger than the latents."""
    q, kv = inputs(150)
    rounded = mla_attend(q, kv, SCALE, Rounding.STANDARD)
    assert torch.equal(rounded, round_bf16(rounded))
    error = (rounded - attend_by_torch(q, kv)).abs()
    assert float(error.max()) <= 3 * 2**-9 * float(kv.abs().max())
    # the blocks' roundings are there, not only the last one
    assert not torch.equal(rounded, round_bf16(attend_by_torch(q, kv)))
