from __future__ import annotations

import ast
from pathlib import Path

import pytest

import sgl_amd_mono
from sgl_amd_mono import env

ROOT = Path(sgl_amd_mono.__file__).parents[1]
PACKAGES = ("mono", "models", "hip", "check")


def test_every_variable_is_listed_once() -> None:
    declared = [value for value in vars(env).values() if isinstance(value, env.Variable)]
    assert sorted(variable.name for variable in declared) == sorted(variable.name for variable in env.VARIABLES)
    assert len({variable.name for variable in declared}) == len(declared)
    assert all(variable.doc.endswith(".") for variable in declared)


def test_every_variable_is_documented() -> None:
    pages = "".join(page.read_text() for page in (ROOT / "docs").glob("*.md"))
    for variable in env.VARIABLES:
        assert f"`{variable.name}`" in pages


def test_unset_and_empty_are_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ROCM_PATH", "/opt/rocm-7")
    assert env.ROCM_PATH.get() == "/opt/rocm-7"
    monkeypatch.setenv("ROCM_PATH", "")
    assert env.ROCM_PATH.get() is None
    monkeypatch.delenv("ROCM_PATH")
    assert env.ROCM_PATH.get() is None


def environment_reads(source: str) -> list[int]:
    """Lines of a module that name the process environment."""
    names = {"environ", "environb", "getenv", "getenvb", "putenv"}
    named = [
        (node, node.attr if isinstance(node, ast.Attribute) else node.name)
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.Attribute | ast.alias)
    ]
    return [node.lineno for node, name in named if name in names]


def test_no_other_module_reads_the_environment() -> None:
    modules = [path for package in PACKAGES for path in (ROOT / package).rglob("*.py")]
    reads = {path.relative_to(ROOT).as_posix(): environment_reads(path.read_text()) for path in modules}
    assert {path for path, lines in reads.items() if lines} == {"mono/env.py"}


@pytest.mark.parametrize(
    "source",
    ["import os\nos.environ['X']", "import os\nos.getenv('X')", "from os import environ", "import os as o\no.environ"],
)
def test_a_read_is_seen(source: str) -> None:
    assert environment_reads(source)
    assert not environment_reads(source.replace("environ", "path").replace("getenv", "stat"))
