"""The words for what a name is and when it is there; rows and findings share them."""

from __future__ import annotations

from enum import Enum


class Kind(str, Enum):
    """What a name is."""

    MODULE = "module"
    CLASS = "class"
    FUNCTION = "function"
    CONSTANT = "constant"
    METHOD = "method"
    CLASS_METHOD = "class method"
    STATIC_METHOD = "static method"
    ABSTRACT = "abstract method"
    PROPERTY = "property"
    CACHED_PROPERTY = "cached property"
    FIELD = "field"
    ATTRIBUTE = "attribute"
    CLASS_ATTRIBUTE = "class attribute"
    ENUM_MEMBER = "enum member"
    ANNOTATION = "annotation only"
    # what a function does, rather than a name one reads
    CALLS = "calls in order"
    STRINGS = "string literals"


class When(str, Enum):
    """When an attribute holds a value."""

    # the constructor gives it one
    INIT = "set while constructing"
    # the constructor, or the class, gives it None and a later method a value
    NULL = "None until set later"
    # absent until a later method sets it
    LATE = "absent until set later"
    # nothing ever gives it a value other than None
    NEVER = "None for ever"
    # it belongs to the class
    CLASS = "on the class"


# kinds that a reader cannot tell apart
_ALIKE = (
    frozenset({Kind.PROPERTY, Kind.CACHED_PROPERTY}),
    frozenset({Kind.METHOD, Kind.CLASS_METHOD, Kind.STATIC_METHOD}),
    frozenset({Kind.ATTRIBUTE, Kind.FIELD}),
)


def alike(one: Kind, other: Kind) -> bool:
    """Whether a reader of the one kind can read the other unchanged."""
    return one is other or any({one, other} <= kinds for kinds in _ALIKE)
