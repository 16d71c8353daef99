"""What the server tests serve: tiny checkpoints and SGLang trees, or the model of MONO_E2E_MODEL."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

from sgl_amd_mono.build.compile import HOST, build
from sgl_amd_mono.models.glm53_flash.program import KERNEL
from tests.check import pr46980
from tests.check.trees import copied_tree, replace_once
from tests.e2e.server import MODEL
from tests.sglang_cpu.language import Language

SPY = "SPY: the request table was asked for a state"


@dataclass(frozen=True)
class Served:
    """A checkpoint and what is known of it."""

    folder: Path
    language: Language | None
    """Of the tiny checkpoints: what follows a prompt, known without any path of SGLang."""

    def prompts(self, count: int, length: int = 6) -> list[list[int]]:
        """Prompts that are the same in every run."""
        language = self.language or Language()
        return [language.prompt(length, seed) for seed in range(count)]


@pytest.fixture(scope="session")
def checkpoints(tmp_path_factory: pytest.TempPathFactory) -> dict[int, Served]:
    """By tensor-parallel size, a checkpoint whose ranks have as many KDA heads as the kernels ask for."""
    if MODEL:
        size = int(os.environ.get("MONO_E2E_TP", "4"))
        return {size: Served(Path(MODEL), None)}
    build(KERNEL, HOST)
    folder = tmp_path_factory.mktemp("checkpoints")
    return {size: written_checkpoint(folder / f"tp{size}", heads=8 * size) for size in (1, 2)}


@pytest.fixture(scope="session")
def changed_sglang(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the installed SGLang, changed as PR #46980 is described, whose request table tells if it is asked."""
    spec = importlib.util.find_spec("sglang")
    assert spec is not None
    assert spec.submodule_search_locations is not None
    installed = Path(spec.submodule_search_locations[0])
    tree = copied_tree(installed.parent, tmp_path_factory.mktemp("changed"))
    pr46980.apply(tree)
    table = "    def get_mamba_indices(self, req_indices: torch.Tensor) -> torch.Tensor:\n"
    spy = f'    def mamba2_layer_cache(self, layer_id):\n        raise AssertionError("{SPY}")\n\n'
    replace_once(tree / "sglang/srt/mem_cache/memory_pool.py", table, spy + table)
    return tree


def written_checkpoint(folder: Path, heads: int) -> Served:
    """A tiny checkpoint, written by another process: its preparation for SGLang's CPU paths stays out of this one."""
    program = (
        "from tests.sglang_cpu import environment\n"
        "environment.prepare()\n"
        "from tests.sglang_cpu.checkpoint import Stack, write_checkpoint\n"
        f"write_checkpoint({str(folder)!r}, Stack(kda_heads={heads}))\n"
    )
    root = Path(__file__).parents[2]
    done = subprocess.run([sys.executable, "-c", program], cwd=root, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return Served(folder, Language())
