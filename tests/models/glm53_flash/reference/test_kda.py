"""KDA half layer against fla's naive KDA and torch's convolution; its contract on slots; rounding points."""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType, SimpleNamespace

import pytest
import torch
from torch import Tensor

from sgl_amd_mono.models.glm53_flash.checkpoint import Checkpoint
from sgl_amd_mono.models.glm53_flash.layout import KdaWeights, load_kda
from sgl_amd_mono.models.glm53_flash.reference import kda
from sgl_amd_mono.models.glm53_flash.reference.kda import (
    kda_conv,
    kda_gates,
    kda_half_layer,
    kda_output,
    kda_project,
    kda_track,
    kda_update,
)
from sgl_amd_mono.models.glm53_flash.reference.rounding import Rounding
from sgl_amd_mono.quant import round_bf16

# fla computes in float32: 2^-24 an operation, in sums of at most 2^7 terms, 2^6 tokens one after the other
FLA_BOUND = 2.0**-17
ROWS, TOKENS = 2, 64


@pytest.fixture(scope="module")
def weights(bf16: Checkpoint) -> KdaWeights:
    return load_kda(bf16, 0)


def draw(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def run_updates(w: KdaWeights, z: Tensor, b: Tensor, fg: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
    """kda_update over tokens: z [T, tokens, C], b [T, tokens, H], fg [T, tokens, HK] -> o [T, tokens, H, V], state."""
    outputs = []
    for token in range(z.shape[1]):
        o, state = kda_update(w, z[:, token], b[:, token], fg[:, token], state, Rounding.EXACT)
        outputs.append(o)
    return torch.stack(outputs, 1), state


def check_update(w: KdaWeights, fla: SimpleNamespace, name: str) -> None:
    heads, dim = w.heads, w.head_dim
    z, b, fg = (
        draw(ROWS, TOKENS, w.channels),
        draw(ROWS, TOKENS, heads, seed=1),
        draw(ROWS, TOKENS, heads * dim, seed=2),
    )
    state = draw(ROWS, heads, dim, dim, seed=3)
    o, new_state = run_updates(w, z, b, fg, state)

    q, k, v = z.view(ROWS, TOKENS, 3, heads, dim).unbind(2)
    q, k = (x * torch.rsqrt(x.square().sum(-1, keepdim=True) + 1e-6) for x in (q, k))
    g = fla.lowerbound_gate(fg.view(ROWS, TOKENS, heads, dim), w.A_log, w.dt_bias, w.lower_bound)
    expected_o, expected_state = getattr(fla, name)(
        q, k, v, g, b.sigmoid(), initial_state=state.transpose(2, 3).float(), output_final_state=True
    )
    torch.testing.assert_close(o, expected_o, rtol=FLA_BOUND, atol=FLA_BOUND * float(expected_o.abs().max()))
    new_state = new_state.transpose(2, 3)
    atol = FLA_BOUND * float(expected_state.abs().max())
    torch.testing.assert_close(new_state, expected_state.double(), rtol=FLA_BOUND, atol=atol)


def check_conv(w: KdaWeights) -> None:
    f = draw(ROWS, 9, w.channels + w.heads + 2 * w.head_dim)
    state = draw(ROWS, 3, w.channels, seed=1)
    x = torch.cat([state, f[..., : w.channels]], 1).transpose(1, 2)
    expected = torch.nn.functional.conv1d(x, w.conv.double()[:, None], groups=w.channels)
    expected = torch.nn.functional.silu(expected).transpose(1, 2)
    for token in range(9):
        z, state = kda_conv(w, f[:, token], state, Rounding.EXACT)
        torch.testing.assert_close(z, expected[:, token], rtol=1e-12, atol=1e-12)
    assert torch.equal(state, f[:, -3:, : w.channels])


@pytest.mark.parametrize("name", ["recurrent_kda", "chunk_kda"])
def test_update_is_flas(weights: KdaWeights, fla: SimpleNamespace, name: str) -> None:
    check_update(weights, fla, name)


def test_conv_is_torchs_causal_depthwise(weights: KdaWeights) -> None:
    check_conv(weights)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("g.exp()[:, :, None, :]", "g.exp()[:, :, :, None]"),
        ('(v - torch.einsum("thvk,thk->thv", state, k)) * beta', "v * beta"),
        ("state, k)) * beta", "state, k * beta))"),
        ("delta[..., :, None] * k[..., None, :]", "delta[..., None, :] * k[..., :, None]"),
        ('torch.einsum("thvk,thk->thv", state, q)', 'torch.einsum("thkv,thk->thv", state, q)'),
        ("* w.head_dim**-0.5", ""),
        ("beta = torch.sigmoid(b.double())", "beta = b.double()"),
        ("w.A_log.double().exp()", "w.A_log.double()"),
        ("+ w.dt_bias.double()", "- w.dt_bias.double()"),
        (".sum(-1, keepdim=True) + L2_EPS", ".sum(-1, keepdim=True) + 1.0"),
    ],
)
def test_update_check_catches(
    weights: KdaWeights, fla: SimpleNamespace, mutate: Callable[[ModuleType, str, str], None], old: str, new: str
) -> None:
    mutate(kda, old, new)
    with pytest.raises(AssertionError):
        check_update(weights, fla, "recurrent_kda")


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("torch.cat([conv_state.double(), x.double()], dim=1)", "torch.cat([x.double(), conv_state.double()], dim=1)"),
        ("window[:, 1:]", "window[:, :3]"),
        ("acc * torch.sigmoid(acc)", "acc"),
    ],
)
def test_conv_check_catches(
    weights: KdaWeights, mutate: Callable[[ModuleType, str, str], None], old: str, new: str
) -> None:
    mutate(kda, old, new)
    with pytest.raises(AssertionError):
        check_conv(weights)


