"""Where the source of one SGLang comes from: a wheel, a checkout, a site-packages folder, or the installed one."""

from __future__ import annotations

import hashlib
import importlib.metadata
import importlib.util
import os
import re
import zipfile
from abc import ABC, abstractmethod
from functools import cached_property
from pathlib import Path

from sgl_amd_mono.check.errors import TreeError

PACKAGE = "sglang"
_VERSION_FILES = (f"{PACKAGE}/_version.py", f"{PACKAGE}/version.py")
_VERSION = re.compile(r"""^__version__\b[^'"\n]*['"]([^'"]+)['"]""", re.MULTILINE)


class Tree(ABC):
    """The Python files of one SGLang, named by paths such as `sglang/srt/server_args.py`."""

    def __init__(self, place: Path) -> None:
        self.place = place

    @abstractmethod
    def read(self, path: str) -> bytes:
        """The bytes of `path`; KeyError where the tree has no such file."""

    @cached_property
    @abstractmethod
    def paths(self) -> frozenset[str]:
        """Every Python file."""

    @cached_property
    @abstractmethod
    def stamp(self) -> str:
        """A hash that changes when any Python file does, taken without reading the files."""

    def has(self, path: str) -> bool:
        """Whether the tree has `path`; does not list the tree."""
        return path in self.paths

    @cached_property
    def release(self) -> str:
        """The version that the tree says it is, `unknown` for a checkout that says nothing. Shown, never decided on."""
        for path in _VERSION_FILES:
            if self.has(path) and (found := _VERSION.search(self.read(path).decode(errors="replace"))):
                return found[1]
        return "unknown"


class FolderTree(Tree):
    """A folder that holds the `sglang` package folder."""

    def read(self, path: str) -> bytes:
        try:
            return (self.place / path).read_bytes()
        except FileNotFoundError:
            raise KeyError(path) from None
        except OSError as error:
            raise TreeError(f"{self.place / path} cannot be read: {error}") from error

    def has(self, path: str) -> bool:
        return (self.place / path).is_file()

    @cached_property
    def _stats(self) -> dict[str, tuple[int, int]]:
        stats = {}
        for folder, _, names in os.walk(self.place / PACKAGE):
            for name in names:
                if name.endswith(".py"):
                    file = os.path.join(folder, name)
                    stat = os.stat(file)
                    stats[os.path.relpath(file, self.place).replace(os.sep, "/")] = (stat.st_size, stat.st_mtime_ns)
        return stats

    @cached_property
    def paths(self) -> frozenset[str]:
        return frozenset(self._stats)

    @cached_property
    def stamp(self) -> str:
        return _digest(sorted(self._stats.items()))


class WheelTree(Tree):
    """A wheel file, read in place."""

    def __init__(self, place: Path) -> None:
        super().__init__(place)
        try:
            self._archive = zipfile.ZipFile(place)
        except (OSError, zipfile.BadZipFile) as error:
            raise TreeError(f"{place} is not a readable wheel: {error}") from error
        self._entries = {i.filename: i for i in self._archive.infolist() if i.filename.endswith(".py")}
        if f"{PACKAGE}/__init__.py" not in self._entries:
            raise TreeError(f"{place} holds no {PACKAGE} package; give a wheel of {PACKAGE}")

    def read(self, path: str) -> bytes:
        return self._archive.read(self._entries[path])

    @cached_property
    def paths(self) -> frozenset[str]:
        return frozenset(p for p in self._entries if p.startswith(f"{PACKAGE}/"))

    @cached_property
    def stamp(self) -> str:
        return _digest(sorted((path, self._entries[path].file_size, self._entries[path].CRC) for path in self.paths))


def open_tree(place: Path) -> Tree:
    """The tree at `place`: a wheel, a checkout, a site-packages folder, or the package folder itself.

    Raises
    ------
    TreeError
        Nothing there, or no SGLang in it.
    """
    if place.is_file():
        return WheelTree(place)
    for folder in (place, place / "python", place.parent):
        if (folder / PACKAGE / "__init__.py").is_file() and (folder != place.parent or place.name == PACKAGE):
            return FolderTree(folder)
    raise TreeError(
        f"{place} holds no SGLang: expected a wheel, a checkout (python/{PACKAGE}), or a folder with {PACKAGE}/ in it"
    )


def installed_tree() -> Tree:
    """The SGLang of this Python environment, found without importing it.

    Raises
    ------
    TreeError
        SGLang is not installed.
    """
    try:
        folder = Path(str(importlib.metadata.distribution(PACKAGE).locate_file("")))
        if (folder / PACKAGE / "__init__.py").is_file():
            return FolderTree(folder)
    except importlib.metadata.PackageNotFoundError:
        pass
    # an editable install lists no files; the spec of a top package is found without running it
    spec = importlib.util.find_spec(PACKAGE)
    for location in (spec.submodule_search_locations or ()) if spec else ():
        return open_tree(Path(location))
    raise TreeError("SGLang is not installed here; name a wheel, a checkout or a site-packages folder with --sglang")


def _digest(value: object) -> str:
    return hashlib.sha256(repr(value).encode()).hexdigest()
