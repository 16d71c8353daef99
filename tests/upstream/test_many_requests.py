"""Requests that join and leave at every step, on both paths of the real Scheduler: same tokens, no slot lost."""

from __future__ import annotations

import itertools
import json
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from sgl_amd_mono.models.glm53_flash.served import WIDTHS
from tests.sglang_cpu.language import Language
from tests.upstream.many_requests import REQUESTS, scenario

pytestmark = pytest.mark.upstream

_ROOT = Path(__file__).parents[2]
_TIMEOUT_S = 1500


def test_300_requests_give_the_standard_paths_tokens_and_return_every_slot(model: Path) -> None:
    # side by side: each takes one core
    started = {path: _start(model, path) for path in ("fused", "standard")}
    fused, standard = (_result(process) for process in started.values())
    requests = scenario(Language())
    assert len(requests) == REQUESTS
    for request in requests:
        wanted = Language().continuation(request.prompt, request.new_tokens)
        for run in (fused, standard):
            got = run["tokens"][request.name]
            assert got == wanted[: len(got)]
            assert len(got) == request.new_tokens or request.aborted
    whole = [request.name for request in requests if not request.aborted]
    assert {name: fused["tokens"][name] for name in whole} == {name: standard["tokens"][name] for name in whole}
    assert any(len(fused["tokens"][request.name]) < request.new_tokens for request in requests if request.aborted)
    for run in (fused, standard):
        assert run["unfinished"] == []
        assert run["after"] == run["before"]
    # the scenario is what it says: all sizes, and seldom the same twice
    assert set(fused["sizes"]) == set(range(1, 9))
    assert sum(a != b for a, b in itertools.pairwise(fused["sizes"])) > len(fused["sizes"]) / 2
    # each decode step of a served size ran on the kernels, and no other did
    served = Counter(size for size in fused["sizes"] if size in WIDTHS)
    assert fused["fused"] == [{str(size): count for size, count in served.items()}]
    assert standard["fused"] == []


def _start(model: Path, path: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "tests.upstream.many_requests", str(model), path]
    return subprocess.Popen(command, cwd=_ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def _result(process: subprocess.Popen[str]) -> Any:
    output, errors = process.communicate(timeout=_TIMEOUT_S)
    assert process.returncode == 0, errors[-5000:]
    return json.loads(output.splitlines()[-1])
