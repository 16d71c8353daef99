"""Refusal reasons at start-up, on the small tree."""

from __future__ import annotations

from pathlib import Path

import pytest

from sgl_amd_mono.check.rows import Call, Contract, Probe, Profile, attribute, constant, method, on
from sgl_amd_mono.check.startup import refusal_reasons
from sgl_amd_mono.check.store import Store
from sgl_amd_mono.check.tree import FolderTree, open_tree
from tests.check.small_tree import FILES, PLUGIN_FILE
from tests.check.trees import replace_once, write_tree

PLUGIN = "sglang.kernels.plugin_kernels.amd.spec"
TABLE = "sglang.srt.pool:Table"
OLD, NEW = Profile("old", "the table"), Profile("new", "the backend")
CONTRACT = Contract(
    "small",
    "Small",
    PLUGIN,
    Probe(TABLE, "state_layer_cache", "a change", present=NEW, absent=OLD),
    (
        *on(PLUGIN, constant("MONOKERNEL_API_VERSION", value=("1",)), needed_for="start-up"),
        *on(
            TABLE,
            method("layer_cache", call=Call(1), replaced_by="the backend's state_layer_cache"),
            needed_for="decode",
        ),
        *on(TABLE, attribute("context_rows_of_verify", profile="new"), needed_for="verify"),
        *on(TABLE, attribute("graph_rows"), needed_for="verify"),
    ),
)


def reasons(folder: Path, *parts: str, store: Store | None = None) -> list[str]:
    return refusal_reasons(CONTRACT, open_tree(folder), store or Store(None), parts)


def test_tree_that_holds_gives_no_reason(tmp_path: Path) -> None:
    assert reasons(write_tree(tmp_path, FILES), "start-up", "decode", "verify") == []


def test_breach_names_the_row_and_the_cure(tmp_path: Path) -> None:
    replace_once(
        write_tree(tmp_path, FILES) / "sglang/srt/pool.py",
        "    def layer_cache(self, layer_id):",
        "    def cache(self, layer_id):",
    )
    (reason,) = reasons(tmp_path, "decode")
    assert reason.startswith("Table.layer_cache Table has no layer_cache (missing at sglang/srt/pool.py:")
    assert "MambaPool still has it" in reason
    assert "replaced by the backend's state_layer_cache" in reason
    assert "amd-mono contract --explain layer_cache" in reason


def test_breach_of_an_unused_part_is_no_reason(tmp_path: Path) -> None:
    replace_once(write_tree(tmp_path, FILES) / "sglang/srt/pool.py", "self.graph_rows", "self.replay_rows")
    assert reasons(tmp_path, "start-up", "decode") == []
    assert len(reasons(tmp_path, "start-up", "decode", "verify")) == 1


def test_tree_without_contract_is_one_reason(tmp_path: Path) -> None:
    (write_tree(tmp_path, FILES) / "sglang" / PLUGIN_FILE).unlink()
    (reason,) = reasons(tmp_path, "decode")
    assert "no plugin contract" in reason


def test_tree_that_cannot_be_parsed_is_a_reason(tmp_path: Path) -> None:
    (write_tree(tmp_path, FILES) / "sglang/srt/pool.py").write_text("class Table(:\n")
    (reason,) = reasons(tmp_path, "decode")
    assert "could not be checked" in reason
    assert "sglang/srt/pool.py" in reason


def test_answer_is_kept_until_the_tree_changes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The second process of a server reads no source; a changed file is judged anew."""
    tree, store = write_tree(tmp_path / "tree", FILES), Store(tmp_path / "facts")
    assert reasons(tree, "decode", store=store) == []
    with monkeypatch.context() as patch:
        patch.setattr(FolderTree, "read", lambda *_: pytest.fail("the answer was kept, so no file is read"))
        assert reasons(tree, "decode", store=store) == []
    replace_once(tree / "sglang/srt/pool.py", "    def layer_cache(self, layer_id):", "    def cache(self, layer_id):")
    assert len(reasons(tree, "decode", store=store)) == 1
