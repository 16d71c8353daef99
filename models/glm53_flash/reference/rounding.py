"""The two modes of the reference: exact arithmetic, or SGLang's rounding points with exact arithmetic between them."""

from __future__ import annotations

from enum import Enum

from torch import Tensor

from sgl_amd_mono.quant import round_bf16


class Rounding(Enum):
    """Where a value is rounded.

    EXACT: nowhere; activations are never quantised.
    STANDARD: to bf16, FP8 or MXFP4 wherever SGLang's standard path stores or quantises (spec section 13).
    """

    EXACT = "exact"
    STANDARD = "standard"

    def bf16(self, x: Tensor) -> Tensor:
        """A bf16 rounding point: float64 in, float64 out."""
        return round_bf16(x) if self is Rounding.STANDARD else x
