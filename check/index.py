"""Searches over a whole tree: who else has this name, who else inherits from this class, where a class went."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cached_property

from sgl_amd_mono.check.errors import TreeError
from sgl_amd_mono.check.facts import Function, Import
from sgl_amd_mono.check.inherit import Inheritance
from sgl_amd_mono.check.names import ClassAt, Names, classes
from sgl_amd_mono.check.store import Store

_CLASS_HEADER = re.compile(rb"^[ \t]*class\s+(\w+)\s*(?:\(([^()]*(?:\([^()]*\)[^()]*)*)\))?\s*:", re.MULTILINE)
_BASE = re.compile(r"[\w.]+")


@dataclass(frozen=True, slots=True)
class Holder:
    """A class, or a module, that has a name of its own, and the line that says so."""

    owner: str
    place: str


class Index:
    """Finds candidates by text, then confirms each by its syntax tree: a mention is never taken for a definition."""

    def __init__(self, names: Names, inheritance: Inheritance, store: Store) -> None:
        self._names = names
        self._inheritance = inheritance
        self._store = store

    @cached_property
    def _sources(self) -> dict[str, bytes]:
        return {path: self._names.tree.read(path) for path in self._names.tree.paths}

    @cached_property
    def _headers(self) -> dict[str, list[tuple[str, list[str]]]]:
        """Class name -> (file, names of its bases) of each class header."""
        stamp = self._names.tree.stamp
        if (kept := self._store.get("class headers", stamp)) is None:
            kept = {}
            for path, source in sorted(self._sources.items()):
                for name, bases in _CLASS_HEADER.findall(source):
                    last = [base.rpartition(".")[2] for base in _BASE.findall(bases.decode(errors="replace"))]
                    kept.setdefault(name.decode(), []).append((path, last))
            self._store.put(kept, "class headers", stamp)
        headers: dict[str, list[tuple[str, list[str]]]] = kept
        return headers

    def holders(self, name: str) -> list[Holder]:
        """The classes and modules that declare or assign `name` themselves."""
        plain = name.encode()
        word = re.escape(plain)
        declares = re.compile(rb"\b(?:def|class)\s+%b\b|\b%b\s*(?::[^=\n]+)?=|^\s+%b\s*:" % ((word,) * 3), re.MULTILINE)
        found: list[Holder] = []
        # a plain search first: the pattern would take seconds over a whole tree
        mentions = sorted((path, source) for path, source in self._sources.items() if plain in source)
        for path in (path for path, source in mentions if declares.search(source)):
            try:
                module = self._names.module(_module_name(path))
            except TreeError:
                found.append(Holder("perhaps something in a file that this Python cannot parse", path))
                continue
            if module:
                lines = [d.line for d in module.body if d.name == name and not isinstance(d, Import)]
                found += [Holder(module.name, f"{path}:{line}") for line in lines[-1:]]
                for cls in classes(module):
                    found += [Holder(cls.qualname, f"{path}:{line}") for line in _lines(cls, name)[:1]]
        return found

    def named(self, name: str) -> list[ClassAt]:
        """The top-level and nested classes called `name`."""
        found = []
        for path in sorted({path for path, _ in self._headers.get(name, [])}):
            module = self._names.module(_module_name(path))
            found += [cls for cls in classes(module) if cls.definition.name == name] if module else []
        return found

    def subclasses(self, cls: ClassAt) -> list[ClassAt]:
        """Every class of the tree that inherits from `cls`, directly or not."""
        reached, pending = {cls.definition.name}, [cls.definition.name]
        while pending:
            base = pending.pop()
            for name, headers in self._headers.items():
                if name not in reached and any(base in bases for _, bases in headers):
                    reached.add(name)
                    pending.append(name)
        found = [candidate for name in sorted(reached) for candidate in self.named(name)]
        return [candidate for candidate in found if candidate != cls and cls in self._inheritance.order(candidate)]


def _lines(cls: ClassAt, name: str) -> list[int]:
    """The lines where the body of `cls`, ancestors aside, declares or assigns `name`."""
    body = cls.definition.body
    declared = [d.line for d in body if d.name == name]
    assigns = [assign for d in body if isinstance(d, Function) for assign in d.assigns]
    return declared + [assign.line for assign in assigns if assign.name == name and assign.value]


def _module_name(path: str) -> str:
    return path.removesuffix(".py").removesuffix("/__init__").replace("/", ".")
