from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from sgl_amd_mono.build.compile import DEFAULT_ARCHES, kernels
from sgl_amd_mono.build.gates import Violation
from sgl_amd_mono.build.toolchain import find_toolchain
from sgl_amd_mono.cli import app
from sgl_amd_mono.commands import build as command
from sgl_amd_mono.errors import BuildError

pytestmark = pytest.mark.compile


def run(*arguments: str) -> Result:
    return CliRunner().invoke(app, ["build", *arguments])


def test_builds_every_kernel_for_the_gpu_and_the_host() -> None:
    result = run("--json")
    assert result.exit_code == 0, result.output
    built = json.loads(result.stdout)
    artifacts = [one["artifact"] for one in built]
    assert [(a["kernel"], a["arch"]) for a in artifacts] == [(k, a) for k in kernels() for a in DEFAULT_ARCHES]
    assert all(Path(artifact["binary"]).is_file() for artifact in artifacts)
    assert all(one["kernels"] == one["violations"] == [] for one in built)


def test_says_compiler_file_and_cache() -> None:
    run("--arch", "gfx950")
    result = run("--arch", "gfx950")
    assert result.exit_code == 0
    for kernel in kernels():
        assert f"{kernel} for gfx950: cached" in result.stdout
        assert f"{kernel}.co" in result.stdout
    assert f"Compiler: {find_toolchain()}" in result.stdout
    assert "host" not in result.stdout


def test_resources_as_table_and_json() -> None:
    (first, *_) = kernels()
    names = {kernel["name"] for kernel in json.loads(run("--resources", "--json").stdout)[0]["kernels"]}
    assert names
    table = run("--resources", "--arch", "gfx950", "--kernel", first).stdout
    for name in names:
        assert name in table


def test_a_broken_gate_is_shown_and_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    broken = Violation("no flat access", "k", "line 3: flat_load")
    monkeypatch.setattr(command, "violations", lambda artifact: (broken,))
    result = run("--resources", "--arch", "gfx950")
    assert result.exit_code == 1
    assert "gfx950: k: no flat access: line 3: flat_load" in result.stdout


def test_unknown_kernel_is_the_users_error() -> None:
    result = run("--kernel", "absent")
    assert isinstance(result.exception, BuildError)
    assert "absent" in str(result.exception)


def test_no_kernels_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sgl_amd_mono.build.compile.kernels", tuple)
    assert "install the package again" in str(run().exception)
