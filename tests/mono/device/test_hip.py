"""What the HIP device refuses before it calls the HIP runtime; test_hip_launch.py has the rest."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
import torch

from sgl_amd_mono.build.compile import build
from sgl_amd_mono.device import hip
from sgl_amd_mono.device.layout import read_layout
from sgl_amd_mono.errors import BuildError, LaunchError
from sgl_amd_mono.models.glm53_flash.program import KERNEL


def test_says_that_there_is_no_gpu() -> None:
    assert torch.version.hip is None
    with pytest.raises(LaunchError, match=r"No AMD GPU: torch .* sees none"):
        hip.HipDevice(KERNEL)


@pytest.mark.compile
def test_argument_size_must_be_that_of_the_code_object() -> None:
    artifact = build(KERNEL, "gfx950")
    size = read_layout(artifact.binary)["LaunchArgs"].size
    assert hip._argument_type(artifact, f"{KERNEL}_step", size).__name__ == "Arguments"
    with pytest.raises(BuildError, match=f"takes {size} bytes of arguments, its layout table says {size + 8}"):
        hip._argument_type(artifact, f"{KERNEL}_step", size + 8)
    with pytest.raises(BuildError, match="has no kernel other_step"):
        hip._argument_type(artifact, "other_step", size)


def test_finds_the_runtimes_that_the_process_has_mapped(tmp_path: Path) -> None:
    maps = tmp_path / "maps"
    maps.write_text(
        "7f00-7f01 r-xp 00000000 08:01 11 /opt/torch/lib/libamdhip64.so.7\n"
        "7f01-7f02 r--p 00001000 08:01 11 /opt/torch/lib/libamdhip64.so.7\n"
        "7f02-7f03 r-xp 00000000 08:01 12 /usr/lib/libc.so.6\n"
        "7f03-7f04 rw-p 00000000 00:00 0\n"
    )
    assert hip._mapped_runtimes(maps) == [Path("/opt/torch/lib/libamdhip64.so.7")]


def test_says_when_the_bindings_are_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "rocm.bindings", None)
    with pytest.raises(LaunchError, match=r"install sgl-amd-mono\[gpu\]"):
        hip._bindings()