def pools(w: KdaWeights, slots: int) -> tuple[Tensor, Tensor]:
    """Pools of the standard path's dtypes, filled with values that no phase writes by chance."""
    conv = draw(slots, 3, w.channels, seed=5).bfloat16()
    return conv, draw(slots, w.heads, w.head_dim, w.head_dim, seed=6).float()


@pytest.mark.parametrize("rounding", Rounding)
def test_half_layer_is_its_phases(weights: KdaWeights, rounding: Rounding) -> None:
    y = draw(2, weights.o_proj.shape[0]).bfloat16()
    conv, temporal = pools(weights, 4)
    slots = torch.tensor([3, 1], dtype=torch.int32)
    f = kda_project(weights, y, rounding)
    fg, gp = kda_gates(weights, f, rounding)
    z, new_conv = kda_conv(weights, f, conv[[3, 1]], rounding)
    o, new_temporal = kda_update(
        weights, z, f[:, weights.channels :][:, : weights.heads], fg, temporal[[3, 1]], rounding
    )
    expected = kda_output(weights, o, gp, rounding)
    assert torch.equal(kda_half_layer(weights, y, slots, conv, temporal, rounding), expected)
    assert torch.equal(conv[[3, 1]], new_conv.bfloat16())
    assert torch.equal(temporal[[3, 1]], new_temporal.float())


@pytest.mark.parametrize("rounding", Rounding)
def test_padded_rows_are_zero_and_touch_no_slot(weights: KdaWeights, rounding: Rounding) -> None:
    y = draw(3, weights.o_proj.shape[0])
    # a padded row of NaN: nothing of it may reach a live row or a pool
    y[1] = torch.nan
    conv, temporal = pools(weights, 5)
    before = conv.clone(), temporal.clone()
    partial = kda_half_layer(weights, y, torch.tensor([2, -1, 4]), conv, temporal, rounding)
    assert not partial[1].any()
    assert partial[[0, 2]].isfinite().all()
    for pool, old in zip((conv, temporal), before, strict=True):
        assert torch.equal(pool[[0, 1, 3]], old[[0, 1, 3]])
        assert not torch.equal(pool[[2, 4]], old[[2, 4]])


