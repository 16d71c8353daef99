"""`amd-mono contract`: its exit status and its forms of output."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from sgl_amd_mono.commands.contract import contract, contracts_of_models
from sgl_amd_mono.errors import ContractError
from tests.check import pr46980
from tests.check.trees import copied_tree, released_tree, released_wheel

pytestmark = pytest.mark.upstream

app = typer.Typer()
app.command()(contract)


@pytest.fixture(autouse=True)
def cache(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SGLANG_AMD_MONO_CACHE", str(tmp_path_factory.getbasetemp() / "contract-cache"))
    monkeypatch.setenv("COLUMNS", "200")


@pytest.fixture
def broken(tmp_path: Path) -> Path:
    tree = copied_tree(released_tree("0.5.23"), tmp_path)
    pr46980.remove(tree)
    return tree


def run(*arguments: str | Path) -> tuple[int, str]:
    result = CliRunner().invoke(app, [str(argument) for argument in arguments])
    if isinstance(result.exception, ContractError):
        raise result.exception
    return result.exit_code, result.output


def test_every_model_with_a_table_is_found() -> None:
    assert set(contracts_of_models()) == {"glm53_flash", "qwen38_flash_next"}


def test_release_that_holds() -> None:
    status, output = run("--sglang", released_wheel("0.5.23"))
    assert status == 0
    assert "SGLang 0.5.23 at " in output
    assert "checked in " in output
    assert output.count("state_layer_cache (PR #46980) is absent: binding the request table's mamba2_layer_cache") == 2


def test_release_without_contract() -> None:
    status, output = run("--sglang", released_wheel("0.5.22"))
    assert status == 1
    assert "unsupported: no plugin contract" in output
    assert len(output.splitlines()) == 2


def test_breach_as_table(broken: Path) -> None:
    status, output = run("--sglang", broken, "--model", "glm53_flash")
    assert status == 1
    assert "MambaPool still has it" in output
    assert "decode: broken" in output
    assert "start-up: names hold" in output
    assert "qwen38_flash_next" not in output


def test_breach_as_markdown(broken: Path) -> None:
    status, output = run("--sglang", broken, "--format", "github", "--model", "glm53_flash")
    assert status == 1
    assert "| decode | **broken**: 3 breaches |" in output
    assert "| **missing** | `HybridReqToTokenPool.mamba2_layer_cache` |" in output


def test_breach_as_json(broken: Path) -> None:
    status, output = run("--sglang", broken, "--json")
    report = json.loads(output)
    assert status == report["exit_code"] == 1
    (glm,) = [model for model in report["models"] if model["model"] == "glm53_flash"]
    assert glm["profile"] == "request table"
    assert not glm["parts"]["decode"]
    (lost,) = [f for f in glm["findings"] if f["name"] == "HybridReqToTokenPool.mamba2_layer_cache"]
    assert (lost["verdict"], lost["level"]) == ("missing", "breach")
    assert lost["upstream"].startswith("sglang/srt/mem_cache/memory_pool.py:")


def test_diff_and_explanation() -> None:
    status, output = run("--diff", released_tree("0.5.22"), released_tree("0.5.23"), "--json")
    assert status == 0
    assert {"name": "sglang.kernels.plugin_kernels.amd.spec:MonoSpec", "facet": "existence"}.items() <= next(
        change for change in json.loads(output) if change["name"].endswith(":MonoSpec")
    ).items()
    status, output = run("--sglang", released_tree("0.5.23"), "--explain", "mamba2_layer_cache")
    assert status == 0
    assert "MambaPool" in output
    assert "HybridReqToTokenPool" in output


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--sglang", "."), "holds no SGLang"),
        (("--sglang", ".", "--model", "gpt2"), "no model gpt2"),
    ],
)
def test_what_cannot_be_checked_is_an_error(
    arguments: tuple[str, ...], message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The command line turns it into one message and exit status 2."""
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ContractError, match=message):
        run(*arguments)


def test_unknown_name_is_an_error() -> None:
    with pytest.raises(ContractError, match="Neither a row nor the tree has no_such_name"):
        run("--sglang", released_tree("0.5.23"), "--explain", "no_such_name")
