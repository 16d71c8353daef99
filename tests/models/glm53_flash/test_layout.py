"""Per-rank KDA weights against SGLang's load rules (spec 2.2), head by head from the checkpoint's tensors."""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType

import pytest
import torch
from torch import Tensor

from sgl_amd_mono.errors import LayoutError
from sgl_amd_mono.models.glm53_flash import layout
from sgl_amd_mono.models.glm53_flash.checkpoint import Checkpoint
from sgl_amd_mono.models.glm53_flash.layout import load_kda

LAYER = 1


def check_ranks(checkpoint: Checkpoint, tp_size: int) -> None:
    config = checkpoint.config
    heads, dim, hidden = config.linear_num_heads // tp_size, config.linear_head_dim, config.hidden_size
    width = heads * dim

    def stored(name: str) -> Tensor:
        return checkpoint.tensor(f"model.language_model.layers.{LAYER}.self_attn.{name}")

    for rank in range(tp_size):
        w = load_kda(checkpoint, LAYER, tp_size, rank)
        (projection,) = w.projection
        assert projection.shape == (3 * width + heads + 2 * dim, hidden)
        assert w.forget_b.shape == w.output_b.shape == (width, dim)
        assert w.conv.shape == (3 * width, 4)
        assert w.o_proj.shape == (hidden, width)
        assert (w.heads, w.head_dim, w.channels) == (heads, dim, 3 * width)
        assert all(part.is_contiguous() for part in (projection, w.forget_b, w.output_b, w.conv, w.o_proj))
        for head in range(heads):
            of_model = (rank * heads + head) * dim
            for index, name in enumerate("qkv"):
                row = index * width + head * dim
                of_head = stored(f"{name}_proj.weight")[of_model : of_model + dim]
                assert torch.equal(projection[row : row + dim], of_head)
                window = stored(f"{name}_conv1d.weight")[of_model : of_model + dim, 0]
                assert torch.equal(w.conv[row : row + dim], window.float())
            assert torch.equal(projection[3 * width + head], stored("b_proj.weight")[rank * heads + head])
            for name, second in (("f", w.forget_b), ("g", w.output_b)):
                of_head = stored(f"{name}_b_proj.weight")[of_model : of_model + dim]
                assert torch.equal(second[head * dim : (head + 1) * dim], of_head)
            assert w.A_log[head] == stored("A_log")[rank * heads + head]
            bias = stored("dt_bias")[of_model : of_model + dim]
            assert torch.equal(w.dt_bias[head * dim : (head + 1) * dim], bias)
            columns = stored("o_proj.weight")[:, of_model : of_model + dim]
            assert torch.equal(w.o_proj[:, head * dim : (head + 1) * dim], columns)
        low_rank = torch.cat([stored("f_a_proj.weight"), stored("g_a_proj.weight")])
        assert torch.equal(projection[3 * width + heads :], low_rank)
        assert torch.equal(w.o_norm, stored("o_norm.weight"))
        assert {part.dtype for part in (projection, w.forget_b, w.output_b, w.o_norm, w.o_proj)} == {torch.bfloat16}
        assert {w.conv.dtype, w.A_log.dtype, w.dt_bias.dtype} == {torch.float32}
        assert (w.lower_bound, w.norm_eps) == (-5.0, 1e-5)


@pytest.mark.parametrize("tp_size", [1, 2, 4])
def test_ranks_hold_their_heads(mxfp4: Checkpoint, tp_size: int) -> None:
    check_ranks(mxfp4, tp_size)


@pytest.mark.parametrize("tp_size", [1, 2])
def test_projections_apart_are_the_joined_one(mxfp4: Checkpoint, tp_size: int) -> None:
    joined = load_kda(mxfp4, LAYER, tp_size, tp_size - 1)
    apart = load_kda(mxfp4, LAYER, tp_size, tp_size - 1, fused=False)
    width, heads, dim = apart.heads * apart.head_dim, apart.heads, apart.head_dim
    assert [len(part) for part in apart.projection] == [width, width, width, heads, dim, dim]
    assert all(part.is_contiguous() for part in apart.projection)
    assert torch.equal(torch.cat(apart.projection), joined.projection[0])


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ('[rows] for name in "qkv"]', '[rows] for name in "kqv"]'),
        ('get("f_a_proj.weight"), get("g_a_proj.weight")', 'get("g_a_proj.weight"), get("f_a_proj.weight")'),
        ('for name in "fg"', 'for name in "gf"'),
        ("flatten()[head_rows]", "flatten()[:heads]"),
        ("tp_rank * heads * config.linear_head_dim", "0 * tp_rank"),
    ],
)
def test_check_catches(mxfp4: Checkpoint, mutate: Callable[[ModuleType, str, str], None], old: str, new: str) -> None:
    mutate(layout, old, new)
    with pytest.raises(AssertionError):
        check_ranks(mxfp4, 2)


def test_refusals(mxfp4: Checkpoint) -> None:
    with pytest.raises(LayoutError, match=r"layer 3 is no KDA layer; the KDA layers are \[0, 1, 2\]"):
        load_kda(mxfp4, 3)
    with pytest.raises(LayoutError, match="rank 0 of 3: 4 KDA heads"):
        load_kda(mxfp4, 0, 3, 0)
    with pytest.raises(LayoutError, match="rank 2 of 2"):
        load_kda(mxfp4, 0, 2, 2)
