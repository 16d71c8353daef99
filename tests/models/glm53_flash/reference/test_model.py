"""The whole model against transformers' glm5_next: every layer's streams and the logits, in exact arithmetic.

transformers runs in float32, where it rounds nowhere that EXACT does not: its router is float32, and its casts of post
and comb to the model's dtype do nothing. Its FP8 and MXFP4 weights are dequantised beforehand.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch
from torch import Tensor

from sgl_amd_mono.errors import LayoutError
from sgl_amd_mono.models.glm53_flash.checkpoint import Checkpoint
from sgl_amd_mono.models.glm53_flash.reference import indexer, kda, mhc, mla, moe, ops
from sgl_amd_mono.models.glm53_flash.reference.model import ReferenceModel
from sgl_amd_mono.models.glm53_flash.reference.rounding import Rounding
from sgl_amd_mono.models.glm53_flash.reference.state import State

# relative RMS of float32: 2^-24 an operation, sums of at most 2^10 terms grow as their root, 2^4 half layers in a row
UPSTREAM_BOUND = 2.0**-15
# past 20 tokens the indexer leaves pools out: 16 tokens and the unfinished pool are attended to
PROMPT = torch.randint(0, 320, (37,), generator=torch.Generator().manual_seed(7)).tolist()


def relative_rms(value: Tensor, expected: Tensor) -> float:
    return float((value - expected).square().mean().sqrt() / expected.square().mean().sqrt())


def run_upstream(upstream: Any, ids: list[int]) -> tuple[list[Tensor], Tensor]:
    """Streams [T, streams, hidden] after each layer, and logits [T, vocab]."""
    streams: list[Tensor] = []
    layers = upstream.model.language_model.layers
    hooks = [layer.register_forward_hook(lambda *call: streams.append(call[2][0][0])) for layer in layers]
    with torch.no_grad():
        logits = upstream(input_ids=torch.tensor([ids])).logits[0]
    for hook in hooks:
        hook.remove()
    return streams, logits


def run_reference(model: ReferenceModel, ids: list[int]) -> tuple[list[Tensor], Tensor]:
    """The same of the reference, token by token."""
    state = model.new_state(1, len(ids))
    layers = range(model.config.num_hidden_layers)
    streams: list[list[Tensor]] = [[] for _ in layers]
    logits = []
    for token in ids:
        state.advance(torch.tensor([True]))
        x = model.embed(torch.tensor([token]))
        for layer in layers:
            x = model.layer(layer, x, state)
            streams[layer].append(x)
        logits.append(model.logits(x))
    return [torch.cat(layer) for layer in streams], torch.cat(logits)


def check_against_upstream(checkpoint: Checkpoint, upstream: Any, ids: list[int]) -> None:
    expected_streams, expected_logits = run_upstream(upstream, ids)
    streams, logits = run_reference(ReferenceModel(checkpoint, Rounding.EXACT), ids)
    for layer, (value, expected) in enumerate(zip(streams, expected_streams, strict=True)):
        assert relative_rms(value, expected) < UPSTREAM_BOUND, f"layer {layer}"
    assert relative_rms(logits, expected_logits) < UPSTREAM_BOUND


def test_bf16_checkpoint_matches_transformers(bf16: Checkpoint, upstream_bf16: Any) -> None:
    check_against_upstream(bf16, upstream_bf16, PROMPT)


def test_mxfp4_checkpoint_matches_transformers(mxfp4: Checkpoint, upstream_mxfp4: Any) -> None:
    check_against_upstream(mxfp4, upstream_mxfp4, PROMPT)


@pytest.mark.parametrize(
    ("module", "old", "new"),
    [
        (kda, "state = state.double() * g.exp()[:, :, None, :]", "state = state.double() * g.exp()[:, :, :, None]"),
        (kda, "matmul(forget_a, w.forget_b)", "matmul(output_a, w.forget_b)"),
        (kda, "w.o_norm.double() * gate", "w.o_norm.double()"),
        (mhc, '"tjk,tjc->tkc"', '"tkj,tjc->tkc"'),
        (mhc, "POST_MULTIPLIER * torch.sigmoid(post)", "torch.sigmoid(post)"),
        (mhc, "range(w.sinkhorn_iters - 1)", "range(0)"),
        (mla, "scores = q @ block.T * scale", "scores = q @ block.T"),
        (mla, "length // indexer.kpool", "(length - 1) // indexer.kpool"),
        (indexer, "cache.tail_score.double() + w.ape.double()", "cache.tail_score.double()"),
        (indexer, "torch.relu(q @ pool_keys.double().T)", "(q @ pool_keys.double().T)"),
        (indexer, "+ w.k_norm_bias.double()", ""),
        (indexer, "torch.arange(complete * kpool, length)", "torch.arange(0)"),
        (indexer, "indices[:pools]", "indices[: pools + 1]"),
        (moe, "choice = scores + rounding.bf16(w.bias.double())", "choice = scores"),
        (moe, "scores.gather(1, experts)", "choice.gather(1, experts)"),
        (moe, "w.routed_scaling_factor / weights.sum(1, keepdim=True)", "w.routed_scaling_factor"),
        (moe, "torch.ones(len(y), 1)", "2.5 * torch.ones(len(y), 1)"),
        (ops, "gate * torch.sigmoid(gate) * up", "gate * up"),
    ],
)
def test_comparison_catches(
    bf16: Checkpoint,
    upstream_bf16: Any,
    mutate: Callable[[ModuleType, str, str], None],
    module: ModuleType,
    old: str,
    new: str,
) -> None:
    mutate(module, old, new)
    with pytest.raises(AssertionError):
        check_against_upstream(bf16, upstream_bf16, PROMPT[:25])


def test_transformers_checkpoint_opens_and_matches(
    transformers: ModuleType, upstream_bf16: Any, bf16: Checkpoint, tmp_path: Path
) -> None:
    """save_pretrained of a model that transformers itself initialised."""
    torch.manual_seed(3)
    upstream = transformers.Glm5NextForConditionalGeneration(upstream_bf16.config).eval()
    with torch.no_grad():
        for name, parameter in upstream.named_parameters():
            # bf16 values, which both keep; the initial zeros and ones would hide a swap
            if "language_model" in name or "lm_head" in name:
                parameter.copy_((parameter + 0.02 * torch.randn_like(parameter)).bfloat16())
    upstream.save_pretrained(tmp_path)
    checkpoint = Checkpoint.open(tmp_path)
    assert checkpoint.config == bf16.config
    check_against_upstream(checkpoint, upstream, PROMPT)


def test_state_holds_what_transformers_caches(bf16: Checkpoint, upstream_bf16: Any) -> None:
    """After a prompt: KDA state with V before K, the conv window oldest first, latents by position."""
    config = bf16.config
    with torch.no_grad():
        cache = upstream_bf16(input_ids=torch.tensor([PROMPT]), use_cache=True).cache
    model = ReferenceModel(bf16, Rounding.EXACT)
    state = model.new_state(1, len(PROMPT))
    model.prefill([PROMPT], state)
    slot = int(state.slots[0])
    for pool, layer in enumerate(config.kda_layers):
        recurrent = cache.get_recurrent_state(layer, state_idx=0)[0].transpose(1, 2)
        assert relative_rms(state.temporal[pool, slot], recurrent) < UPSTREAM_BOUND
        conv = cache.get_conv_state(layer, state_idx=0)[0][:, -3:].T
        assert relative_rms(state.conv[pool, slot], conv) < UPSTREAM_BOUND
    for pool, layer in enumerate(config.mla_layers):
        assert relative_rms(state.kv[pool, 0], cache.layers[layer].keys[0, 0]) < UPSTREAM_BOUND


def test_rows_are_independent(mxfp4: Checkpoint) -> None:
    """Prompts of different lengths together, then a step in which one row sits out: as if each row were alone.

    Not bit for bit: a matrix product over two rows may add in another order than over one.
    """
    model = ReferenceModel(mxfp4, Rounding.EXACT)
    together = model.new_state(2, 24)
    first = model.prefill([PROMPT[:5], PROMPT[5:14]], together)
    second = model.step(torch.tensor([-1, 9]), together)
    assert together.slots.tolist() == [-1, 2]
    third = model.step(torch.tensor([7, 8]), together)
    alone = model.new_state(1, 24)
    torch.testing.assert_close(first[:1], model.prefill([PROMPT[:5]], alone))
    torch.testing.assert_close(third[:1], model.step(torch.tensor([7]), alone))
    alone = model.new_state(1, 24)
    torch.testing.assert_close(first[1:], model.prefill([PROMPT[5:14]], alone))
    torch.testing.assert_close(second[1:], model.step(torch.tensor([9]), alone))
    torch.testing.assert_close(third[1:], model.step(torch.tensor([8]), alone))


@pytest.mark.parametrize("rounding", Rounding)
def test_kda_can_be_served_from_outside(mxfp4: Checkpoint, rounding: Rounding) -> None:
    """The callable sees each KDA layer once a step, in order, and its result is used."""
    model = ReferenceModel(mxfp4, rounding)
    expected_state, state = model.new_state(2, 4), model.new_state(2, 4)
    layers: list[int] = []

    def serve(layer: int, y: Tensor, state: State) -> Tensor:
        layers.append(layer)
        assert y.shape == (2, mxfp4.config.hidden_size)
        pool = mxfp4.config.kda_layers.index(layer)
        weights = model.kda_weights(layer)
        return kda.kda_half_layer(weights, y, state.slots, state.conv[pool], state.temporal[pool], rounding)

    prompts = [[1, 2], [3]]
    assert torch.equal(model.prefill(prompts, state, serve), model.prefill(prompts, expected_state))
    assert layers == [*mxfp4.config.kda_layers] * 2
    assert torch.equal(state.temporal, expected_state.temporal)
    zero = model.step(torch.tensor([4, 5]), state, lambda layer, y, state: torch.zeros_like(y))
    assert relative_rms(zero, model.step(torch.tensor([4, 5]), expected_state)) > 0.1


def test_idle_rows_change_no_state(mxfp4: Checkpoint) -> None:
    model = ReferenceModel(mxfp4, Rounding.STANDARD)
    state = model.new_state(3, 8)
    model.prefill([[1, 2, 3, 4, 5], [6], []], state)
    before = {name: value.clone() for name, value in vars(state).items() if isinstance(value, Tensor)}
    model.step(torch.tensor([-1, 9, -1]), state)
    for name in ("kv", "tail_key", "tail_score", "pool_key", "pool_scale"):
        value = getattr(state, name)
        assert torch.equal(value[:, [0, 2]], before[name][:, [0, 2]])
    for name in ("conv", "temporal"):
        assert torch.equal(getattr(state, name)[:, [0, 1, 3]], before[name][:, [0, 1, 3]])
        assert not torch.equal(getattr(state, name)[:, 2], before[name][:, 2])
    assert state.lengths.tolist() == [5, 2, 0]


def test_full_row_and_wrong_row_count_are_refused(mxfp4: Checkpoint) -> None:
    model = ReferenceModel(mxfp4, Rounding.EXACT)
    state = model.new_state(1, 1)
    model.step(torch.tensor([1]), state)
    with pytest.raises(LayoutError, match="made for 1 tokens"):
        model.step(torch.tensor([1]), state)
    with pytest.raises(LayoutError, match="2 rows in a step of a state of 1"):
        model.step(torch.tensor([1, 2]), state)


def test_standard_stays_near_exact(bf16: Checkpoint) -> None:
    """Unquantised, the roundings of ten half layers of some five points each stay below a few per cent."""
    exact, standard = ReferenceModel(bf16, Rounding.EXACT), ReferenceModel(bf16, Rounding.STANDARD)
    expected = exact.prefill([PROMPT[:12]], exact.new_state(1, 12))
    error = relative_rms(standard.prefill([PROMPT[:12]], standard.new_state(1, 12)), expected)
    assert 2**-12 < error < 2**-5
