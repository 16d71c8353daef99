"""Roots of kernel sources for tests: the product's own, with other kernels or one line changed."""

from __future__ import annotations

import shutil
from pathlib import Path

from sgl_amd_mono.build.compile import SOURCES


def with_kernels(root: Path, *kernels: Path) -> Path:
    """`root`, holding the product's headers and executor and, in place of its kernels, these."""
    shutil.copytree(SOURCES, root, dirs_exist_ok=True, ignore=shutil.ignore_patterns("kernels", "__pycache__"))
    (root / "kernels").mkdir()
    for kernel in kernels:
        shutil.copy(kernel, root / "kernels")
    return root


def with_change(root: Path, file: str, old: str, new: str, *kernels: Path) -> Path:
    """`root`, holding the product's sources, of which the one place in `file` that reads `old` reads `new`.

    Where `kernels` are given, they take the place of the product's.
    """
    if kernels:
        with_kernels(root, *kernels)
    else:
        shutil.copytree(SOURCES, root, ignore=shutil.ignore_patterns("__pycache__"))
    source = (root / file).read_text()
    assert source.count(old) == 1, f"{old!r} occurs {source.count(old)} times in {file}"
    (root / file).write_text(source.replace(old, new))
    return root
