"""What the checker keeps of a module: its definitions and, for each function, what it does to `self`.

A fact never depends on another file, so facts are cached by the hash of the source they came from.
`guards` are the conditions round a statement, outermost first, as source text: `("_is_hip", "not (page_size == 1)")`.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any, TypeAlias

Guards: TypeAlias = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Parameter:
    """One parameter; `kind` is the name of an `inspect.Parameter` kind, an empty `default` means required."""

    name: str
    kind: str
    default: str
    annotation: str


@dataclass(frozen=True, slots=True)
class Assign:
    """`self.<name> = <value>`; an empty `value` is an annotation that assigns nothing."""

    name: str
    line: int
    guards: Guards
    value: str
    annotation: str


@dataclass(frozen=True, slots=True)
class Invoke:
    """A call that hands `self` on: `target` is `self`, `super`, `super:<class>`, or the text of a class."""

    target: str
    method: str
    guards: Guards


@dataclass(frozen=True, slots=True)
class Import:
    """`name` bound to `module:attribute`; no attribute binds the module itself, `*` stands for every name."""

    name: str
    line: int
    guards: Guards
    module: str
    attribute: str


@dataclass(frozen=True, slots=True)
class Value:
    """A module or class level assignment; an empty `value` is an annotation only."""

    name: str
    line: int
    guards: Guards
    value: str
    annotation: str


@dataclass(frozen=True, slots=True)
class Function:
    """A function or method. `ends` are the guards under which it raises, so no object comes of it."""

    name: str
    line: int
    end_line: int
    guards: Guards
    decorators: tuple[str, ...]
    parameters: tuple[Parameter, ...]
    returns: str
    assigns: tuple[Assign, ...] = ()
    deletes: tuple[str, ...] = ()
    invokes: tuple[Invoke, ...] = ()
    ends: tuple[Guards, ...] = ()
    imports: tuple[Import, ...] = ()


@dataclass(frozen=True, slots=True)
class Class:
    """A class with its bases and class keywords as source text."""

    name: str
    line: int
    end_line: int
    guards: Guards
    decorators: tuple[str, ...]
    bases: tuple[str, ...]
    keywords: tuple[str, ...]
    body: tuple[Definition, ...]


@dataclass(frozen=True, slots=True)
class Module:
    """A module by dotted name; `path` is relative to the folder that holds the top package."""

    name: str
    path: str
    body: tuple[Definition, ...]


Definition: TypeAlias = "Function | Class | Value | Import"

_RECORDS = {record.__name__: record for record in (Parameter, Assign, Invoke, Import, Value, Function, Class, Module)}


def encode(fact: Any) -> Any:
    """A fact as JSON values: a record is `{"<type>": [fields]}`, a tuple is a list."""
    if isinstance(fact, tuple):
        return [encode(item) for item in fact]
    if isinstance(fact, str | int):
        return fact
    return {type(fact).__name__: [encode(getattr(fact, field.name)) for field in fields(fact)]}


def decode(plain: Any) -> Any:
    """The fact that `encode` turned into `plain`."""
    if isinstance(plain, list):
        return tuple(map(decode, plain))
    if isinstance(plain, dict):
        ((name, values),) = plain.items()
        return _RECORDS[name](*map(decode, values))
    return plain
