"""`amd-mono doctor` where no SGLang is needed; tests/upstream has the rest."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from typer.testing import CliRunner, Result

from sgl_amd_mono.check.tree import open_tree
from sgl_amd_mono.cli import app
from sgl_amd_mono.commands import contract as contract_command
from sgl_amd_mono.doctor import installation, machine
from sgl_amd_mono.doctor.installation import PLUGIN, Plugin
from sgl_amd_mono.errors import CheckpointError, MonoError
from sgl_amd_mono.models.glm53_flash.program import KERNEL
from tests.check.small_tree import FILES, PLUGIN_FILE
from tests.check.test_startup import CONTRACT
from tests.check.trees import replace_once, write_tree
from tests.sglang_cpu.checkpoint import DENSE, FULL, LINEAR, SPARSE, Stack, config_document

GFX950 = machine.Gpu("MI355X", "gfx950", 256)


@pytest.fixture(autouse=True)
def bare(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A machine without SGLang, GPU, bindings and kernels, whatever this one has."""
    monkeypatch.setattr(installation, "imported_tree", lambda: None)
    monkeypatch.setattr(machine, "find_gpu", lambda: None)
    monkeypatch.setattr(machine, "_hip_python", lambda: None)
    monkeypatch.setenv("SGLANG_AMD_MONO_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("COLUMNS", "200")


@pytest.fixture
def sound(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A machine on which the kernels would run; returns the folder of its SGLang, to break."""
    tree = write_tree(tmp_path / "tree", FILES)
    small = replace(CONTRACT, model=KERNEL)
    monkeypatch.setattr(contract_command, "contracts_of_models", lambda: {KERNEL: small})
    monkeypatch.setattr(installation, "imported_tree", lambda: open_tree(tree))
    monkeypatch.setattr(machine, "find_gpu", lambda: GFX950)
    monkeypatch.setattr(machine, "_hip_python", lambda: "7.0")
    monkeypatch.setattr(machine, "find", lambda kernel, arch: SimpleNamespace(binary=Path(f"{kernel}.{arch}.co")))
    monkeypatch.setattr(installation, "find_plugin", lambda: Plugin(entry_point="here", only=None))
    return tree


def run(*arguments: str) -> Result:
    return CliRunner().invoke(app, ["doctor", *arguments])


def reasons() -> list[str]:
    result = run("--json")
    found: list[str] = json.loads(result.stdout)["reasons"]
    assert result.exit_code == int(bool(found))
    return found


def test_without_sglang_says_how_to_install_it_after_all_that_is_known() -> None:
    result = run()
    assert isinstance(result.exception, MonoError)
    assert "pip install 'sgl-amd-mono[sglang]'" in str(result.exception)
    assert f"{torch.__version__}" in result.stdout
    assert "could not tell" in result.stdout
    for reason in ("no GPU is visible", f"amd-mono build --kernel {KERNEL} --arch gfx950", "hip-python is not"):
        assert result.stdout.count(reason) == 1


def test_json_is_one_document() -> None:
    document = json.loads(run("--json").stdout)
    assert document["verdict"] == "could not tell"
    assert document["sglang"] is document["machine"]["gpu"] is document["checkpoint"] is None
    assert document["environment"].keys() >= {"SGLANG_AMD_MONO_CACHE"}
    assert [build["kernel"] for build in document["machine"]["kernels"]] == [KERNEL]


def test_sound_machine_would_run(sound: Path) -> None:
    result = run()
    assert result.exit_code == 0, result.output
    assert "MI355X: gfx950, 256 compute units" in result.stdout
    assert f"{KERNEL}.gfx950.co" in result.stdout
    assert "every name holds" in result.stdout
    assert result.stdout.rstrip().endswith("would run")


@pytest.mark.parametrize(
    ("gpu", "said"),
    [
        (None, "no GPU is visible"),
        (machine.Gpu("MI300X", "gfx942", 304), "the GPU is a gfx942, the kernels serve gfx950"),
        (machine.Gpu("MI355X", "gfx950", 32), "the GPU shows 32 compute units, a launch needs 256"),
    ],
)
def test_wrong_gpu(sound: Path, monkeypatch: pytest.MonkeyPatch, gpu: machine.Gpu | None, said: str) -> None:
    monkeypatch.setattr(machine, "find_gpu", lambda: gpu)
    (reason,) = reasons()
    assert said in reason


def test_unbuilt_kernel_and_missing_bindings(sound: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    monkeypatch.setattr(machine, "find_gpu", lambda: GFX950)
    monkeypatch.setattr(machine, "_hip_python", lambda: None)
    monkeypatch.setenv("SGLANG_AMD_MONO_CACHE", str(sound / "cache"))
    found = list(machine.refusals(machine.look([KERNEL], "gfx950"), 256))
    assert len(found) == 2
    assert f"Run `amd-mono build --kernel {KERNEL} --arch gfx950`" in found[0]
    assert "pip install 'sgl-amd-mono[gpu]'" in found[1]


def test_without_a_compiler_it_is_one_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SGLANG_AMD_MONO_COMPILER", "absent-clang")
    looked = machine.look([KERNEL, KERNEL], "gfx950")
    assert looked.compiler is None
    assert [("absent-clang" in reason) for reason in machine.refusals(looked, 256)].count(True) == 1


@pytest.mark.parametrize(
    ("plugin", "said"),
    [
        (Plugin(entry_point=None, only=None), f"no entry point {PLUGIN}"),
        (Plugin(entry_point="here", only="other,another"), f"SGLANG_PLUGINS=other,another leaves {PLUGIN} out"),
    ],
)
def test_plugin_that_is_not_loaded(sound: Path, monkeypatch: pytest.MonkeyPatch, plugin: Plugin, said: str) -> None:
    monkeypatch.setattr(installation, "find_plugin", lambda: plugin)
    (reason,) = reasons()
    assert said in reason


def test_plugin_that_the_filter_names_is_loaded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SGLANG_PLUGINS", f"other, {PLUGIN}")
    assert Plugin(entry_point="here", only=installation.find_plugin().only).is_loaded


def test_broken_contract(sound: Path) -> None:
    replace_once(sound / "sglang/srt/pool.py", "    def layer_cache(self, layer_id):", "    def cache(self, layer_id):")
    (reason,) = reasons()
    assert "decode: 1 breaches" in reason
    assert "amd-mono contract" in reason


def test_breach_of_what_no_step_needs_is_shown_alone(sound: Path) -> None:
    replace_once(sound / "sglang/srt/pool.py", "self.graph_rows", "self.replay_rows")
    assert reasons() == []
    assert "verify: 1 breaches" in run().stdout


def test_sglang_without_contract(sound: Path) -> None:
    (sound / "sglang" / PLUGIN_FILE).unlink()
    (reason,) = reasons()
    assert "has no plugin contract" in reason


def test_checkpoint_layers(tmp_path: Path) -> None:
    stack = Stack(attention=(LINEAR, FULL, LINEAR), feed_forward=(DENSE, SPARSE, SPARSE))
    (tmp_path / "config.json").write_text(json.dumps(config_document(stack)))
    mla, dense, moe = "sparse MLA, the model's module", "dense, the model's module", "MoE, the model's module"
    layers = json.loads(run(str(tmp_path), "--json").stdout)["checkpoint"]["layers"]
    assert layers == [["KDA, fused", dense], [mla, moe], ["KDA, fused", moe]]
    assert "What would serve each layer in a routed step" in run(str(tmp_path)).stdout


def test_model_without_spec(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text('{"architectures": ["OtherForCausalLM"]}')
    result = run(str(tmp_path))
    assert "OtherForCausalLM" in result.stdout
    assert "none registered" in result.stdout


@pytest.mark.parametrize("text", [None, "[]", "{", "{}", '{"architectures": null}'])
def test_unreadable_checkpoint(tmp_path: Path, text: str | None) -> None:
    if text is not None:
        (tmp_path / "config.json").write_text(text)
    result = run(str(tmp_path))
    assert isinstance(result.exception, CheckpointError)
    assert str(tmp_path / "config.json") in str(result.exception)
