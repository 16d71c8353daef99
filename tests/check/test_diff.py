"""What changed for us between two trees, on the releases and on the small tree."""

from __future__ import annotations

from pathlib import Path

import pytest

from sgl_amd_mono.check.diff import ABSENT, Change, changes
from sgl_amd_mono.check.explain import explain
from sgl_amd_mono.check.judge import Judge
from sgl_amd_mono.check.rows import Row, attribute, class_, method, on
from sgl_amd_mono.check.store import Store
from sgl_amd_mono.check.tree import open_tree
from sgl_amd_mono.models.qwen38_flash_next.reads import CONTRACT as QWEN
from tests.check.small_tree import FILES
from tests.check.trees import released_tree, replace_once, write_tree

TABLE = "sglang.srt.pool:Table"
ROWS = (
    *on(TABLE, method("layer_cache"), method("set_kv"), attribute("graph_rows")),
    *on("sglang.srt.output:Output", class_()),
)


def judge(folder: Path, store: Store | None = None) -> Judge:
    return Judge(open_tree(folder), store or Store(None))


def differ(tmp_path: Path, file: str, old: str, new: str) -> list[Change]:
    before, after = (write_tree(tmp_path / name, FILES) for name in ("before", "after"))
    replace_once(after / "sglang" / file, old, new)
    return changes(judge(before), judge(after), ROWS)


def test_equal_trees_differ_in_nothing(tmp_path: Path) -> None:
    """A comment above moves every line, and is no change."""
    assert differ(tmp_path, "srt/pool.py", "PAD_SLOT_ID = -1", "# a comment\nPAD_SLOT_ID = -1") == []


@pytest.mark.parametrize(
    ("file", "old", "new", "facet", "was", "becomes"),
    [
        ("srt/pool.py", "loc, k)", "loc, k, v=None)", "signature", "(layer, loc, k)", "(layer, loc, k, v=None)"),
        ("srt/pool.py", "    def set_kv(", "    def put_kv(", "existence", "method of Table", ABSENT),
        ("srt/output.py", "hidden_states: object = None", "x: int", "fields", "logits, hidden_states=", "logits, x"),
    ],
)  # fmt: skip
def test_changed_facet_is_named(
    file: str, old: str, new: str, facet: str, was: str, becomes: str, tmp_path: Path
) -> None:
    (change,) = differ(tmp_path, file, old, new)
    assert (change.facet, change.old, change.new) == (facet, was, becomes)


def test_changed_body_and_time_are_named(tmp_path: Path) -> None:
    (change,) = differ(tmp_path, "srt/pool.py", "self.layer_map[layer_id]", "layer_id")
    assert change.facet == "body"
    found = differ(
        tmp_path / "again", "srt/pool.py", "        self.graph_rows = [0]\n", "        self.graph_rows = None\n"
    )
    assert ("what", "attribute of Table, set while constructing", "attribute of Table, None for ever") in {
        (change.facet, change.old, change.new) for change in found
    }


@pytest.mark.upstream
def test_changes_between_releases_are_those_found_before(store: Store) -> None:
    """0.5.21 to 0.5.22 as another program found them: a new parameter, a new wait, and unchanged accessors."""
    old, new = (judge(released_tree(version), store) for version in ("0.5.21", "0.5.22"))
    found = {(change.row.name, change.facet): change for change in changes(old, new, QWEN.rows)}
    assert found["set_ngram_intermediate_context", "signature"].old == "(context)"
    assert found["set_ngram_intermediate_context", "signature"].new == "(context, indices=None)"
    assert ("get_ngram_context", "body") in found
    assert found["defer_block_expansion", "existence"].old == ABSENT
    assert found["qsa_compressed_dtype", "existence"].old == ABSENT
    untouched = {"mamba2_layer_cache", "mamba2_layer_index", "short_conv_layer_cache", "get_mamba_indices"}
    assert not {name for name, facet in found if facet in {"body", "signature"}} & untouched


def test_explanation_gives_the_row_the_tree_and_all_holders(tmp_path: Path) -> None:
    rows: tuple[Row, ...] = ROWS
    said, holders = explain(judge(write_tree(tmp_path, FILES)), rows, "layer_cache")
    assert [explanation.row.path for explanation in said] == [f"{TABLE}.layer_cache"]
    assert said[0].facets["signature"] == "(layer_id)"
    lines = (tmp_path / "sglang/srt/pool.py").read_text().splitlines()
    places = [f"sglang/srt/pool.py:{n}" for n, text in enumerate(lines, 1) if "def layer_cache" in text]
    assert [(holder.owner, holder.place) for holder in holders] == list(
        zip(("MambaPool", "Table"), places, strict=True)
    )
