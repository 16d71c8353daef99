"""What users install: every package and kernel source of the tree, and nothing of the tests."""

from __future__ import annotations

import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
FOLDERS = {
    "mono": "sgl_amd_mono",
    "models": "sgl_amd_mono/models",
    "hip": "sgl_amd_mono/hip",
    "check": "sgl_amd_mono/check",
}
METADATA = ("pyproject.toml", "setup.py", "README.md", "LICENSE")
SUFFIXES = {".py", ".h", ".hip", ".cpp"}


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> zipfile.ZipFile:
    """The wheel of a copy of the tree, so that no earlier build leaks into it."""
    tree = tmp_path_factory.mktemp("tree")
    for folder in (*FOLDERS, "tests"):
        shutil.copytree(ROOT / folder, tree / folder, ignore=shutil.ignore_patterns("__pycache__"))
    for name in METADATA:
        shutil.copy(ROOT / name, tree / name)
    command = [sys.executable, "-m", "pip", "wheel", "--no-deps", "--no-build-isolation", "--wheel-dir", str(tree), "."]
    subprocess.run(command, cwd=tree, check=True, capture_output=True)
    (path,) = tree.glob("sgl_amd_mono-*.whl")
    return zipfile.ZipFile(path)


def test_holds_every_module_and_kernel_source(wheel: zipfile.ZipFile) -> None:
    sources = {
        f"{package}/{path.relative_to(ROOT / folder).as_posix()}"
        for folder, package in FOLDERS.items()
        for path in (ROOT / folder).rglob("*")
        if path.suffix in SUFFIXES
    }
    packaged = {name for name in wheel.namelist() if not name.partition("/")[0].endswith(".dist-info")}
    assert packaged == sources
    assert {Path(name).suffix for name in packaged} == SUFFIXES


def test_installs_the_command(wheel: zipfile.ZipFile) -> None:
    (entry_points,) = [name for name in wheel.namelist() if name.endswith("entry_points.txt")]
    assert "amd-mono = sgl_amd_mono.cli:main" in wheel.read(entry_points).decode()
