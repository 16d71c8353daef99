"""SGLang trees for tests: the released ones, copies to change, and small ones written on the spot."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Mapping
from pathlib import Path

import pytest

# the wheels differ by interpreter and platform only in what this package does not read
_WHEEL_FOR = ("--only-binary=:all:", "--implementation=cp", "--python-version=3.11", "--platform=manylinux_2_34_x86_64")


def released_wheel(version: str) -> Path:
    """The wheel of one SGLang release, downloaded once a machine; the test fails where the index cannot be reached."""
    home = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "sgl-amd-mono-tests"
    if not (found := sorted(home.glob(f"sglang-{version}-*.whl"))):
        home.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=home) as partial:
            command = [sys.executable, "-m", "pip", "download", "--no-deps", "--dest", partial, f"sglang=={version}"]
            done = subprocess.run([*command, *_WHEEL_FOR], capture_output=True, text=True, check=False)
            wheels = list(Path(partial).glob("*.whl"))
            if done.returncode or not wheels:
                pytest.fail(f"this test needs the wheel of SGLang {version}, and pip could not get it:\n{done.stderr}")
            os.replace(wheels[0], home / wheels[0].name)
            found = [home / wheels[0].name]
    return found[0]


def released_tree(version: str) -> Path:
    """The Python files of one SGLang release in a folder, unpacked once a machine. Never write to it."""
    wheel = released_wheel(version)
    folder = wheel.parent / f"tree-{version}"
    if not folder.is_dir():
        with tempfile.TemporaryDirectory(dir=wheel.parent) as partial, zipfile.ZipFile(wheel) as archive:
            unpacked = Path(partial) / "tree"
            archive.extractall(unpacked, [name for name in archive.namelist() if name.endswith(".py")])
            unpacked.rename(folder)
    return folder


def copied_tree(source: Path, target: Path) -> Path:
    """A copy of the package in `source` that shares the files' bytes with it; change it with `rewrite` only."""
    try:
        shutil.copytree(source / "sglang", target / "sglang", copy_function=os.link)
    except shutil.Error:
        # another file system: links are not possible
        shutil.copytree(source / "sglang", target / "sglang", dirs_exist_ok=True)
    return target


def rewrite(file: Path, text: str) -> None:
    """Give one file new text without touching the file that it shares bytes with."""
    partial = file.with_suffix(".partial")
    partial.write_text(text)
    os.replace(partial, file)


def replace_once(file: Path, old: str, new: str, times: int = 1) -> None:
    """Replace `old`, which must occur `times` times: an edit that no longer fits its file is an error, not a no-op."""
    text = file.read_text()
    assert text.count(old) == times, f"{file} has {text.count(old)} of {old!r}, expected {times}"
    rewrite(file, text.replace(old, new))


def write_tree(folder: Path, files: Mapping[str, str]) -> Path:
    """A small SGLang of the given files, named without the leading `sglang/`."""
    for name, text in {"__init__.py": "", **files}.items():
        file = folder / "sglang" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
        for package in file.parents:
            if package == folder:
                break
            (package / "__init__.py").touch()
    return folder
