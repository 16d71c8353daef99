"""What a qualified name of a tree stands for: modules, re-exports, nested classes.

A path is `module:Class.Nested`, the way entry points write it, so where the module ends is never guessed.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import TypeAlias

from sgl_amd_mono.check.errors import TreeError
from sgl_amd_mono.check.extract import extract
from sgl_amd_mono.check.facts import Class, Definition, Function, Import, Module, Value, decode, encode
from sgl_amd_mono.check.guards import effective
from sgl_amd_mono.check.store import Store
from sgl_amd_mono.check.tree import PACKAGE, Tree

_TYPING_ONLY = "TYPE_CHECKING"


@dataclass(frozen=True, slots=True)
class At:
    """A definition and where it stands; `outer` are the classes round it, outermost first."""

    module: Module
    outer: tuple[Class, ...]
    definition: Class | Function | Value

    @property
    def qualname(self) -> str:
        return ".".join([scope.name for scope in (*self.outer, self.definition)])

    @property
    def label(self) -> str:
        return f"{self.module.name}:{self.qualname}"

    @property
    def place(self) -> str:
        return f"{self.module.path}:{self.definition.line}"


@dataclass(frozen=True, slots=True)
class ClassAt(At):
    """A class of the tree."""

    definition: Class

    # the label says which class it is, and hashing whole bodies would cost time
    def __hash__(self) -> int:
        return hash((self.module.name, self.qualname))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ClassAt) and self.label == other.label


@dataclass(frozen=True, slots=True)
class External:
    """A name that another distribution, or Python, defines."""

    label: str


Target: TypeAlias = "At | Module | External"


class Names:
    """Looks qualified names up in one tree, reading only the modules that they lead to."""

    def __init__(self, tree: Tree, store: Store) -> None:
        self.tree = tree
        self._store = store
        self._modules: dict[str, Module | None] = {}

    def module(self, name: str) -> Module | None:
        """The module by dotted name, or None where the tree has no such file.

        Raises
        ------
        TreeError
            The file is not valid for this Python.
        """
        if name not in self._modules:
            stem = name.replace(".", "/")
            found = [path for path in (f"{stem}/__init__.py", f"{stem}.py") if self.tree.has(path)]
            self._modules[name] = self._read(name, found[0]) if found else None
        return self._modules[name]

    def _read(self, name: str, path: str) -> Module:
        source = self.tree.read(path)
        if (kept := self._store.get("module", name, path, source)) is not None:
            module = decode(kept)
            assert isinstance(module, Module)
            return module
        try:
            module = extract(name, path, source)
        except (SyntaxError, ValueError) as error:
            raise TreeError(f"{self.tree.place}: {path} is not valid for this Python: {error}") from error
        self._store.put(encode(module), "module", name, path, source)
        return module

    def find(self, path: str) -> list[Target]:
        """What `module:name.name` can stand for on ROCm; empty where it is not defined.

        More than one target means that the tree decides between them by a condition that its source does not settle.
        """
        module_name, _, qualname = path.partition(":")
        module = self.module(module_name)
        if module is None or not qualname:
            return [module] if module else []
        return self.follow(module, qualname)

    def follow(self, module: Module, qualname: str, *, typing: bool = False) -> list[Target]:
        """What the dotted `qualname` stands for in `module`; `typing` admits the names that only annotations see."""
        targets: list[Target] = [module]
        for part in qualname.split("."):
            targets = [found for target in targets for found in self._step(target, part, typing, frozenset())]
        return targets

    def _step(self, target: Target, name: str, typing: bool, seen: frozenset[tuple[str, str]]) -> list[Target]:
        match target:
            case External(label):
                return [External(f"{label}.{name}")]
            case ClassAt(module, outer, definition):
                return [
                    locate(module, (*outer, definition), inner)
                    for inner in effective(named(definition.body, name))
                    if not isinstance(inner, Import)
                ]
            case Module():
                return self._of_module(target, name, typing, seen)
        return []

    def _of_module(self, module: Module, name: str, typing: bool, seen: frozenset[tuple[str, str]]) -> list[Target]:
        if (module.name, name) in seen:
            return []
        seen |= {(module.name, name)}
        definitions = named(module.body, name)
        if typing:
            definitions = [_without_typing_guard(d) for d in definitions]
        found: list[Target] = []
        for definition in effective(definitions):
            if isinstance(definition, Import):
                found += self._imported(definition, typing, seen)
            elif isinstance(definition, Value) and definition.value.isidentifier() and definition.value != name:
                # an alias: `NewName = OldName`
                found += self._of_module(module, definition.value, typing, seen) or [locate(module, (), definition)]
            else:
                found.append(locate(module, (), definition))
        if found:
            return found
        for star in [d for d in module.body if isinstance(d, Import) and d.attribute == "*"]:
            source = self.module(star.module)
            if source and (found := self._of_module(source, name, typing, seen)):
                return found
        submodule = self.module(f"{module.name}.{name}") if module.path.endswith("/__init__.py") else None
        return [submodule] if submodule else []

    def _imported(self, definition: Import, typing: bool, seen: frozenset[tuple[str, str]]) -> list[Target]:
        if definition.module.partition(".")[0] != PACKAGE:
            return [External(f"{definition.module}.{definition.attribute}".strip("."))]
        source = self.module(definition.module)
        if source is None or not definition.attribute:
            return [source] if source else []
        return self._of_module(source, definition.attribute, typing, seen)

    def is_dynamic(self, module: Module) -> bool:
        """Whether the module answers names that it does not define."""
        return bool(named(module.body, "__getattr__"))

    def class_at(self, path: str) -> ClassAt | None:
        """The class that `path` stands for, or None."""
        found = [target for target in self.find(path) if isinstance(target, ClassAt)]
        return found[0] if found else None

    def in_scope(self, at: At, dotted: str, *, typing: bool = False) -> list[Target]:
        """What `dotted` stands for where `at` is defined: the enclosing class first, then the module."""
        if at.outer:
            enclosing = ClassAt(at.module, at.outer[:-1], at.outer[-1])
            head, _, rest = dotted.partition(".")
            found = self._step(enclosing, head, typing, frozenset())
            for part in rest.split(".") if rest else ():
                found = [inner for target in found for inner in self._step(target, part, typing, frozenset())]
            if found:
                return found
        return self.follow(at.module, dotted, typing=typing)


def locate(module: Module, outer: tuple[Class, ...], definition: Definition) -> At:
    """The definition with its place."""
    assert not isinstance(definition, Import)
    if isinstance(definition, Class):
        return ClassAt(module, outer, definition)
    return At(module, outer, definition)


def named(body: tuple[Definition, ...], name: str) -> list[Definition]:
    """The definitions of `name` in a module or class body, in order."""
    return [definition for definition in body if definition.name == name]


def classes(module: Module) -> Iterator[ClassAt]:
    """Every class of the module, nested ones included."""

    def inside(body: tuple[Definition, ...], outer: tuple[Class, ...]) -> Iterator[ClassAt]:
        for definition in body:
            if isinstance(definition, Class):
                yield ClassAt(module, outer, definition)
                yield from inside(definition.body, (*outer, definition))

    return inside(module.body, ())


def _without_typing_guard(definition: Definition) -> Definition:
    guards = tuple(guard for guard in definition.guards if guard != _TYPING_ONLY)
    if guards == definition.guards:
        return definition
    return replace(definition, guards=guards)
