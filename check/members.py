"""What one attribute of a runtime class is: its kind, who declares it, when it is set and under which condition."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from sgl_amd_mono.check.construct import Construction, Set
from sgl_amd_mono.check.facts import Class, Definition, Function, Import, Value
from sgl_amd_mono.check.guards import alternatives, effective
from sgl_amd_mono.check.inherit import Inheritance
from sgl_amd_mono.check.kinds import Kind, When
from sgl_amd_mono.check.names import At, ClassAt, Names, locate, named

_KIND_OF_DECORATOR = {
    "property": Kind.PROPERTY,
    "cached_property": Kind.CACHED_PROPERTY,
    "classmethod": Kind.CLASS_METHOD,
    "staticmethod": Kind.STATIC_METHOD,
    "abstractmethod": Kind.ABSTRACT,
}
# a second definition under one of these adds to the first instead of replacing it
_ADDS_TO_FIRST = ("setter", "getter", "deleter", "overload", "register")
_STRUCTS = frozenset({"msgspec.Struct", "typing.NamedTuple", "pydantic.BaseModel"})


@dataclass(frozen=True, slots=True)
class Member:
    """An attribute as a reader meets it on one runtime class.

    Attributes
    ----------
    at: the declaration; for an instance attribute the method that assigns it
    line: of the declaration or assignment
    declared_on: the class that declares it
    when, set_by: when it holds a value, and the methods that set it later
    only_if: the condition under which construction gives it that value (or that None); empty where it always does
    deleted_by: methods that delete it
    value, annotation: the source text of its value and declared type
    replaced: lines of earlier definitions in the same class that this one hides
    """

    name: str
    kind: Kind
    at: At
    line: int
    declared_on: ClassAt
    when: When
    set_by: tuple[str, ...] = ()
    only_if: str = ""
    deleted_by: tuple[str, ...] = ()
    value: str = ""
    annotation: str = ""
    replaced: tuple[int, ...] = ()

    @property
    def place(self) -> str:
        return f"{self.at.module.path}:{self.line}"

    @property
    def function(self) -> Function | None:
        return (
            self.at.definition if isinstance(self.at.definition, Function) and self.kind is not Kind.ATTRIBUTE else None
        )


class Members:
    """Looks attributes up on the classes of one tree."""

    def __init__(self, names: Names) -> None:
        self._names = names
        self.inheritance = Inheritance(names)
        self._constructions: dict[ClassAt, Construction] = {}

    def construction(self, cls: ClassAt) -> Construction:
        """The construction closure of the runtime class."""
        if cls not in self._constructions:
            self._constructions[cls] = Construction(cls, self._names, self.inheritance)
        return self._constructions[cls]

    def find(self, cls: ClassAt, name: str) -> list[Member]:
        """What `name` can be on an object of `cls`; empty where it has no such attribute.

        Python's own precedence: a property of the class, then what the object was given, then the rest of the class.
        """
        declared = self._declared(cls, name)
        if any(member.kind in {Kind.PROPERTY, Kind.CACHED_PROPERTY, Kind.FIELD} for member in declared):
            return declared
        given = self._given(cls, name, declared)
        return [given] if given else declared

    def unknowable(self, cls: ClassAt) -> str:
        """Why an absent name might exist on `cls` all the same; empty where it cannot."""
        for ancestor in self.inheritance.classes(cls):
            for hook in ("__getattr__", "__getattribute__"):
                if named(ancestor.definition.body, hook):
                    return f"{ancestor.qualname} defines {hook} ({ancestor.place})"
        foreign = self.inheritance.foreign(cls)
        return f"its base {foreign[0]} is outside the tree" if foreign else ""

    def nearest(self, cls: ClassAt) -> list[str]:
        """Every name that `cls` or an ancestor declares or assigns."""
        names: list[str] = []
        for ancestor in self.inheritance.classes(cls):
            for definition in ancestor.definition.body:
                names.append(definition.name)
                if isinstance(definition, Function):
                    names += [assign.name for assign in definition.assigns]
        return list(dict.fromkeys(names))

    def fields(self, cls: ClassAt) -> list[Member]:
        """The fields of a dataclass or struct in constructor order, inherited ones first."""
        found: dict[str, Member] = {}
        for ancestor in reversed(self.inheritance.classes(cls)):
            if self._is_struct(ancestor):
                for definition in ancestor.definition.body:
                    if isinstance(definition, Value) and _is_field(definition):
                        found[definition.name] = self._of_class(ancestor, definition, ())
        return list(found.values())

    def _declared(self, cls: ClassAt, name: str) -> list[Member]:
        """The class-level definitions of `name` in force, from the first class in the order that has any.

        An abstract method or a bare annotation is no proof that the name exists, so a later class may still bring it.
        """
        weak: list[Member] = []
        for ancestor in self.inheritance.classes(cls):
            patched = named(ancestor.module.body, f"{ancestor.qualname}.{name}")
            every = [*named(ancestor.definition.body, name), *patched]
            first = [d for d in every if not (isinstance(d, Function) and _adds_to_first(d))] or every
            in_force = [d for d in effective(first) if not isinstance(d, Import)]
            replaced = tuple(d.line for d in first if d not in in_force and d.guards == first[-1].guards)
            members = [self._of_class(ancestor, definition, replaced) for definition in in_force]
            weak += [m for m in members if m.kind in {Kind.ABSTRACT, Kind.ANNOTATION}]
            if strong := [m for m in members if m.kind not in {Kind.ABSTRACT, Kind.ANNOTATION}]:
                return strong
        return weak[:1]

    def _of_class(self, cls: ClassAt, definition: Definition, replaced: tuple[int, ...]) -> Member:
        at = locate(cls.module, (*cls.outer, cls.definition), definition)
        kind, value, annotation = Kind.CLASS_ATTRIBUTE, "", ""
        match definition:
            case Function():
                kind = _kind_of_function(definition)
            case Class():
                kind = Kind.CLASS
            case Value():
                value, annotation = definition.value, definition.annotation
                kind = self._kind_of_value(cls, definition)
                aliased = [d for d in named(cls.definition.body, value) if isinstance(d, Function)]
                if aliased:
                    at, kind = locate(cls.module, at.outer, aliased[-1]), _kind_of_function(aliased[-1])
        when = When.INIT if kind is Kind.FIELD else When.NEVER if value == "None" else When.CLASS
        return Member(
            definition.name, kind, at, definition.line, cls, when, value=value, annotation=annotation, replaced=replaced
        )

    def _kind_of_value(self, cls: ClassAt, definition: Value) -> Kind:
        called = definition.value.partition("(")[0].rpartition(".")[2]
        if "(" in definition.value and called in _KIND_OF_DECORATOR:
            return _KIND_OF_DECORATOR[called]
        if self.inheritance.is_enum(cls) and not definition.annotation:
            return Kind.ENUM_MEMBER
        if self._is_struct(cls) and _is_field(definition):
            return Kind.FIELD
        return Kind.CLASS_ATTRIBUTE if definition.value else Kind.ANNOTATION

    def _is_struct(self, cls: ClassAt) -> bool:
        if any(d.partition("(")[0].rpartition(".")[2] == "dataclass" for d in cls.definition.decorators):
            return True
        return any(not isinstance(a, ClassAt) and a.label in _STRUCTS for a in self.inheritance.order(cls))

    def _given(self, cls: ClassAt, name: str, declared: Sequence[Member]) -> Member | None:
        """The attribute as methods of the class set it, or None where none gives it a value that the class does not."""
        construction = self.construction(cls)
        born, late = construction.sets(name), construction.late_sets(name)
        values, later = _with_value(born), _with_value(late)
        nulls = [found for found in born if found.assign.value == "None"]
        if not (values or later or nulls):
            return None if declared else _announced(name, construction)
        default = next((member for member in declared if member.kind is Kind.CLASS_ATTRIBUTE), None)
        if not values and any(member.when is When.CLASS and member.kind is not Kind.ANNOTATION for member in declared):
            return None
        when = When.INIT if values else _when_not_born(later, nulls, default)
        # what a class default of a value backs up is always there
        backed = when is When.LATE or (default is not None and (not values or default.when is When.CLASS))
        only_if = "" if backed else alternatives([found.guards for found in values or nulls], construction.ends)
        shown = construction.most_derived(values or later or nulls)
        return Member(
            name,
            Kind.ATTRIBUTE,
            At(shown.cls.module, (*shown.cls.outer, shown.cls.definition), shown.function),
            shown.assign.line,
            shown.cls,
            when,
            set_by=tuple(dict.fromkeys(found.function.name for found in later)),
            only_if=only_if,
            deleted_by=self._deleted_by(cls, name),
            value=shown.assign.value,
            annotation=next((f.assign.annotation for f in born + late if f.assign.annotation), ""),
        )

    def _deleted_by(self, cls: ClassAt, name: str) -> tuple[str, ...]:
        return tuple(
            function.name
            for ancestor in self.inheritance.classes(cls)
            for function in ancestor.definition.body
            if isinstance(function, Function) and name in function.deletes
        )


def _with_value(sets: Sequence[Set]) -> list[Set]:
    return [found for found in sets if found.assign.value not in {"", "None"}]


def _when_not_born(later: Sequence[Set], nulls: Sequence[Set], default: Member | None) -> When:
    """When an attribute holds a value that construction does not give it."""
    if not later:
        return When.NEVER
    return When.NULL if nulls or default else When.LATE


def _announced(name: str, construction: Construction) -> Member | None:
    """The attribute that `self.<name>: Type` announces without giving it a value."""
    for found in construction.sets(name):
        at = At(found.cls.module, (*found.cls.outer, found.cls.definition), found.function)
        annotation = found.assign.annotation
        return Member(name, Kind.ANNOTATION, at, found.assign.line, found.cls, When.NEVER, annotation=annotation)
    return None


def _kind_of_function(function: Function) -> Kind:
    kinds = [_KIND_OF_DECORATOR.get(d.partition("(")[0].rpartition(".")[2]) for d in function.decorators]
    known = [kind for kind in kinds if kind]
    return Kind.ABSTRACT if Kind.ABSTRACT in known else known[0] if known else Kind.METHOD


def _adds_to_first(function: Function) -> bool:
    return any(decorator.partition("(")[0].rpartition(".")[2] in _ADDS_TO_FIRST for decorator in function.decorators)


def _is_field(definition: Value) -> bool:
    return bool(definition.annotation) and "ClassVar" not in definition.annotation
