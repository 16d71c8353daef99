"""Fixtures of the contract checker's tests."""

from __future__ import annotations

from pathlib import Path

import pytest

from sgl_amd_mono.check.store import Store


@pytest.fixture(scope="session")
def store(tmp_path_factory: pytest.TempPathFactory) -> Store:
    """Facts kept between the tests of one session, so each upstream module is parsed once."""
    folder: Path = tmp_path_factory.mktemp("facts")
    return Store(folder)
