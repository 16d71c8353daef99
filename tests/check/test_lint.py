"""The lint of our own sources against the rows, on small sources that read the small tree."""

from __future__ import annotations

import ast
from collections.abc import Sequence
from pathlib import Path

import pytest

from sgl_amd_mono.check.flow import uses_in
from sgl_amd_mono.check.lint import lint, readers, sources_of
from sgl_amd_mono.check.rows import Call, Row, attribute, calls, class_, field_, function, method, on, strings
from sgl_amd_mono.models.glm53_flash.reads import CONTRACT as GLM
from sgl_amd_mono.models.qwen38_flash_next.reads import CONTRACT as QWEN

POOL = "sglang.srt.pool"
BIND = "models/small/bind.py"

ROWS = (
    *on("sglang.srt.context", function("get_table", call=Call(), gives=(f"{POOL}:Table",)), reader=BIND),
    *on(
        f"{POOL}:Table",
        attribute("state_pool", gives=(f"{POOL}:MambaPool",)),
        attribute("rows"),
        method("layer_cache", call=Call(1, ("wait",)), gives=(f"{POOL}:State",)),
        reader=BIND,
    ),
    *on(f"{POOL}:MambaPool", attribute("size"), reader=BIND),
    *on(f"{POOL}:State", attribute("conv"), reader=BIND),
    *on("sglang.srt.output:Output", class_(call=Call(keywords=("logits",))), field_("logits"), reader=BIND),
    *on("sglang.srt.environ", strings("dispatch", steps=("SGLANG_USE_AITER",)), reader=BIND),
    *on("sglang.srt.runner:ModelRunner", calls("load_model", steps=("install",)), reader=BIND),
)

CLEAN = """
import os

import torch
from sglang.srt.context import get_table
from sglang.srt.output import Output
from sglang.srt.pool import Table


def bind(table: Table, layers: list[int]) -> list[torch.Tensor]:
    size = table.state_pool.size
    rows = getattr(table, "rows")
    caches = [get_table().layer_cache(i, wait=True) for i in layers]
    return [cache.conv[0].view(size, rows.shape[0]) for cache in caches]


def answer(output: Output) -> Output:
    return Output(logits=output.logits)
"""


def problems(source: str, rows: Sequence[Row] = ROWS) -> list[str]:
    return [f"{problem.place} {problem.text}" for problem in lint(rows, {BIND: source})]


def test_source_that_reads_what_the_rows_say_is_clean() -> None:
    assert problems(CLEAN) == []


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("table.state_pool.size", "table.state_pool.length", "MambaPool.length is read but has no row"),
        # the name has a row on another class: exactly the mistake of a file-wide search, the other way round
        ("table.state_pool.size", "table.size", "Table.size is read but has no row (there is one for MambaPool.size)"),
        ('getattr(table, "rows")', 'getattr(table, "columns")', "Table.columns is read but has no row"),
        ("wait=True", "block=True", "Table.layer_cache is called with block, which its row does not name"),
        ("(i, wait=True)", "(i, 0, wait=True)", "Table.layer_cache is called with 2 arguments, its row says 1"),
        ("Output(logits=", "Output(hidden=", "Output is called with hidden, which its row does not name"),
        ("import Table", "import KVPool, Table", "sglang.srt.pool:KVPool is imported but has no row"),
        ("import os", "import sglang", "sglang is imported as a module"),
        ("    size =", "    table.depth = 1\n    size =", "Table.depth is read but has no row"),
        ("    size =", '    os.environ["SGLANG_NEW"]\n    size =', "SGLANG_NEW is an SGLang variable without a row"),
        (
            "def answer(output: Output)",
            "def answer(output: 'Output | None')",
            "",
        ),
    ],
)  # fmt: skip
def test_undeclared_use_is_named_with_its_line(old: str, new: str, said: str) -> None:
    assert CLEAN.count(old) == 1
    found = problems(CLEAN.replace(old, new))
    if not said:
        assert found == []
        return
    line = next(n for n, text in enumerate(CLEAN.replace(old, new).splitlines(), 1) if new.splitlines()[0] in text)
    assert any(said in text and text.startswith(f"{BIND}:") for text in found), found
    assert any(f"{BIND}:{line} " in text for text in found)


def test_known_variable_and_own_variable_are_no_problem() -> None:
    source = CLEAN.replace("    size =", '    names = ("SGLANG_USE_AITER", "SGLANG_AMD_MONO_CHECK")\n    size =')
    assert problems(source) == []


