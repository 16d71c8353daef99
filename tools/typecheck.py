"""Run mypy over the packages, the tests and the tools.

mypy finds a package by a folder of its name, and ours have other names, which pyproject.toml maps. So this lays a tree
of links with the packages' names and shows what mypy says of it under the folders' own names.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

from setuptools import Distribution

ROOT = Path(__file__).parents[1]
TREE = Path("build/typecheck")


def package_folders() -> dict[str, str]:
    """Folder of each mapped package, parents before their subpackages."""
    project = Distribution()
    project.parse_config_files([str(ROOT / "pyproject.toml")])
    return dict(sorted(project.package_dir.items()))


def lay_links(tree: Path, folders: dict[str, str]) -> None:
    """Make `tree/a/b` for each package `a.b`: a folder of links to what the mapped folder holds."""
    for name, folder in folders.items():
        package = tree.joinpath(*name.split("."))
        package.mkdir(parents=True)
        for entry in (ROOT / folder).iterdir():
            (package / entry.name).symlink_to(entry)


def main() -> int:
    folders = package_folders()
    shutil.rmtree(ROOT / TREE, ignore_errors=True)
    lay_links(ROOT / TREE, folders)
    done = subprocess.run(
        [sys.executable, "-m", "mypy", str(TREE), "tests", "tools"],
        cwd=ROOT,
        env={**os.environ, "MYPYPATH": str(TREE)},
        stdout=subprocess.PIPE,
        text=True,
        check=False,
    )
    report = done.stdout
    for name, folder in reversed(folders.items()):
        report = report.replace(f"{TREE}/{name.replace('.', '/')}/", f"{folder}/")
    print(report, end="")
    return done.returncode


if __name__ == "__main__":
    sys.exit(main())
