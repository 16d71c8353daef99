from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest
import torch

from sgl_amd_mono.device.host import HostDevice
from sgl_amd_mono.errors import CheckpointError
from sgl_amd_mono.models.glm53_flash.checkpoint import Checkpoint
from sgl_amd_mono.models.glm53_flash.decode import decode, served_by
from sgl_amd_mono.models.glm53_flash.program import KERNEL
from sgl_amd_mono.models.glm53_flash.reference.model import ReferenceModel
from sgl_amd_mono.models.glm53_flash.reference.rounding import Rounding
from sgl_amd_mono.program import Slicing

pytestmark = pytest.mark.host

PROMPTS = [[3, 7, 11], [5], [250, 2, 9, 4, 100]]
STEPS = 6


def reference_tokens(checkpoint: Checkpoint, prompts: list[list[int]], steps: int) -> list[list[int]]:
    """Greedy tokens of the reference alone, every row a batch of its own."""
    model = ReferenceModel(checkpoint, Rounding.STANDARD)
    rows = []
    for prompt in prompts:
        state = model.new_state(1, len(prompt) + steps)
        logits = model.prefill([prompt], state)
        tokens = [int(logits.argmax())]
        while len(tokens) < steps:
            tokens.append(int(model.step(torch.tensor(tokens[-1:]), state).argmax()))
        rows.append(tokens)
    return rows


def test_tokens_are_those_of_the_reference(servable: Checkpoint) -> None:
    """The checkpoint's tokens stand out of their crowd, so that a differently rounded bit does not change one."""
    decoded = decode(servable.directory, PROMPTS, STEPS, device=HostDevice(KERNEL))
    assert decoded.tokens == reference_tokens(servable, PROMPTS, STEPS)
    assert decoded.check is None


def test_check_passes_and_changes_nothing(servable: Checkpoint) -> None:
    plain = decode(servable.directory, PROMPTS, STEPS, device=HostDevice(KERNEL))
    checked = decode(servable.directory, PROMPTS, STEPS, device=HostDevice(KERNEL), check=True)
    assert checked.tokens == plain.tokens
    assert checked.check is not None
    assert not checked.check.breached
    # the last token is not fed back
    assert set(checked.check.comparisons.values()) == {(STEPS - 1) * len(servable.config.kda_layers)}


@pytest.mark.parametrize("slicing", list(Slicing))
def test_slicing_grid_and_schedule_change_no_token(slicing: Slicing, servable: Checkpoint) -> None:
    usual = decode(servable.directory, PROMPTS, STEPS, device=HostDevice(KERNEL))
    other = decode(servable.directory, PROMPTS, STEPS, device=HostDevice(KERNEL, workgroups=3, seed=9), slicing=slicing)
    assert other.tokens == usual.tokens


def test_a_row_ends_at_end_of_text(servable: Checkpoint, tmp_path: Path) -> None:
    """The third token of row 0 is made the end of text: row 0 stops there, the others go on as before."""
    before = decode(servable.directory, PROMPTS, STEPS, device=HostDevice(KERNEL)).tokens
    end = before[0][2]
    assert end not in before[1] + before[2]
    directory = tmp_path / "checkpoint"
    shutil.copytree(servable.directory, directory)
    config = json.loads((directory / "config.json").read_text())
    config["text_config"]["eos_token_id"] = end
    (directory / "config.json").write_text(json.dumps(config))
    after = decode(directory, PROMPTS, STEPS, device=HostDevice(KERNEL)).tokens
    assert after == [before[0][:3], before[1], before[2]]


def test_decodes_what_transformers_saved(
    transformers: ModuleType, servable: Checkpoint, tmp_path: Path, load_upstream: Callable[[Path], object]
) -> None:
    upstream = load_upstream(servable.directory)
    upstream.to(torch.bfloat16).save_pretrained(tmp_path)  # type: ignore[attr-defined]
    decoded = decode(tmp_path, PROMPTS, STEPS, device=HostDevice(KERNEL), check=True)
    assert decoded.tokens == decode(servable.directory, PROMPTS, STEPS, device=HostDevice(KERNEL)).tokens
    assert decoded.check is not None
    assert not decoded.check.breached


def test_says_what_serves_each_layer(servable: Checkpoint) -> None:
    assert served_by(servable.config) == [
        ("fused KDA", "reference dense"),
        ("fused KDA", "reference MoE"),
        ("fused KDA", "reference MoE"),
        ("reference MLA", "reference MoE"),
    ]


@pytest.mark.parametrize(
    ("prompts", "message"),
    [
        ([], "0 rows: a step takes 1 to 16"),
        ([[1]] * 17, "17 rows: a step takes 1 to 16"),
        ([[1], []], "no token"),
        ([[1, 320]], "Token 320 is outside of the vocabulary: ids go from 0 to 319"),
        ([[-1]], "Token -1 is outside of the vocabulary"),
    ],
)
def test_refuses_prompts(prompts: list[list[int]], message: str, servable: Checkpoint) -> None:
    with pytest.raises(CheckpointError, match=message):
        decode(servable.directory, prompts, STEPS, device=HostDevice(KERNEL))
