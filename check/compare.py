"""Compares what a tree has with what a row says of it: kind, time, value, call, next hop, body."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TypeAlias

from sgl_amd_mono.check.bodies import FunctionBody
from sgl_amd_mono.check.facts import Class, Function, Value
from sgl_amd_mono.check.findings import Finding, Verdict
from sgl_amd_mono.check.guards import alternatives
from sgl_amd_mono.check.hops import given_classes
from sgl_amd_mono.check.kinds import Kind, When, alike
from sgl_amd_mono.check.members import Member, Members
from sgl_amd_mono.check.names import At, ClassAt, Names
from sgl_amd_mono.check.rows import ANYWHERE, Row
from sgl_amd_mono.check.signatures import called_as, misfit
from sgl_amd_mono.check.structs import constructor, field_list
from sgl_amd_mono.check.syntax import literal

Said: TypeAlias = "Iterator[tuple[Verdict, str]]"
Found: TypeAlias = "Member | At"


class Comparison:
    """Compares findings of one tree with rows."""

    def __init__(self, names: Names, members: Members) -> None:
        self._names = names
        self._members = members

    def findings(self, row: Row, on: str, found: Found) -> list[Finding]:
        """Every way in which `found`, met on `on`, differs from `row`; one `ok` finding where it does not."""
        kind = kind_of(found)
        # what a function does is asked of methods and module functions alike
        of_function = row.kind in {Kind.CALLS, Kind.STRINGS}
        if not (function_of(found) if of_function else alike(kind, row.kind)):
            expected = "a function" if of_function else _with_article(row.kind)
            text = f"is {_with_article(kind)}{_never(found)}, expected {expected}"
            return [Finding(row, Verdict.KIND, on, text, found.place)]
        checks: list[Callable[[Row, Found], Said]] = [self._value, self._call, self._hop, self._body]
        if isinstance(found, Member):
            checks += [self._time, self._declaration]
        if isinstance(found, ClassAt):
            checks.append(self._struct)
        said = [Finding(row, v, on, text, found.place) for check in checks for v, text in check(row, found)]
        return said or [Finding(row, Verdict.OK, on, describe(found), found.place)]

    def _time(self, row: Row, found: Found) -> Said:
        assert isinstance(found, Member)
        if row.when is None or found.kind is Kind.FIELD:
            return
        if found.when is not row.when:
            setters = f" by {', '.join(found.set_by)}" if found.when in {When.NULL, When.LATE} else ""
            yield Verdict.WHEN, f"is {found.when.value}{setters}, expected: {row.when.value}"
            return
        if unset := [name for name in row.set_by if name not in found.set_by]:
            yield Verdict.WHEN, f"{', '.join(unset)} no longer sets it; set by {', '.join(found.set_by) or 'nothing'}"
        if found.only_if and not row.only_if:
            yield Verdict.WHEN, f"is set only if {found.only_if}"
        elif found.only_if != row.only_if:
            yield Verdict.CONDITION, f"is set {_if(found.only_if)}; was {_if(row.only_if)}"
        if deleting := [name for name in found.deleted_by if name not in row.deleted_by]:
            yield Verdict.WHEN, f"is deleted by {', '.join(deleting)}"

    def _declaration(self, row: Row, found: Found) -> Said:
        assert isinstance(found, Member)
        owner = row.declared_on or row.owner.rpartition(":")[2]
        if not row.holds_for and found.declared_on.qualname != owner:
            yield Verdict.MOVED, f"is now declared on {found.declared_on.qualname}, was on {owner}"
        if found.replaced:
            lines = ", ".join(map(str, found.replaced))
            yield Verdict.TWICE, f"is defined again after line {lines}; the last definition counts"

    def _value(self, row: Row, found: Found) -> Said:
        value = value_of(found)
        if row.value and literal(value) not in map(literal, row.value):
            yield Verdict.VALUE, f"is {value or 'without a value'}, expected {' or '.join(row.value)}"

    def _call(self, row: Row, found: Found) -> Said:
        if row.call is None:
            return
        if isinstance(found, ClassAt):
            parameters = constructor(self._members, found)
        elif function := function_of(found):
            parameters = called_as(function, kind_of(found))
        else:
            return
        if reason := misfit(parameters, row.call):
            yield Verdict.SIGNATURE, reason

    def _hop(self, row: Row, found: Found) -> Said:
        given = given_classes(self._names, found) if row.gives else []
        expected: list[ClassAt] = []
        for path in row.gives:
            module, _, name = path.partition(":")
            # a class whose module upstream has not said is known by its name alone
            same = [cls for cls in given if cls.qualname == name] if module == ANYWHERE else []
            if cls := self._names.class_at(path):
                expected.append(cls)
            elif module != ANYWHERE:
                yield Verdict.MISSING, f"gives {name}, which the tree does not define at {path}"
            expected += same
        related = self._members.inheritance.related
        if given and not any(related(one, other) for one in given for other in expected):
            names = " or ".join(cls.qualname for cls in given)
            yield Verdict.KIND, f"gives {names}, expected {' or '.join(p.rpartition(':')[2] for p in row.gives)}"

    def _body(self, row: Row, found: Found) -> Said:
        function = function_of(found)
        if function is None or not (row.body or row.references or row.avoids or row.steps):
            return
        body = FunctionBody(self._names.tree, found if isinstance(found, At) else found.at, function.end_line)
        if absent := [name for name in row.references if name not in body.names]:
            yield Verdict.BODY, f"no longer uses {', '.join(absent)}"
        if present := [name for name in row.avoids if name in body.names]:
            yield Verdict.BODY, f"now uses {', '.join(present)}"
        if row.body and body.fingerprint not in row.body.values():
            known = ", ".join(f"{digest} since {release}" for release, digest in row.body.items())
            yield Verdict.BODY, f"has another body, {body.fingerprint}; known were {known}"
        if row.kind is Kind.STRINGS:
            for text in row.steps:
                if text not in body.literals:
                    yield Verdict.MISSING, f"no longer names {text}"
        if row.kind is Kind.CALLS:
            yield from _steps(row, body)

    def _struct(self, row: Row, found: Found) -> Said:
        assert isinstance(found, ClassAt)
        if row.fields:
            current = field_list(self._members, found)
            if absent := [name for name in row.fields if name.rstrip("=") not in {c.rstrip("=") for c in current}]:
                yield Verdict.MISSING, f"has no field {', '.join(name.rstrip('=') for name in absent)}"
            elif tuple(current) != row.fields:
                yield Verdict.SIGNATURE, f"has fields ({', '.join(current)}), expected ({', '.join(row.fields)})"
        options = (*found.definition.keywords, *found.definition.decorators)
        if lost := [option for option in row.options if not any(option in text for text in options)]:
            yield Verdict.KIND, f"is no longer {', '.join(lost)}"


def _steps(row: Row, body: FunctionBody) -> Said:
    """Whether the body makes the row's calls, in order, the last under the row's condition."""
    previous = -1
    for step in row.steps:
        sites = [index for index, site in enumerate(body.calls) if site.is_of(step)]
        after = [index for index in sites if index > previous]
        if not after:
            early = f"calls {step} too early, at line {body.calls[sites[-1]].line}" if sites else ""
            yield Verdict.CALLS, f"{early or f'no longer calls {step}'}; expected {', then '.join(row.steps)}"
            return
        previous = after[0]
    last = [site for site in body.calls if site.is_of(row.steps[-1])]
    conditions = [alternatives([site.guards]) for site in last]
    if not row.only_if and all(conditions):
        yield Verdict.WHEN, f"calls {row.steps[-1]} only if {conditions[0]}"
    if row.only_if and not any(row.only_if in site.guards for site in last):
        yield Verdict.WHEN, f"calls {row.steps[-1]} {_if(conditions[0])}; was if {row.only_if}"


def kind_of(found: Found) -> Kind:
    """The kind of what was found."""
    if isinstance(found, Member):
        return found.kind
    match found.definition:
        case Class():
            return Kind.CLASS
        case Function():
            return Kind.FUNCTION
    return Kind.CONSTANT


def function_of(found: Found) -> Function | None:
    """The function, where it is one."""
    if isinstance(found, Member):
        return found.function
    return found.definition if isinstance(found.definition, Function) else None


def value_of(found: Found) -> str:
    """The value as source text; empty where it has none."""
    if isinstance(found, Member):
        return found.value
    return found.definition.value if isinstance(found.definition, Value) else ""


def describe(found: Found) -> str:
    """One line on what was found."""
    if not isinstance(found, Member):
        return kind_of(found).value
    when = f", {found.when.value}" if found.kind is Kind.ATTRIBUTE else ""
    only_if = f", only if {found.only_if}" if found.only_if else ""
    return f"{found.kind.value} of {found.declared_on.qualname}{when}{only_if}"


def _never(found: Found) -> str:
    """A reminder that a class default of None hides that nothing sets the name."""
    return f" that is {found.when.value}" if isinstance(found, Member) and found.when is When.NEVER else ""


def _if(condition: str) -> str:
    return f"if {condition}" if condition else "always"


def _with_article(kind: Kind) -> str:
    return f"{'an' if kind.value[0] in 'aeiou' else 'a'} {kind.value}"
