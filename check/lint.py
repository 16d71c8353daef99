"""The other direction: does every SGLang name that our own source touches have a row, and does every row have a use?

The lint follows values through our source by their declared types: a parameter annotated with an SGLang class, an
imported function, and from there whatever the rows say that reading a name gives. A name is looked up on the class
that it is read from, so a row for the same name on another class does not excuse it.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from sgl_amd_mono.check.flow import Use, uses_in
from sgl_amd_mono.check.kinds import Kind
from sgl_amd_mono.check.rows import Row

# a class is also imported to say what a parameter is; a variable's name may stand in a message
_TOUCHED_ANYWAY = frozenset({Kind.CLASS, Kind.CALLS, Kind.STRINGS})


@dataclass(frozen=True, slots=True)
class Problem:
    """One disagreement between our source and the rows; `place` is our file:line, or the row's reader."""

    place: str
    text: str


def lint(rows: Sequence[Row], sources: Mapping[str, str]) -> list[Problem]:
    """Compare rows with our sources.

    Parameters
    ----------
    rows: every row of every model
    sources: text of each of our files that may read SGLang objects, by the name that rows call it in `reader`

    Returns
    -------
    A problem for each use without a row, each row without a use that is not watched, each watched row with one, and
    each reader that does not exist.
    """
    problems: list[Problem] = []
    used: set[str] = set()
    for name, text in sorted(sources.items()):
        for use in uses_in(ast.parse(text), rows):
            if use.row is None:
                problems.append(Problem(f"{name}:{use.line}", f"{use.name} {use.problem}"))
            else:
                used.add(use.row.path)
                problems += [Problem(f"{name}:{use.line}", text) for text in _call_problems(use)]
    for row in rows:
        file = row.reader.partition(":")[0]
        if row.watched:
            if row.path in used and row.kind not in _TOUCHED_ANYWAY:
                problems.append(Problem(row.reader or row.path, f"{row.label} is watched but our source reads it"))
        elif file not in sources:
            problems.append(Problem(row.reader or row.path, f"the reader of {row.label} does not exist"))
        elif row.path not in used:
            problems.append(Problem(row.reader, f"{row.label} has a row but nothing reads it: drop the row"))
    return problems


def readers(rows: Sequence[Row], sources: Mapping[str, str]) -> dict[str, str]:
    """For each row's path, our first file:line (function) that touches it."""
    found: dict[str, str] = {}
    for name, text in sorted(sources.items()):
        for use in uses_in(ast.parse(text), rows):
            if use.row:
                found.setdefault(use.row.path, f"{name}:{use.line} ({use.function})")
    return found


def sources_of(rows: Iterable[Row], packages: Mapping[str, Path]) -> dict[str, str]:
    """The text of the readers that exist; `packages` maps the first part of a reader's name to its folder."""
    texts = {}
    for file in {row.reader.partition(":")[0] for row in rows if row.reader}:
        top, _, rest = file.partition("/")
        path = packages[top] / rest
        if path.is_file():
            texts[file] = path.read_text()
    return texts


def _call_problems(use: Use) -> list[str]:
    """What a call passes that the row's sample call does not."""
    assert use.row is not None
    if use.call is None or use.row.kind in {Kind.FIELD, Kind.ATTRIBUTE, Kind.PROPERTY}:
        return []
    declared = use.row.call
    if declared is None:
        return [f"{use.row.label} is called, but its row has no sample call"]
    problems = []
    if use.call.positional > declared.positional:
        problems.append(
            f"{use.row.label} is called with {use.call.positional} arguments, its row says {declared.positional}"
        )
    unknown = [keyword for keyword in use.call.keywords if keyword not in declared.keywords]
    if unknown:
        problems.append(f"{use.row.label} is called with {', '.join(unknown)}, which its row does not name")
    return problems
