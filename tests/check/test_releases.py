"""The contracts of both models on the released SGLang wheels and on 0.5.23 changed the way PR #46980 is described."""

from __future__ import annotations

import re
import time
from pathlib import Path

import pytest

from sgl_amd_mono.check.errors import TreeError
from sgl_amd_mono.check.findings import Level, Verdict
from sgl_amd_mono.check.report import ModelReport, Report, check
from sgl_amd_mono.check.store import Store
from sgl_amd_mono.check.tree import open_tree
from sgl_amd_mono.models.glm53_flash.reads import CONTRACT as GLM
from sgl_amd_mono.models.qwen38_flash_next.reads import CONTRACT as QWEN
from tests.check import pr46980
from tests.check.trees import copied_tree, released_tree, released_wheel

CONTRACTS = (GLM, QWEN)

# rows that die with the removals, by model: the names of pr46980.REMOVED_METHODS that a row reads, and the counter
DEAD = {
    "glm53_flash": {"mamba2_layer_cache", "mamba2_layer_index", "layer_transfer_counter"},
    "qwen38_flash_next": {
        "mamba2_layer_cache",
        "mamba2_layer_index",
        "layer_transfer_counter",
        "short_conv_layer_cache",
        "short_conv_layer_intermediate_cache",
    },
}

pytestmark = pytest.mark.upstream


def report_on(place: Path, store: Store) -> Report:
    return check(open_tree(place), CONTRACTS, store)


def breaches(model: ModelReport) -> set[str]:
    return {finding.label for finding in model.at(Level.BREACH)}


def test_0_5_23_holds_and_says_which_binding_is_used(store: Store) -> None:
    report = report_on(released_wheel("0.5.23"), store)
    assert report.release == "0.5.23"
    assert report.exit_code == 0
    for model in report.models:
        assert model.profile.name == "request table"
        assert re.fullmatch(
            r"\w+\.state_layer_cache \(PR #46980\) is absent: binding .*mamba2_layer_cache", model.choice
        )
        assert not model.at(Level.REVIEW)
        assert all(part.runs for part in model.parts)


@pytest.mark.parametrize("version", ["0.5.21", "0.5.22"])
def test_release_without_plugin_contract_is_one_verdict(version: str, store: Store) -> None:
    report = report_on(released_wheel(version), store)
    assert report.unsupported.startswith("no plugin contract")
    assert report.exit_code == 1
    assert report.models == ()


def test_wheel_and_folder_agree(store: Store) -> None:
    of_wheel, of_folder = (report_on(place("0.5.23"), store) for place in (released_wheel, released_tree))
    assert [m.findings for m in of_wheel.models] == [m.findings for m in of_folder.models]


def test_whole_tree_takes_seconds(tmp_path: Path) -> None:
    """Under 10 s cold and 2 s warm, on the unpacked release."""
    tree = released_tree("0.5.23")
    store = Store(tmp_path)
    spent = []
    for _ in range(2):
        start = time.process_time()
        report_on(tree, store)
        spent.append(time.process_time() - start)
    cold, warm = spent
    assert cold < 10
    assert warm < 2


def test_tree_of_pr_46980_is_bound_through_the_router(tmp_path: Path, store: Store) -> None:
    tree = copied_tree(released_tree("0.5.23"), tmp_path)
    pr46980.apply(tree)
    for file in (tree / "sglang").rglob("*.py"):
        # links to the release have more than one name; what the change wrote has one
        if file.stat().st_nlink == 1:
            compile(file.read_text(), str(file), "exec")
    report = report_on(tree, store)
    assert report.exit_code == 0
    for model in report.models:
        assert model.profile.name == "layer router"
        assert "state_layer_cache (PR #46980) is present" in model.choice


def test_removals_alone_fail_on_exactly_the_dead_rows(tmp_path: Path, store: Store) -> None:
    """The failure of the text search that this checker replaces: MambaPool still has the name, in the same file."""
    tree = copied_tree(released_tree("0.5.23"), tmp_path)
    pr46980.remove(tree)
    report = report_on(tree, store)
    assert report.exit_code == 1
    for model in report.models:
        assert model.profile.name == "request table"
        assert breaches(model) == {f"HybridReqToTokenPool.{name}" for name in DEAD[model.contract.model]}
        (lost,) = [f for f in model.at(Level.BREACH) if f.row.name == "mamba2_layer_cache"]
        assert lost.verdict is Verdict.MISSING
        assert lost.hints[0].startswith("MambaPool still has it (sglang/srt/mem_cache/memory_pool.py:")
        assert "state_layer_cache" in lost.hints[-1]
        assert not next(part for part in model.parts if part.name == "decode").runs
        assert next(part for part in model.parts if part.name == "start-up").runs


def test_text_search_passes_where_the_row_is_dead(tmp_path: Path) -> None:
    tree = copied_tree(released_tree("0.5.23"), tmp_path)
    pr46980.remove(tree)
    assert "def mamba2_layer_cache(" in (tree / "sglang/srt/mem_cache/memory_pool.py").read_text()


def test_each_row_of_a_release_is_found_by_a_name_that_the_release_has(store: Store) -> None:
    """Every row of the chosen profile is judged, and none twice under another name."""
    report = report_on(released_tree("0.5.23"), store)
    for model in report.models:
        judged = {finding.row.path for finding in model.findings}
        expected = {row.path for row in model.contract.of(model.profile)}
        assert judged == expected


def test_fingerprints_agree_with_an_independent_reading(store: Store) -> None:
    """Which bodies changed between the releases was found before, by another program: the pins must say the same."""
    unchanged = {
        "mamba2_layer_cache", "mamba2_layer_index", "short_conv_layer_cache", "short_conv_layer_intermediate_cache",
        "get_mamba_indices", "translate_mamba_indices", "get_compress_tail_buffers", "_create_buffers",
        "_track_mamba_state_decode", "_forward_cuda_target_verify", "_compress_write_decode", "_prepare_ple_batch",
        "wait_until", "get_attn_backend",
    }  # fmt: skip
    since_22 = {
        "get_ngram_context",
        "set_ngram_intermediate_context",
        "_update_ple_state_after_mtp_verify",
        "_can_fuse_proj",
    }
    pins = {row.name: set(row.body) for contract in CONTRACTS for row in contract.rows if row.body}
    assert {name for name in unchanged if pins[name] != {"0.5.21"}} == set()
    assert {name for name in since_22 if pins[name] != {"0.5.22"}} == set()


def test_what_is_not_sglang_cannot_be_checked(tmp_path: Path) -> None:
    with pytest.raises(TreeError, match="holds no SGLang"):
        open_tree(tmp_path)
    (tmp_path / "x.whl").write_bytes(b"not a zip")
    with pytest.raises(TreeError, match="not a readable wheel"):
        open_tree(tmp_path / "x.whl")
