from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from sgl_amd_mono import cli
from sgl_amd_mono.models.glm53_flash import numerics
from sgl_amd_mono.models.glm53_flash.checkpoint import SINGLE_FILE
from sgl_amd_mono.models.glm53_flash.make_checkpoint import Sizes, make_checkpoint

pytestmark = pytest.mark.host

TINY = Sizes(layers=4, dense_layers=1, hidden=128, vocab=300, intermediate=128, moe_intermediate=64, experts=8)


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("tiny")
    make_checkpoint(directory, TINY)
    return directory


def run(*arguments: str) -> Result:
    return CliRunner().invoke(cli.app, ["decode", *arguments])


@pytest.fixture
def refuse(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Callable[..., str]:
    """Runs the command as a user would and returns the message of its exit status 2."""

    def call(*arguments: str) -> str:
        monkeypatch.setattr(sys, "argv", ["amd-mono", "decode", *arguments])
        with pytest.raises(SystemExit) as stopped:
            cli.main()
        assert stopped.value.code == 2
        printed = capsys.readouterr()
        assert printed.out == ""
        assert printed.err.startswith("Error: ")
        return printed.err

    return call


def test_prints_tokens_text_and_the_check(checkpoint: Path) -> None:
    result = run(str(checkpoint), "--prompt", "hello", "--steps", "3", "--check")
    assert result.exit_code == 0, result.output
    for line in ("fused KDA", "reference MLA", "row 0: ", "3 generated", "ids: ", "text: ", "kda_update", "ok"):
        assert line in result.stdout
    assert "BREACH" not in result.stdout


def test_json_has_all_of_it(checkpoint: Path) -> None:
    arguments = [str(checkpoint), "--prompt-ids", "3,4,5", "--prompt-ids", "6", "--rows", "3", "--steps", "3", "--json"]
    document = json.loads(run(*arguments, "--check").stdout)
    assert [len(row) for row in document["tokens"]] == [3, 3, 3]
    # the prompts repeat in turn
    assert document["tokens"][0] == document["tokens"][2]
    assert document["tokens"][0] != document["tokens"][1]
    assert [layer["attention"] for layer in document["layers"]] == ["fused KDA"] * 3 + ["reference MLA"]
    assert {entry["name"].split(".")[0] for entry in document["check"]} == {
        "kda_project",
        "kda_gates",
        "kda_conv",
        "kda_update",
        "kda_output",
        "slicing",
    }
    # two steps are fed back, three layers each
    assert all(entry["ok"] and entry["comparisons"] == 6 for entry in document["check"])
    assert "check" not in json.loads(run(*arguments).stdout)


def test_slicing_changes_no_token(checkpoint: Path) -> None:
    outputs = {
        run(str(checkpoint), "--prompt-ids", "3,4", "--steps", "4", "--json", "--slicing", slicing).stdout
        for slicing in ("phase", "layer", "step")
    }
    assert len(outputs) == 1


def test_a_breach_is_shown_and_fails(checkpoint: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A state limit of nothing is past: fp32 arithmetic differs from the float64 reference somewhere."""
    limits = {name: 0.0 if name.startswith("kda_update.state.") else limit for name, limit in numerics.BOUNDS.items()}
    monkeypatch.setattr(numerics, "BOUNDS", limits)
    result = run(str(checkpoint), "--prompt-ids", "3", "--steps", "3", "--check")
    assert result.exit_code == 1, result.output
    assert "BREACH" in result.stdout


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--prompt-ids", "3,x"], "--prompt-ids '3,x' is not a list of numbers"),
        ([], "No prompt: give --prompt TEXT or --prompt-ids"),
        (["--prompt-ids", "3", "--prompt-ids", "4", "--rows", "1"], "2 prompts do not fit in 1 rows"),
        (["--prompt-ids", "300"], "Token 300 is outside of the vocabulary"),
        (["--prompt", ""], "A prompt has no token"),
        (["--prompt-ids", "3", "--device", "hip"], "No AMD GPU"),
    ],
)
def test_refuses_arguments(arguments: list[str], message: str, checkpoint: Path, refuse: Callable[..., str]) -> None:
    assert message in refuse(str(checkpoint), *arguments)


def test_refuses_damaged_checkpoints(checkpoint: Path, tmp_path: Path, refuse: Callable[..., str]) -> None:
    assert "config.json" in refuse(str(tmp_path / "absent"), "--prompt-ids", "3")

    foreign = tmp_path / "foreign"
    shutil.copytree(checkpoint, foreign)
    config = json.loads((foreign / "config.json").read_text())
    (foreign / "config.json").write_text(json.dumps({**config, "architectures": ["LlamaForCausalLM"]}))
    assert "LlamaForCausalLM" in refuse(str(foreign), "--prompt-ids", "3")

    truncated = tmp_path / "truncated"
    shutil.copytree(checkpoint, truncated)
    file = truncated / SINGLE_FILE
    file.write_bytes(file.read_bytes()[:-1000])
    assert SINGLE_FILE in refuse(str(truncated), "--prompt-ids", "3")


def test_refuses_to_run_without_a_compiler(
    checkpoint: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, refuse: Callable[..., str]
) -> None:
    monkeypatch.setenv("SGLANG_AMD_MONO_COMPILER", str(tmp_path / "no-clang++"))
    assert "no-clang++" in refuse(str(checkpoint), "--prompt-ids", "3")
