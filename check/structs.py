"""Constructors of classes: written out, or made from the fields of a dataclass or struct."""

from __future__ import annotations

import inspect

from sgl_amd_mono.check.facts import Parameter
from sgl_amd_mono.check.kinds import Kind
from sgl_amd_mono.check.members import Member, Members
from sgl_amd_mono.check.names import ClassAt
from sgl_amd_mono.check.signatures import called_as, signature


def constructor(members: Members, cls: ClassAt) -> inspect.Signature:
    """The signature of `cls(...)`."""
    fields = members.fields(cls)
    # a dataclass replaces every `__init__` but its own
    written = [m.function for m in members.find(cls, "__init__") if m.function and (not fields or m.declared_on == cls)]
    if written:
        return called_as(written[0], Kind.METHOD)
    keyword_only = any("kw_only=True" in text for text in (*cls.definition.keywords, *cls.definition.decorators))
    named = keyword_only or _required_after_default(fields)
    kind = "KEYWORD_ONLY" if named else "POSITIONAL_OR_KEYWORD"
    return signature(tuple(Parameter(f.name, kind, _default(f), f.annotation) for f in fields if _in_constructor(f)))


def field_list(members: Members, cls: ClassAt) -> list[str]:
    """The constructor fields in order; one with a default is written `name=`."""
    return [f"{f.name}=" if _default(f) else f.name for f in members.fields(cls) if _in_constructor(f)]


def _required_after_default(fields: list[Member]) -> bool:
    defaults = [bool(_default(f)) for f in fields]
    return any(not later and True in defaults[:index] for index, later in enumerate(defaults))


def _default(field: Member) -> str:
    """The default as source text; a `field(...)` call has one only where it says so."""
    if "field(" in field.value and "default" not in field.value:
        return ""
    return field.value


def _in_constructor(field: Member) -> bool:
    return "init=False" not in field.value
