"""Token embedding and the start of the residual streams (spec section 3)."""

from __future__ import annotations

from torch import Tensor


def embed(embedding: Tensor, ids: Tensor, streams: int) -> Tensor:
    """Rows `ids` [T] of embedding [vocab, hidden], repeated into every residual stream -> [T, streams, hidden]."""
    return embedding[ids].double()[:, None].repeat(1, streams, 1)