def test_all_rows_padded(weights: KdaWeights) -> None:
    conv, temporal = pools(weights, 2)
    before = conv.clone(), temporal.clone()
    y = draw(2, weights.o_proj.shape[0])
    partial = kda_half_layer(weights, y, torch.tensor([-1, -1]), conv, temporal, Rounding.STANDARD)
    assert not partial.any()
    assert torch.equal(conv, before[0])
    assert torch.equal(temporal, before[1])


@pytest.mark.parametrize("tp_size", [2, 4])
def test_ranks_partials_add_up(bf16: Checkpoint, tp_size: int) -> None:
    whole = load_kda(bf16, 0)
    y = draw(2, bf16.config.hidden_size)
    slots = torch.tensor([0, 1])

    def partial(w: KdaWeights) -> Tensor:
        conv = torch.zeros(2, 3, w.channels, dtype=torch.float64)
        temporal = torch.zeros(2, w.heads, w.head_dim, w.head_dim, dtype=torch.float64)
        first = kda_half_layer(w, y, slots, conv, temporal, Rounding.EXACT)
        return torch.cat([first, kda_half_layer(w, y.flip(0), slots, conv, temporal, Rounding.EXACT)])

    ranks = [partial(load_kda(bf16, 0, tp_size, rank)) for rank in range(tp_size)]
    torch.testing.assert_close(torch.stack(ranks).sum(0), partial(whole), rtol=1e-12, atol=1e-12)


def test_rounding_points(weights: KdaWeights) -> None:
    """Spec 13.4: every phase's output is bf16 in STANDARD, the state is not; in EXACT nothing is."""
    y = draw(2, weights.o_proj.shape[0]).bfloat16()
    conv, temporal = pools(weights, 2)
    for rounding in Rounding:
        f = kda_project(weights, y, rounding)
        fgp = kda_gates(weights, f, rounding)
        z, _ = kda_conv(weights, f, conv, rounding)
        b = f[:, weights.channels : weights.channels + weights.heads]
        o, state = kda_update(weights, z, b, fgp[0], temporal, rounding)
        partial = kda_output(weights, o, fgp[1], rounding)
        for value in (f, fgp, z, o, partial):
            assert torch.equal(value, round_bf16(value)) == (rounding is Rounding.STANDARD)
        assert not torch.equal(state, state.float().double())


def test_standard_stays_near_exact(weights: KdaWeights) -> None:
    """Six rounding points of 2^-9 each, one after the other, in relative RMS; sums average them out rather than add."""
    y = draw(4, weights.o_proj.shape[0]).bfloat16()
    conv, temporal = pools(weights, 4)
    slots = torch.arange(4)
    standard = kda_half_layer(weights, y, slots, conv.clone(), temporal.clone(), Rounding.STANDARD)
    exact = kda_half_layer(weights, y, slots, conv.clone(), temporal.clone(), Rounding.EXACT)
    error = float((standard - exact).square().mean().sqrt() / exact.square().mean().sqrt())
    assert 0 < error < 6 * 2**-9


def test_track_copies_masked_rows_of_all_layers() -> None:
    conv, temporal = draw(2, 9, 3, 6).bfloat16(), draw(2, 9, 1, 2, 2, seed=1).float()
    before = conv.clone(), temporal.clone()
    slots = torch.tensor([3, 1, -1, 2])
    mask = torch.tensor([True, False, True, True])
    # a destination of -1 for an unmasked row is not an index from the end
    kda_track(conv, temporal, slots, mask, torch.tensor([6, -1, 5, 7]))
    for pool, old in zip((conv, temporal), before, strict=True):
        expected = old.clone()
        expected[:, 6] = old[:, 3]
        expected[:, 7] = old[:, 2]
        assert torch.equal(pool, expected)


@pytest.mark.parametrize(("old", "new"), [("mask & (slots >= 0)", "mask"), ("mask & (slots >= 0)", "slots >= 0")])
def test_track_check_catches(mutate: Callable[[ModuleType, str, str], None], old: str, new: str) -> None:
    mutate(kda, old, new)
    with pytest.raises(AssertionError):
        test_track_copies_masked_rows_of_all_layers()
