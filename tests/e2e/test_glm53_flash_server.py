"""GLM-5.3-Flash on a real SGLang server with --enable-amd-monokernel: tokens, check mode, hidden states, faults.

On the CPU the server runs a tiny checkpoint at TP 1 and TP 2 over gloo. On a machine with an MI355X, with
MONO_E2E_MODEL naming a checkpoint, the same tests run it there, at MONO_E2E_TP (4).
"""

from __future__ import annotations

import json
import re
import time
from pathlib import Path
from typing import Any

import psutil
import pytest
import torch

from sgl_amd_mono.models.glm53_flash.numerics import STANDARD_BOUNDS
from tests.e2e.conftest import SPY, Served
from tests.e2e.server import FLAG, MODEL, Server

pytestmark = pytest.mark.e2e

TOKENS = 26
"""Of each of eight prompts: 208 in all."""
PROMPTS = 8
WIDTHS = (1, 2, 4, 8)
HIDDEN_STATES = "--enable-return-hidden-states"
WATCHDOG_S = 60
REGIONS = {"conv_state", "state", "partial", "latent", "index_key", "index_tail", "hidden", "logits"}


@pytest.fixture(scope="module")
def size(checkpoints: dict[int, Served]) -> int:
    """The tensor-parallel size that most tests run at."""
    return min(checkpoints)


@pytest.fixture(scope="module")
def standard(checkpoints: dict[int, Served], tmp_path_factory: pytest.TempPathFactory) -> dict[int, Any]:
    """By tensor-parallel size, the standard path's answers to the prompts: made once, by a server without the flag."""
    answers: dict[int, Any] = {}
    for tp_size, served in checkpoints.items():
        log = tmp_path_factory.mktemp("standard") / f"tp{tp_size}.log"
        tokens = TOKENS if tp_size == min(checkpoints) else SHORT
        with Server(served.folder, log, [HIDDEN_STATES], tp_size=tp_size) as server:
            answers[tp_size] = server.generate(served.prompts(PROMPTS), tokens, return_hidden_states=True)
    return answers


SHORT = 6
"""Tokens where what is tested does not need many."""


def expected_tokens(answers: Any, tokens: int) -> list[list[int]]:
    return [answer["output_ids"][:tokens] for answer in answers]


class TestMonokernelDecode:
    @pytest.mark.parametrize("kind", ["released", "two ranks", "PR #46980"])
    def test_served_sizes_run_fused_and_give_the_standard_paths_tokens(
        self,
        kind: str,
        checkpoints: dict[int, Served],
        standard: dict[int, Any],
        request: pytest.FixtureRequest,
        tmp_path: Path,
    ) -> None:
        tp_size = max(checkpoints) if kind == "two ranks" else min(checkpoints)
        served = checkpoints[tp_size]
        tokens = TOKENS if kind == "released" else SHORT
        prompts = served.prompts(PROMPTS)
        wanted = expected_tokens(standard[tp_size], tokens)
        tree = request.getfixturevalue("changed_sglang") if kind == "PR #46980" else None
        with Server(served.folder, tmp_path / "log", [FLAG], tp_size=tp_size, tree=tree) as server:
            assert server.tokens(prompts, tokens) == wanted
            for width in WIDTHS[:-1]:
                assert server.tokens(prompts[:width], 3) == [answer[:3] for answer in wanted[:width]]
            log = server.log
        if served.language:
            # known from the checkpoint's language alone
            assert wanted == [served.language.continuation(prompt, tokens) for prompt in prompts]
        assert kind != "released" or sum(map(len, wanted)) >= 200
        assert f"glm53_flash on gfx950 runs decode steps of batch size {list(WIDTHS)}" in log
        for rank in range(tp_size):
            for width in WIDTHS:
                assert first_step(log, width, rank if tp_size > 1 else None)
        binding = (
            "the linear-attention backend's state_layer_cache" if tree else "the request table's mamba2_layer_cache"
        )
        assert f"states through {binding}" in log
        assert SPY not in log

    def test_an_unserved_size_falls_back(
        self, checkpoints: dict[int, Served], standard: dict[int, Any], size: int, tmp_path: Path
    ) -> None:
        prompts = checkpoints[size].prompts(3)
        with Server(checkpoints[size].folder, tmp_path / "log", [FLAG], tp_size=size) as server:
            assert server.tokens(prompts, SHORT) == expected_tokens(standard[size][:3], SHORT)
            assert not first_step(server.log, 3)
            assert not any(first_step(server.log, width) for width in WIDTHS)
            # the same server does run the sizes that it serves
            assert server.tokens(prompts[:2], SHORT) == expected_tokens(standard[size][:2], SHORT)
            assert first_step(server.log, 2)


