"""Pooling, the edges of the selection, and the Hadamard rotation; the whole indexer is compared in test_model."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from sgl_amd_mono.models.glm53_flash.checkpoint import Checkpoint
from sgl_amd_mono.models.glm53_flash.reference.indexer import (
    IndexCache,
    IndexerWeights,
    hadamard,
    index_query,
    index_score,
    index_select,
    index_write,
    load_indexer,
)
from sgl_amd_mono.models.glm53_flash.reference.rounding import Rounding
from sgl_amd_mono.quant import round_bf16, round_e4m3

KPOOL = 4


@pytest.fixture(scope="module")
def weights(bf16: Checkpoint) -> IndexerWeights:
    return load_indexer(bf16, bf16.config.mla_layers[0])


def cache_for(tokens: int, dim: int) -> IndexCache:
    """Filled with NaN: what is not written must not be read."""
    return IndexCache(
        tail_key=torch.full((KPOOL, dim), torch.nan, dtype=torch.float64),
        tail_score=torch.full((KPOOL, dim), torch.nan, dtype=torch.float64),
        pool_key=torch.full((tokens // KPOOL, dim), torch.nan, dtype=torch.float64),
        pool_scale=torch.full((tokens // KPOOL,), torch.nan, dtype=torch.float64),
    )


@pytest.mark.parametrize(
    ("length", "tokens"),
    [(0, []), (1, [0]), (2, [0, 1]), (3, [0, 1, 2]), (4, [0, 1, 2, 3]), (5, [0, 1, 2, 3, 4]), (8, list(range(8)))],
)
def test_short_rows_attend_to_everything(length: int, tokens: list[int]) -> None:
    scores = torch.zeros(length // KPOOL, dtype=torch.float64)
    assert index_select(scores, length, KPOOL, pools=512).tolist() == tokens


def test_best_pools_and_the_tail_are_chosen_in_order() -> None:
    scores = torch.tensor([0.5, 3.0, -1.0, 2.0, 1.0])
    # 22 tokens: five pools and two tokens of the sixth
    assert index_select(scores, 22, KPOOL, pools=2).tolist() == [4, 5, 6, 7, 12, 13, 14, 15, 20, 21]


def test_ties_go_to_the_older_pool() -> None:
    assert index_select(torch.zeros(6), 24, KPOOL, pools=2).tolist() == list(range(8))


def test_more_pools_than_are_chosen_at_most() -> None:
    scores = torch.randn(600, generator=torch.Generator().manual_seed(0))
    chosen = index_select(scores, 2403, KPOOL, pools=512)
    assert len(chosen) == 512 * KPOOL + 3
    assert len(chosen.unique()) == len(chosen)
    pools = set((chosen[:-3] // KPOOL).tolist())
    left_out = set(range(600)) - pools
    assert min(scores[list(pools)]) >= max(scores[list(left_out)])


@pytest.mark.parametrize("rounding", Rounding)
def test_pools_close_with_their_fourth_token(weights: IndexerWeights, rounding: Rounding) -> None:
    dim, tokens = weights.wk.shape[0], 11
    generator = torch.Generator().manual_seed(1)
    keys, scores = (round_bf16(torch.randn(tokens, dim, generator=generator).double()) for _ in range(2))
    cache = cache_for(tokens, dim)
    for position in range(tokens):
        index_write(weights, cache, position, keys[position], scores[position], rounding)
        closed = (position + 1) // KPOOL
        assert cache.pool_scale[:closed].isfinite().all()
        assert cache.pool_scale[closed:].isnan().all()

    for pool in range(tokens // KPOOL):
        members = slice(pool * KPOOL, (pool + 1) * KPOOL)
        expected = torch.zeros(dim, dtype=torch.float64)
        for d in range(dim):
            p = torch.softmax(scores[members, d] + weights.ape[:, d].double(), 0)
            expected[d] = p @ keys[members, d]
        unrotated = hadamard(cache.pool_key[pool] * cache.pool_scale[pool])
        # e4m3 keeps four bits of each rotated value: 2^-4 of its size at most
        bound = 2**-4 * float(expected.norm()) if rounding is Rounding.STANDARD else 1e-12
        assert float((unrotated - expected).norm()) < bound
    if rounding is Rounding.STANDARD:
        closed_keys, scales = cache.pool_key[: tokens // KPOOL], cache.pool_scale[: tokens // KPOOL]
        assert torch.equal(closed_keys, round_e4m3(closed_keys))
        assert (torch.frexp(scales).mantissa == 0.5).all()
        assert ((closed_keys.abs().amax(1) > 224) & (closed_keys.abs().amax(1) <= 448)).all()


@pytest.mark.parametrize("rounding", Rounding)
def test_scores_are_the_weighted_relu_of_products(
    bf16: Checkpoint, weights: IndexerWeights, rounding: Rounding
) -> None:
    """Rotation, quantisation and the folded scales cancel: unrotated queries and keys give the same scores."""
    generator = torch.Generator().manual_seed(2)
    y = round_bf16(torch.randn(1, bf16.config.hidden_size, generator=generator).double())
    q_latent = round_bf16(torch.randn(1, bf16.config.q_lora_rank, generator=generator).double())
    keys = torch.randn(6, weights.wk.shape[0], generator=generator).double()
    q, head_weights = index_query(weights, y, q_latent, rounding)
    scores = index_score(q[0], head_weights[0], hadamard(keys), torch.ones(6))

    heads, dim = bf16.config.index_n_heads, bf16.config.index_head_dim
    expected = torch.zeros(6, dtype=torch.float64)
    for head in range(heads):
        query = weights.wq_b[head * dim : (head + 1) * dim].double() @ q_latent[0]
        weight = weights.weights_proj[head].double() @ y[0] * heads**-0.5 * dim**-0.5
        expected += weight * torch.relu(keys @ query)
    # e4m3 errs by 2^-4 at most and in no common direction
    bound = 2**-4 if rounding is Rounding.STANDARD else 1e-12
    assert float((scores - expected).norm() / expected.norm()) < bound


def kronecker_hadamard(dim: int) -> Tensor:
    matrix = torch.ones(1, 1, dtype=torch.float64)
    while len(matrix) < dim:
        matrix = torch.kron(torch.tensor([[1.0, 1.0], [1.0, -1.0]], dtype=torch.float64), matrix)
    return matrix / float(dim**0.5)


def test_hadamard_is_the_kronecker_power() -> None:
    x = torch.randn(3, 128, generator=torch.Generator().manual_seed(3)).double()
    torch.testing.assert_close(hadamard(x), x @ kronecker_hadamard(128), rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(hadamard(hadamard(x)), x, rtol=1e-12, atol=1e-12)
