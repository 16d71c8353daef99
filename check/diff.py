"""What changed between two trees, of all that we read: more than breaches, and nothing that we do not read."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from sgl_amd_mono.check.bodies import FunctionBody
from sgl_amd_mono.check.compare import describe, function_of, kind_of, value_of
from sgl_amd_mono.check.judge import Judge
from sgl_amd_mono.check.members import Member
from sgl_amd_mono.check.names import ClassAt
from sgl_amd_mono.check.rows import Row
from sgl_amd_mono.check.signatures import called_as
from sgl_amd_mono.check.structs import field_list

ABSENT = "absent"


@dataclass(frozen=True, slots=True)
class Change:
    """One facet of one row that differs; `old_place` and `new_place` are upstream file:line."""

    row: Row
    facet: str
    old: str
    new: str
    old_place: str
    new_place: str


def changes(old: Judge, new: Judge, rows: Iterable[Row]) -> list[Change]:
    """The facets of `rows` that differ between two trees."""
    found: list[Change] = []
    for row in {row.path + row.kind.value: row for row in rows}.values():
        before, after = facets(old, row), facets(new, row)
        places = before.get("place", ""), after.get("place", "")
        if not before or not after:
            if before or after:
                found.append(Change(row, "existence", before.get("what", ABSENT), after.get("what", ABSENT), *places))
            continue
        found += [
            Change(row, facet, before[facet], after.get(facet, ABSENT), *places)
            for facet in before
            if facet != "place" and before[facet] != after.get(facet, ABSENT)
        ]
    return found


def facets(judge: Judge, row: Row) -> dict[str, str]:
    """What a tree says of a row, facet by facet; empty where it does not have the name."""
    found = judge.find(row)
    if not found:
        return {}
    target = found[-1]
    said = {"place": target.place, "what": describe(target), "file": target.place.partition(":")[0]}
    if value := value_of(target):
        said["value"] = value
    if isinstance(target, ClassAt):
        said["fields"] = ", ".join(field_list(judge.members, target)) or "none"
    elif function := function_of(target):
        at = target.at if isinstance(target, Member) else target
        said["signature"] = str(called_as(function, kind_of(target)))
        said["body"] = FunctionBody(judge.tree, at, function.end_line).fingerprint
    if isinstance(target, Member) and target.set_by:
        said["set by"] = ", ".join(target.set_by)
    return said