class TestMonokernelCheck:
    def test_regions_are_compared_and_none_is_breached(
        self, checkpoints: dict[int, Served], standard: dict[int, Any], size: int, tmp_path: Path
    ) -> None:
        report = tmp_path / "report"
        variables = {"SGLANG_AMD_MONO_CHECK": "1", "SGLANG_AMD_MONO_CHECK_REPORT": str(report)}
        prompts = checkpoints[size].prompts(PROMPTS)
        arguments = [FLAG, "--disable-cuda-graph"]
        with Server(
            checkpoints[size].folder, tmp_path / "log", arguments, tp_size=size, environment=variables
        ) as server:
            assert server.tokens(prompts, TOKENS) == expected_tokens(standard[size], TOKENS)
        steps = read_report(report, rank=0)
        assert len(steps) >= TOKENS - 1
        assert all(step["regions"] > 0 and not step["breaches"] for step in steps)
        assert {name.split(".")[1] for step in steps for name in step["worst"]} == REGIONS

    @pytest.mark.parametrize("region", ["state", "conv_state", "partial"])
    def test_an_injected_corruption_is_reported(
        self, region: str, checkpoints: dict[int, Served], tmp_path: Path
    ) -> None:
        tp_size = max(checkpoints)
        report = tmp_path / "report"
        variables = {
            "SGLANG_AMD_MONO_CHECK": "log",
            "SGLANG_AMD_MONO_CHECK_REPORT": str(report),
            "MONO_FAULT_INJECT": f"corrupt:{region}@0+1/{tp_size - 1}",
        }
        served = checkpoints[tp_size]
        arguments = [FLAG, "--disable-cuda-graph"]
        with Server(served.folder, tmp_path / "log", arguments, tp_size=tp_size, environment=variables) as server:
            server.tokens(served.prompts(2), 4)
            log = server.log
        first, second = read_report(report, rank=tp_size - 1)[:2]
        assert first["breaches"] == []
        found = {(breach["layer"], breach["launch"], breach["region"]) for breach in second["breaches"]}
        assert (0, "kda", region) in found
        assert f"step 1, rank {tp_size - 1}, layer 0, kda, region {region}, row 1" in log
        assert "MONO_FAULT_INJECT is set, for tests only" in log


class TestMonokernelHiddenStates:
    def test_returned_hidden_states_are_within_bounds_in_all_rows(
        self, checkpoints: dict[int, Served], standard: dict[int, Any], tmp_path: Path
    ) -> None:
        for tp_size, served in checkpoints.items():
            arguments = [FLAG, HIDDEN_STATES]
            with Server(served.folder, tmp_path / f"log{tp_size}", arguments, tp_size=tp_size) as server:
                answers = server.generate(served.prompts(PROMPTS), SHORT, return_hidden_states=True)
                assert first_step(server.log, PROMPTS)
            bound = STANDARD_BOUNDS["step.hidden.cosine"]
            for fused, wanted in zip(answers, standard[tp_size], strict=True):
                rows, wanted_rows = hidden_rows(fused)[: SHORT - 1], hidden_rows(wanted)[: SHORT - 1]
                assert rows.shape == wanted_rows.shape
                assert torch.nn.functional.cosine_similarity(rows, wanted_rows).min() >= bound


class TestMonokernelFault:
    @pytest.mark.parametrize("ranks", ["one rank", "all ranks"])
    def test_a_stalled_workgroup_ends_the_server_before_the_watchdog(
        self, ranks: str, checkpoints: dict[int, Served], tmp_path: Path
    ) -> None:
        tp_size = min(checkpoints) if ranks == "one rank" else max(checkpoints)
        served = checkpoints[tp_size]
        stalled = tp_size - 1
        arguments = [FLAG, "--watchdog-timeout", str(WATCHDOG_S)]
        # SGLang would wait a minute for dumps of CUDA, after every rank has ended
        variables = {"MONO_FAULT_INJECT": f"stall@0+1/{stalled}", "SGLANG_CUDA_COREDUMP_BEFORE_CRASH_WAIT_SECS": "0"}
        with Server(served.folder, tmp_path / "log", arguments, tp_size=tp_size, environment=variables) as server:
            # the first routed step is sound, and the first prompt is slower than any other
            server.tokens(served.prompts(2), 2)
            family = server.family()
            began = time.monotonic()
            with pytest.raises(Exception, match=r"onnection"):
                server.tokens(served.prompts(2), 4)
            assert psutil.wait_procs(family, timeout=WATCHDOG_S)[1] == []
            assert time.monotonic() - began < WATCHDOG_S
            log = server.log
        record = (
            rf"rank {stalled}, layer 0, phase kda_\w+, workgroup \d+: a wait passed its deadline; expected epoch \d+"
        )
        assert re.search(record, log)
        assert "atchdog timeout" not in log


def first_step(log: str, rows: int, rank: int | None = None) -> bool:
    """Whether a rank's log says that it ran its first fused step of so many rows."""
    tag = f" TP{rank}]" if rank is not None else r"[^\]]*\]"
    return re.search(rf"{tag} monokernel: first step of {rows} rows", log) is not None


def read_report(report: Path, rank: int) -> list[dict[str, Any]]:
    """The lines of the check's JSON report of one rank."""
    lines = Path(f"{report}.rank{rank}").read_text().splitlines()
    return [json.loads(line) for line in lines]


def hidden_rows(answer: dict[str, Any]) -> torch.Tensor:
    """Hidden states of the decoded tokens of one answer, [tokens, hidden]."""
    # the first entry holds the prompt's rows
    _, *decoded = answer["meta_info"]["hidden_states"]
    return torch.tensor([row[0] if isinstance(row[0], list) else row for row in decoded], dtype=torch.float64)


assert MODEL is None or Path(MODEL).is_dir(), "MONO_E2E_MODEL names no folder"
