from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from sgl_amd_mono.build.compile import HOST, SOURCES, build
from sgl_amd_mono.device.host import HostDevice

KERNELS = Path(__file__).parent / "kernels"


@pytest.fixture(scope="session")
def sources(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A root of kernel sources with the product's headers and executor, and the kernels of these tests."""
    root = tmp_path_factory.mktemp("hip")
    shutil.copytree(SOURCES, root, dirs_exist_ok=True, ignore=shutil.ignore_patterns("kernels", "__pycache__"))
    shutil.copytree(KERNELS, root / "kernels")
    return root


@pytest.fixture(scope="session")
def executor(sources: Path) -> Callable[..., HostDevice]:
    """Makes host devices of the kernel `executor`."""
    artifact = build("executor", HOST, sources=sources)

    def make(workgroups: int = 8, seed: int = 0, has_peers: bool = False) -> HostDevice:
        return HostDevice("executor", artifact=artifact, workgroups=workgroups, seed=seed, has_peers=has_peers)

    return make
