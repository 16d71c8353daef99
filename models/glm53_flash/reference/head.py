"""End of the residual streams, final norm and logits (spec section 3)."""

from __future__ import annotations

from torch import Tensor

from sgl_amd_mono.models.glm53_flash.reference.ops import matmul, rms_norm
from sgl_amd_mono.models.glm53_flash.reference.rounding import Rounding


def head(x: Tensor, norm: Tensor, lm_head: Tensor, eps: float, rounding: Rounding) -> Tensor:
    """Streams x [T, S, hidden] -> logits [T, vocab]; norm [hidden], lm_head [vocab, hidden]."""
    mean = rounding.bf16(x.double().mean(1))
    return rounding.bf16(matmul(rms_norm(mean, norm, eps, rounding), lm_head))
