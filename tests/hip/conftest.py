from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from sgl_amd_mono.build.compile import HOST, build
from sgl_amd_mono.device.host import HostDevice
from tests.kernel_sources import with_kernels

KERNELS = Path(__file__).parent / "kernels"


@pytest.fixture(scope="session")
def sources(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A root of kernel sources with the product's headers and executor, and the kernels of these tests."""
    return with_kernels(tmp_path_factory.mktemp("hip"), *KERNELS.glob("*.hip"))


@pytest.fixture(scope="session")
def executor(sources: Path) -> Callable[..., HostDevice]:
    """Makes host devices of the kernel `executor`."""
    artifact = build("executor", HOST, sources=sources)

    def make(workgroups: int = 8, seed: int = 0, has_peers: bool = False) -> HostDevice:
        return HostDevice("executor", artifact=artifact, workgroups=workgroups, seed=seed, has_peers=has_peers)

    return make
