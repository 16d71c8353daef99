"""These tests run SGLang itself: `make upstream`, which has a virtual environment of its own for them."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

from tests.sglang_cpu import environment
from tests.sglang_cpu.checkpoint import write_checkpoint
from tests.sglang_cpu.language import Language
from tests.sglang_cpu.runner import Runner

if importlib.util.find_spec("sglang") is None:
    raise pytest.UsageError("tests/upstream needs sglang and what it imports: run `make upstream`")
# before a test module imports triton or sglang
environment.prepare()

CHUNK = 1024
"""Tokens of a prefill step: room for four prompts of one page, 256 tokens, each."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark all tests of this folder."""
    for item in items:
        if item.path.is_relative_to(Path(__file__).parent):
            item.add_marker(pytest.mark.upstream)


@pytest.fixture(scope="session")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Directory of a made checkpoint."""
    directory = tmp_path_factory.mktemp("model")
    write_checkpoint(directory)
    return directory


@pytest.fixture(scope="session")
def language() -> Language:
    """What the made checkpoint speaks."""
    return Language()


@pytest.fixture(scope="session")
def runner(model: Path) -> Runner:
    """The Scheduler of this process, on the standard path."""
    return Runner(model, chunked_prefill_size=CHUNK, log_level="error")
