"""Check mode: which steps, what a breach says, what a policy does with it, and that all ranks agree."""

from __future__ import annotations

import json
import logging
import math
from pathlib import Path
from typing import Any

import pytest
import torch

from sgl_amd_mono.errors import CheckError, MonoError
from sgl_amd_mono.region import Region
from sgl_amd_mono.step_check import CheckPolicy, StepCheck, check_policy
from sgl_amd_mono.upstream import TensorParallel

BOUNDS = {"kda.state.rel": 0.1, "step.logits.cosine": 0.99}
EVERY = CheckPolicy(every=1, raises=True)


class Ranks(TensorParallel, frozen=True):
    """Rank 1 of two; the other one says what it is told to."""

    other: tuple[str, ...] = ()

    def gather(self, value: Any) -> list[Any]:
        return [self.other, value]


def two_ranks(*other: str) -> Ranks:
    return Ranks(1, 2, None, other)


def checked(check: StepCheck, fused: torch.Tensor, standard: torch.Tensor) -> None:
    assert check.is_due()
    check.begin()
    check.note("kda", 4, "state", fused, standard)
    check.finish()


@pytest.mark.parametrize(
    ("text", "policy"),
    [(None, None), ("1", CheckPolicy(1, True)), ("log", CheckPolicy(1, False)), ("every=20", CheckPolicy(20, True))],
)
def test_policies(monkeypatch: pytest.MonkeyPatch, text: str | None, policy: CheckPolicy | None) -> None:
    monkeypatch.delenv("SGLANG_AMD_MONO_CHECK", raising=False)
    if text is not None:
        monkeypatch.setenv("SGLANG_AMD_MONO_CHECK", text)
    assert check_policy() == policy


@pytest.mark.parametrize("text", ["0", "true", "every=0", "every=-1", "every=", "log,every=2"])
def test_other_policies_are_refused(monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    monkeypatch.setenv("SGLANG_AMD_MONO_CHECK", text)
    with pytest.raises(MonoError, match=f"SGLANG_AMD_MONO_CHECK={text}: expected 1, log, or every=N"):
        check_policy()


def test_every_nth_step_is_due() -> None:
    check = StepCheck(CheckPolicy(3, True), BOUNDS, TensorParallel(0, 1, None))
    assert [check.is_due() for _ in range(7)] == [True, False, False, True, False, False, True]


@pytest.mark.parametrize("wrong", [5.0, math.nan, -math.inf])
def test_a_breach_names_its_place(wrong: float) -> None:
    standard = torch.ones(3, 2, 4)
    fused = standard.clone()
    fused[2, 1, 3] = wrong
    check = StepCheck(EVERY, BOUNDS, TensorParallel(0, 1, None))
    checked(check, standard, standard)
    with pytest.raises(CheckError) as caught:
        checked(check, fused, standard)
    said = "step 1, rank 0, layer 4, kda, region state, row 2: rel"
    assert said in str(caught.value)
    assert f"worst element [1, 3]: fused {wrong:.6g}, standard 1" in str(caught.value)
    assert "BREACH" in check.table()
    assert "2 of 2 routed steps compared, 2 regions, 1 bounds breached" in check.table()


def test_all_ranks_stop_for_the_breach_of_one() -> None:
    same = torch.ones(2, 2)
    check = StepCheck(EVERY, BOUNDS, two_ranks("step 0, rank 0, layer 4: a breach there"))
    with pytest.raises(CheckError, match="step 0, rank 0, layer 4: a breach there"):
        checked(check, same, same)
    # and go on where no rank has one
    checked(StepCheck(EVERY, BOUNDS, two_ranks()), same, same)


def test_a_policy_may_log_instead(caplog: pytest.LogCaptureFixture) -> None:
    check = StepCheck(CheckPolicy(1, False), BOUNDS, TensorParallel(0, 1, None))
    with caplog.at_level(logging.ERROR):
        checked(check, torch.zeros(1, 1), torch.ones(1, 1))
    assert "breach: step 0, rank 0, layer 4, kda, region state" in caplog.text


def test_the_report_has_a_line_a_step(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("SGLANG_AMD_MONO_CHECK_REPORT", str(tmp_path / "report"))
    check = StepCheck(CheckPolicy(1, False), BOUNDS, TensorParallel(1, 1, None))
    checked(check, torch.ones(1, 1), torch.ones(1, 1))
    checked(check, torch.zeros(1, 1), torch.ones(1, 1))
    first, second = map(json.loads, (tmp_path / "report.rank1").read_text().splitlines())
    assert first == {"step": 0, "rank": 1, "regions": 1, "worst": {"kda.state.rel": 0.0}, "breaches": []}
    assert second["breaches"][0] | {"value": None} == {
        "step": 1, "rank": 1, "layer": 4, "launch": "kda", "region": "state", "metric": "rel", "value": None,
        "limit": 0.1, "row": 0, "element": [0], "fused": 0.0, "standard": 1.0,
    }  # fmt: skip


def test_a_check_of_nothing_is_an_error(caplog: pytest.LogCaptureFixture) -> None:
    check = StepCheck(EVERY, BOUNDS, TensorParallel(0, 1, None))
    with caplog.at_level(logging.ERROR):
        check._say_at_exit()
    assert "nothing was compared, so nothing was proved" in caplog.text


def test_a_region_is_restored_in_its_rows_alone() -> None:
    pool = torch.arange(12.0).view(4, 3)
    region = Region(name="state", layer=0, pool=pool, rows=torch.tensor([3, 1]))
    saved = region.read()
    pool.fill_(-1)
    region.restore(saved)
    assert pool.tolist() == [[-1] * 3, [3, 4, 5], [-1] * 3, [9, 10, 11]]
