from __future__ import annotations

import json
from pathlib import Path

import pytest
from safetensors import safe_open
from typer.testing import CliRunner, Result

from sgl_amd_mono.cli import app
from sgl_amd_mono.errors import CheckpointError
from sgl_amd_mono.models.glm53_flash.checkpoint import SINGLE_FILE, Checkpoint


def run(*arguments: str) -> Result:
    return CliRunner().invoke(app, ["make-checkpoint", *arguments])


def test_writes_what_was_asked_for(tmp_path: Path) -> None:
    directory = tmp_path / "new" / "checkpoint"
    sizes = ["--layers", "5", "--experts", "16", "--vocab", "300", "--hidden", "256", "--kda-heads", "8"]
    result = run("glm53_flash", str(directory), *sizes)
    assert result.exit_code == 0, result.output
    assert "5 layers (4 KDA, 1 sparse MLA), mxfp4" in result.stdout
    config = Checkpoint.open(directory).config
    assert (config.num_hidden_layers, config.n_routed_experts, config.vocab_size) == (5, 16, 300)
    assert (config.hidden_size, config.linear_num_heads, config.linear_head_dim) == (256, 8, 128)


def test_format_decides_how_the_linears_are_stored(tmp_path: Path) -> None:
    small = ["--layers", "4", "--experts", "8", "--vocab", "300", "--hidden", "128", "--kda-heads", "8"]
    stored = {}
    for name in ("mxfp4", "bf16"):
        assert run("glm53_flash", str(tmp_path / name), *small, "--format", name).exit_code == 0
        with safe_open(tmp_path / name / SINGLE_FILE, "pt") as file:
            stored[name] = {file.get_slice(key).get_dtype() for key in file.keys()}  # noqa: SIM118
        quantised = "quantization_config" in json.loads((tmp_path / name / "config.json").read_text())
        assert quantised is (name == "mxfp4")
    assert stored == {"mxfp4": {"BF16", "F32", "U8", "F8_E4M3"}, "bf16": {"BF16", "F32"}}


def test_the_seed_decides_the_bytes(tmp_path: Path) -> None:
    small = ["--layers", "1", "--vocab", "300", "--hidden", "128", "--kda-heads", "8"]
    for name, seed in (("a", "1"), ("b", "1"), ("c", "2")):
        assert run("glm53_flash", str(tmp_path / name), *small, "--seed", seed).exit_code == 0
    a, b, c = ((tmp_path / name / SINGLE_FILE).read_bytes() for name in "abc")
    assert a == b
    assert a != c


def test_refuses_sizes_and_models(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="vocab 100: byte-level needs at least 257"):
        CliRunner().invoke(
            app, ["make-checkpoint", "glm53_flash", str(tmp_path), "--vocab", "100"], catch_exceptions=False
        )
    unknown = run("gpt2", str(tmp_path))
    assert unknown.exit_code == 2
    assert "glm53_flash" in unknown.output
