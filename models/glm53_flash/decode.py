"""Greedy decoding of a GLM-5.3-Flash checkpoint: reference prefill, then steps whose KDA half layers are fused."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec
import torch

from sgl_amd_mono.device.base import Device
from sgl_amd_mono.errors import CheckpointError
from sgl_amd_mono.models.glm53_flash.checked_kda import CheckedKda
from sgl_amd_mono.models.glm53_flash.checkpoint import Checkpoint
from sgl_amd_mono.models.glm53_flash.config import Config
from sgl_amd_mono.models.glm53_flash.fused_kda import FusedKda
from sgl_amd_mono.models.glm53_flash.kda_refusals import MAX_ROWS
from sgl_amd_mono.models.glm53_flash.reference.model import ReferenceModel
from sgl_amd_mono.models.glm53_flash.reference.rounding import Rounding
from sgl_amd_mono.program import Slicing

Progress = Callable[[str, int, int], None]
"""(activity, steps done, steps in all)"""


class Decoded(msgspec.Struct, frozen=True):
    """What a run generated."""

    tokens: list[list[int]]
    """[rows][steps], end-of-text included; a row that met it generates no more."""
    check: CheckedKda | None


def decode(
    directory: Path,
    prompts: Sequence[Sequence[int]],
    steps: int,
    *,
    device: Device,
    slicing: Slicing = Slicing.STEP,
    check: bool = False,
    progress: Progress = lambda activity, done, total: None,
) -> Decoded:
    """Generate up to `steps` tokens for each prompt, all prompts in one batch.

    Raises
    ------
    CheckpointError
        When the checkpoint cannot be read, or a prompt has no token or one outside of the vocabulary.
    LaunchError
        When the device fails.
    """
    checkpoint = Checkpoint.open(directory)
    _check_prompts(prompts, checkpoint.config)
    model = ReferenceModel(checkpoint, Rounding.STANDARD)
    state = model.new_state(len(prompts), max(map(len, prompts)) + steps)
    progress("prefill", 0, 1)
    logits = model.prefill(prompts, state)
    progress("prefill", 1, 1)

    fused = FusedKda(model, device, state, slicing)
    checked = CheckedKda(fused, model) if check else None
    tokens: list[list[int]] = [[] for _ in prompts]
    going = torch.ones(len(prompts), dtype=torch.bool)
    for step in range(steps):
        progress("decode", step, steps)
        chosen = logits.argmax(-1)
        for row in going.nonzero().flatten().tolist():
            tokens[row].append(int(chosen[row]))
        going &= chosen != model.config.eos_token_id
        # the last tokens are not fed back: nobody would read what follows them
        if step + 1 == steps or not bool(going.any()):
            break
        logits = model.step(torch.where(going, chosen, -1), state, checked or fused)
    progress("decode", steps, steps)
    return Decoded(tokens, checked)


def served_by(config: Config) -> list[tuple[str, str]]:
    """Per layer, what computes its attention half and its feed-forward half in a decode step."""
    attention = ["fused KDA" if config.is_kda(layer) else "reference MLA" for layer in range(config.num_hidden_layers)]
    feed_forward = [
        "reference MoE" if config.is_sparse(layer) else "reference dense" for layer in range(config.num_hidden_layers)
    ]
    return list(zip(attention, feed_forward, strict=True))


def _check_prompts(prompts: Sequence[Sequence[int]], config: Config) -> None:
    if not 1 <= len(prompts) <= MAX_ROWS:
        raise CheckpointError(f"{len(prompts)} rows: a step takes 1 to {MAX_ROWS}.")
    for prompt in prompts:
        if not prompt:
            raise CheckpointError("A prompt has no token: give it at least one.")
        wrong = [token for token in prompt if not 0 <= token < config.vocab_size]
        if wrong:
            raise CheckpointError(
                f"Token {wrong[0]} is outside of the vocabulary: ids go from 0 to {config.vocab_size - 1}."
            )
