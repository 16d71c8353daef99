"""Rows: one upstream name that this package reads, or one upstream behaviour that it relies on. Data only.

A table of rows is written owner by owner::

    on(
        "sglang.srt.mem_cache.memory_pool:HybridReqToTokenPool",
        attribute("mamba_map"),
        method("get_mamba_indices", call=Call(1)),
        reader="models/glm53_flash/bind.py:bind_state",
        needed_for="decode",
    )
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from sgl_amd_mono.check.kinds import Kind, When

# in place of an owner's module that upstream has not said: the one class of that name, wherever it is
ANYWHERE = "*"


@dataclass(frozen=True, slots=True)
class Call:
    """How we call it: so many positional arguments (`self` not counted) and these keywords.

    `names` are the parameters that the positional arguments must meet, where only their order tells them apart.
    """

    positional: int = 0
    keywords: tuple[str, ...] = ()
    names: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Row:
    """One thing we need of SGLang.

    Attributes
    ----------
    kind, name: what it is and what it is called; the name of a row on a class or module itself is empty
    owner: `module:Class` of the object that we read it on, or the module that we import it from
    declared_on: the class that declares it, where that is an ancestor or mixin of the owner
    when, set_by, deleted_by: when it holds a value, which methods set it later, which delete it
    only_if: the condition under which construction sets it; for calls, one of the conditions round the last of them
    holds_for: the runtime classes that the row is judged on; the owner alone where empty
    not_served: subclasses of the owner that we refuse; any other subclass in the tree is reported for review
    gives: the classes that the value or result can be, when we read on; empty for a tensor or plain value
    call: how we call it
    value: the accepted values, as source text
    fields: of a class: its constructor fields in order, one with a default written `name=`
    options: of a class: decorators and class keywords that it must keep, such as `frozen=True`
    steps: of a `calls` row: what the function must call, in this order; of a `strings` row: the literals it must hold
    references, avoids: names that the body must use, or must not use
    body: fingerprints of the bodies that our code is written for, by the first release that has them
    since: the first of the known releases that has it
    profile: the profile that needs it; every profile where empty
    replaced_by: what upstream put in its place, or announced
    reader: `file:function` of ours that reads it; empty where nothing does yet
    needed_for: the part of the product that stops without it
    watched: relied on but not touched by our source: upstream's own code reads it for us, or a binding to come will;
        the lint then asks that our source does not touch it
    """

    kind: Kind
    name: str = ""
    owner: str = ""
    declared_on: str = ""
    when: When | None = None
    set_by: tuple[str, ...] = ()
    deleted_by: tuple[str, ...] = ()
    only_if: str = ""
    holds_for: tuple[str, ...] = ()
    not_served: tuple[str, ...] = ()
    gives: tuple[str, ...] = ()
    call: Call | None = None
    value: tuple[str, ...] = ()
    fields: tuple[str, ...] = ()
    options: tuple[str, ...] = ()
    steps: tuple[str, ...] = ()
    references: tuple[str, ...] = ()
    avoids: tuple[str, ...] = ()
    body: Mapping[str, str] = field(default_factory=dict)
    since: str = "0.5.21"
    profile: str = ""
    replaced_by: str = ""
    reader: str = ""
    needed_for: str = ""
    watched: bool = False

    @property
    def label(self) -> str:
        """The row's name as a report writes it, with the owner's class."""
        module, _, qualname = self.owner.partition(":")
        shown = qualname or module
        return f"{shown}.{self.name}" if self.name else shown

    @property
    def path(self) -> str:
        """The full path `module:Class.name`."""
        if not self.name:
            return self.owner
        return f"{self.owner}.{self.name}" if ":" in self.owner else f"{self.owner}:{self.name}"


class_ = partial(Row, Kind.CLASS)
function = partial(Row, Kind.FUNCTION)
constant = partial(Row, Kind.CONSTANT)
method = partial(Row, Kind.METHOD)
property_ = partial(Row, Kind.PROPERTY)
field_ = partial(Row, Kind.FIELD)
enum_member = partial(Row, Kind.ENUM_MEMBER)
class_attribute = partial(Row, Kind.CLASS_ATTRIBUTE)
attribute = partial(Row, Kind.ATTRIBUTE, when=When.INIT)
null_attribute = partial(Row, Kind.ATTRIBUTE, when=When.NULL)
unset_attribute = partial(Row, Kind.ATTRIBUTE, when=When.NEVER)
late_attribute = partial(Row, Kind.ATTRIBUTE, when=When.LATE)
calls = partial(Row, Kind.CALLS, watched=True)
strings = partial(Row, Kind.STRINGS, watched=True)


def fill(*rows: Row, **shared: Any) -> tuple[Row, ...]:
    """The rows with each of `shared` that a row leaves at its default."""
    blank = Row(Kind.MODULE)

    def filled(row: Row) -> Row:
        return replace(row, **{name: new for name, new in shared.items() if getattr(row, name) == getattr(blank, name)})

    return tuple(map(filled, rows))


def on(owner: str, *rows: Row, **shared: Any) -> tuple[Row, ...]:
    """The rows of one owner, filled with `shared`."""
    return fill(*rows, owner=owner, **shared)


def fields_(*names: str, **shared: Any) -> tuple[Row, ...]:
    """Field rows that differ in the name only."""
    return tuple(field_(name, **shared) for name in names)


def attributes(*names: str, **shared: Any) -> tuple[Row, ...]:
    """Rows of attributes that construction sets, differing in the name only."""
    return tuple(attribute(name, **shared) for name in names)


@dataclass(frozen=True, slots=True)
class Profile:
    """A set of rows that fits one state of upstream, and what we bind with it."""

    name: str
    binding: str


@dataclass(frozen=True, slots=True)
class Probe:
    """The question that chooses a profile: does the class `owner` have `name`? A version string cannot tell."""

    owner: str
    name: str
    change: str
    present: Profile
    absent: Profile


@dataclass(frozen=True, slots=True)
class Contract:
    """Everything that one model needs of SGLang. `plugin` is the module without which a release has no such plugins."""

    model: str
    architecture: str
    plugin: str
    probe: Probe
    rows: tuple[Row, ...]

    def of(self, profile: Profile) -> tuple[Row, ...]:
        """The rows that `profile` needs."""
        return tuple(row for row in self.rows if row.profile in {"", profile.name})
