"""SGLang on a CPU computes what transformers does, and the made checkpoint decodes stably, by its KDA states."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from tests.sglang_cpu.checkpoint import LINEAR, Stack
from tests.sglang_cpu.language import Language
from tests.sglang_cpu.runner import Runner
from tests.upstream.conftest import CHUNK

PROMPT = 8
# between SGLang's and transformers' bf16 models
RELATIVE_ERROR = 0.036
COSINE = 0.9993
KDA_LAYERS = [layer for layer, kind in enumerate(Stack().attention) if kind == LINEAR]


@pytest.fixture(scope="module")
def logits_of(model: Path) -> Callable[..., Tensor]:
    """Logits [sequences, positions, vocabulary] of transformers' model, in a dtype, at positions from the first on."""
    import transformers

    load: Any = transformers.Glm5NextForConditionalGeneration.from_pretrained
    models = {dtype: load(model, dtype=dtype).eval() for dtype in (torch.bfloat16, torch.float32)}

    @torch.no_grad()
    def logits(dtype: torch.dtype, sequences: list[list[int]], first: int) -> Tensor:
        found: Tensor = models[dtype](input_ids=torch.tensor(sequences)).logits[:, first:]
        return found.float()

    return logits


def test_logits_are_those_of_transformers(runner: Runner, language: Language, logits_of: Callable[..., Tensor]) -> None:
    prompts = [language.prompt(PROMPT, seed) for seed in range(2)]
    for index, prompt in enumerate(prompts):
        runner.submit(f"logits {index}", prompt, new_tokens=5)
    found = torch.stack([step.logits for step in runner.steps()], dim=1)

    sequences = [prompt + language.continuation(prompt, 4) for prompt in prompts]
    expected = logits_of(torch.bfloat16, sequences, PROMPT - 1)
    assert [runner.tokens(f"logits {index}") for index in range(2)] == expected.argmax(-1).tolist()
    error, cosine = differences(found, expected)
    assert error.max() <= RELATIVE_ERROR
    assert cosine.min() >= COSINE
    # and these bounds tell a position from the next
    error, cosine = differences(found[:, 1:], expected[:, :-1])
    assert error.min() > RELATIVE_ERROR
    assert cosine.max() < COSINE


def differences(found: Tensor, expected: Tensor) -> tuple[Tensor, Tensor]:
    """Relative error and cosine of each position's logits."""
    error = (found - expected).norm(dim=-1) / expected.norm(dim=-1)
    return error, torch.cosine_similarity(found, expected, dim=-1)


def test_margin_is_several_times_what_rounding_moves(language: Language, logits_of: Callable[..., Tensor]) -> None:
    prompts = [language.prompt(PROMPT, seed) for seed in range(2)]
    continuations = [language.continuation(prompt, 200) for prompt in prompts]
    sequences = [prompt + tokens[:-1] for prompt, tokens in zip(prompts, continuations, strict=True)]
    rounded, exact = (
        margins(logits_of(dtype, sequences, PROMPT - 1), continuations) for dtype in (torch.bfloat16, torch.float32)
    )
    assert min(rounded.min(), exact.min()) > 3
    assert (rounded - exact).abs().max() < 0.6


def margins(logits: Tensor, tokens: list[list[int]]) -> Tensor:
    """By how much each expected token leads all others; negative where another one leads."""
    expected = torch.tensor(tokens)[..., None]
    return (logits.gather(-1, expected) - logits.scatter(-1, expected, -torch.inf).amax(-1, keepdim=True))[..., 0]


@pytest.mark.parametrize("layer", KDA_LAYERS)
def test_tokens_need_every_kda_state(runner: Runner, language: Language, layer: int) -> None:
    def lose_state() -> None:
        runner.scheduler.req_to_token_pool.mamba2_layer_cache(layer).temporal.zero_()

    assert wrong_requests(runner, language, lose_state) >= 2


@pytest.mark.parametrize("layer", KDA_LAYERS)
def test_tokens_need_every_kda_layer(runner: Runner, language: Language, layer: int) -> None:
    module = runner.model_runner.model.model.layers[layer].self_attn
    with silenced(module):
        assert wrong_requests(runner, language, lambda: None) >= 2
    assert wrong_requests(runner, language, lambda: None) == 0


def wrong_requests(runner: Runner, language: Language, after_prefill: Callable[[], None]) -> int:
    """Of 4 requests of 3 tokens: how many decode to tokens that do not follow."""
    prompts = {f"{seed} of {runner.scheduler.forward_ct}": language.prompt(2, seed) for seed in range(4)}
    for name, prompt in prompts.items():
        runner.submit(name, prompt, new_tokens=3)
    assert not runner.step().decode  # type: ignore[union-attr]
    after_prefill()
    assert all(step.decode for step in runner.steps())
    return sum(runner.tokens(name) != language.continuation(prompt, 3) for name, prompt in prompts.items())


@contextmanager
def silenced(module: Any) -> Iterator[None]:
    """`module` returns zeros meanwhile."""
    hook = module.register_forward_hook(lambda module, args, output: torch.zeros_like(output))
    try:
        yield
    finally:
        hook.remove()


def test_requests_join_and_leave(runner: Runner, language: Language) -> None:
    free = runner.free
    # longer than a chunk
    prompts = {"first": language.prompt(4, 1), "long": language.prompt(CHUNK + 20, 2), "late": language.prompt(3, 3)}
    runner.submit("first", prompts["first"], new_tokens=9)
    runner.step()
    runner.submit("long", prompts["long"], new_tokens=20)
    batches = [runner.step() for _ in range(4)]
    runner.submit("late", prompts["late"], new_tokens=4)
    assert runner.free.state_slots == free.state_slots - 2
    batches += [runner.step() for _ in range(3)]
    runner.abort("long")
    batches += list(runner.steps())

    compositions = {tuple(sorted(step.requests)) for step in batches if step is not None and step.decode}
    assert {("first",), ("first", "long"), ("first", "late", "long")} <= compositions
    assert all(runner.finished(name) for name in prompts)
    for name, prompt in prompts.items():
        assert runner.tokens(name) == language.continuation(prompt, len(runner.tokens(name)))
    assert [len(runner.tokens(name)) for name in ("first", "late")] == [9, 4]
    assert 1 <= len(runner.tokens("long")) < 20
    assert runner.free == free
