"""The lint on our own sources: what they touch of SGLang has a row, and what has a row they touch."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

import sgl_amd_mono
from sgl_amd_mono import models
from sgl_amd_mono.check.lint import lint
from sgl_amd_mono.commands.contract import contracts_of_models

ROWS = [row for contract in contracts_of_models().values() for row in contract.rows]
MODELS = Path(models.__file__).parent
MONO = Path(sgl_amd_mono.__file__).parent
UPSTREAM = "mono/upstream.py"
READERS = ("upstream.py", "plugin.py", "bind.py", "spec.py")


def sources() -> dict[str, str]:
    """Every file that may touch SGLang, by the name that rows call it."""
    files = {f"mono/{name}": MONO / name for name in ("upstream.py", "plugin.py")}
    files |= {f"models/{path.parent.name}/{path.name}": path for path in MODELS.glob("*/*.py")}
    return {name: path.read_text() for name, path in files.items() if Path(name).name in READERS}


def imports_sglang(text: str) -> bool:
    """Whether the code does when it runs; an annotation may name an SGLang class that it passes on."""
    tree = ast.parse(text)
    annotations = {
        id(inner)
        for node in tree.body
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"
        for inner in ast.walk(node)
    }
    names = []
    for node in ast.walk(tree):
        if id(node) in annotations:
            continue
        if isinstance(node, ast.ImportFrom):
            names.append(node.module or "")
        elif isinstance(node, ast.Import):
            names += [alias.name for alias in node.names]
    return any(name.partition(".")[0] == "sglang" for name in names)


def problems(changed: dict[str, str] | None = None) -> list[str]:
    return [f"{problem.place} {problem.text}" for problem in lint(ROWS, sources() | (changed or {}))]


def test_rows_and_sources_agree() -> None:
    assert problems() == []


def test_nothing_else_imports_sglang() -> None:
    others = [path for folder in (MONO, MODELS) for path in folder.rglob("*.py") if path.name not in READERS]
    assert len(others) > 20
    assert [path for path in others if imports_sglang(path.read_text())] == []


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        # a name that no row has, the mistake of a new feature
        ("metadata.mamba_cache_indices", "metadata.mamba_slots", "ForwardMetadata.mamba_slots is read but has no row"),
        # a name of another class, the mistake behind PR #46980
        (
            "linear.req_to_token_pool.mamba2_layer_cache",
            "linear.mamba2_layer_cache",
            "KDAAttnBackend.mamba2_layer_cache is read but has no row",
        ),
        # a name that is only relied on
        ("batch.mamba_track_mask", "batch.mamba_track_indices", "is watched but our source reads it"),
        # a row that nothing uses any more
        ("cfg.kv_canary", '"none"', "Observability.kv_canary has a row but nothing reads it"),
    ],
)  # fmt: skip
def test_a_change_of_our_source_is_noticed(old: str, new: str, said: str) -> None:
    text = sources()[UPSTREAM]
    assert old in text
    assert any(said in problem for problem in problems({UPSTREAM: text.replace(old, new)}))


def test_every_reader_of_a_row_exists() -> None:
    named = {re.sub(r":.*", "", row.reader) for row in ROWS if row.reader}
    assert named == set(sources())