def test_isinstance_narrows_a_union() -> None:
    rows = (
        *on(f"{POOL}:Layer", attribute("attn", gives=(f"{POOL}:Linear", f"{POOL}:Full")), reader=BIND),
        *on(f"{POOL}:Linear", attribute("decay"), reader=BIND),
        *on(f"{POOL}:Full", attribute("indexer"), reader=BIND),
    )
    source = """
from sglang.srt.pool import Full, Layer, Linear

def bind(layer: Layer):
    attn = layer.attn
    if isinstance(attn, Linear):
        return attn.decay
    if isinstance(attn, Full):
        return attn.indexer
"""
    assert problems(source, rows) == []
    wrong = problems(source.replace("attn.decay", "attn.indexer"), rows)
    assert f"{BIND}:7 Linear.indexer is read but has no row (there is one for Full.indexer)" in wrong


def test_unused_row_and_absent_reader_are_problems() -> None:
    assert problems(
        CLEAN.replace('    rows = getattr(table, "rows")\n', "    rows = layers\n").replace("rows.shape", "rows.index")
    ) == [f"{BIND} Table.rows has a row but nothing reads it: drop the row"]
    found = lint(ROWS, {})
    assert len(found) == sum(not row.watched for row in ROWS)
    assert all("does not exist" in problem.text for problem in found)


def test_readers_are_our_own_file_line_and_function() -> None:
    line = next(n for n, text in enumerate(CLEAN.splitlines(), 1) if "state_pool" in text)
    assert readers(ROWS, {BIND: CLEAN})[f"{POOL}:Table.state_pool"] == f"{BIND}:{line} (bind)"


def test_sources_are_the_readers_that_exist(tmp_path: Path) -> None:
    (tmp_path / "small").mkdir()
    (tmp_path / "small/bind.py").write_text(CLEAN)
    assert sources_of(ROWS, {"models": tmp_path}) == {BIND: CLEAN}


@pytest.mark.parametrize("contract", [GLM, QWEN], ids=lambda contract: contract.model)
def test_every_row_names_its_reader_and_purpose(contract: object) -> None:
    rows = GLM.rows if contract is GLM else QWEN.rows
    for row in rows:
        assert row.reader or row.watched
        assert row.needed_for
        assert row.since


_OWN = """
from typing import Any

from sglang.srt.pool import MambaPool, Table

class Binding:
    pool: MambaPool

    def size(self):
        return self.pool.{on_pool}, self.table.{on_table}, self.again().state_pool.{on_pool}

    def __init__(self, table: Table):
        self.table = table

    def again(self) -> Table:
        return self.table

def free(table: Table) -> MambaPool:
    return table.state_pool

def use(table: Table, other: {other}):
    return free(table).{on_pool}, other.anything
"""


def used(**names: str) -> set[str]:
    uses = uses_in(ast.parse(_OWN.format(**{"on_pool": "size", "on_table": "rows", "other": "int"} | names)), ROWS)
    return {f"{use.line} {use.name}" for use in uses if use.row is None}


def test_value_is_followed_through_our_own_objects_and_functions() -> None:
    """Fields, attributes set further down, and what our functions return; a wrong name shows at every read of it."""
    assert used() == set()
    assert used(on_table="depth") == {"10 Table.depth"}
    assert used(on_pool="depth") == {"10 MambaPool.depth", "22 MambaPool.depth"}


def test_parameter_that_could_be_anything_has_to_be_declared() -> None:
    assert used(other="Any") == {"22 anything"}


_STATE = """
from sglang.srt.model_executor.forward_batch_info import ForwardBatch
from sglang.srt.model_executor.forward_context import get_attn_backend

def bind(layer_id: int, batch: ForwardBatch):
    linear = get_attn_backend().linear_attn_backend
    if hasattr(linear, "state_layer_cache"):
        state = linear.state_layer_cache(layer_id)
    else:
        state = linear.req_to_token_pool.mamba2_layer_cache(layer_id)
    slots = linear.forward_metadata.mamba_cache_indices
    return state.conv[0], state.temporal, slots, batch.forward_mode.is_decode()
"""


def test_rows_of_a_model_follow_the_whole_chain_to_its_state() -> None:
    uses = uses_in(ast.parse(_STATE), GLM.rows)
    assert [use.problem for use in uses if use.row is None] == []
    read = {use.row.label for use in uses if use.row}
    assert {
        "KDAAttnBackend.state_layer_cache",
        "HybridReqToTokenPool.mamba2_layer_cache",
        "MambaPool.State.conv",
        "ForwardMetadata.mamba_cache_indices",
        "ForwardMode.is_decode",
    } <= read


def test_wrong_hop_in_that_chain_is_seen() -> None:
    """`forward_metadata` of the hybrid backend is a class default of None: only the linear backend's has a row."""
    wrong = _STATE.replace("linear.forward_metadata", "get_attn_backend().forward_metadata")
    (problem,) = [use for use in uses_in(ast.parse(wrong), GLM.rows) if use.row is None]
    assert problem.name == "HybridLinearAttnBackend.forward_metadata"
    assert "KDAAttnBackend.forward_metadata" in problem.problem
