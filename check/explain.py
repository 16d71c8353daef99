"""Everything known about one name: its rows, what the tree has, who else has it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from sgl_amd_mono.check.diff import facets
from sgl_amd_mono.check.findings import Finding
from sgl_amd_mono.check.index import Holder
from sgl_amd_mono.check.judge import Judge
from sgl_amd_mono.check.rows import Row


@dataclass(frozen=True, slots=True)
class Explanation:
    """One row of the name, with the tree's facets and the findings."""

    row: Row
    facets: dict[str, str]
    findings: tuple[Finding, ...]


def explain(judge: Judge, rows: Iterable[Row], name: str) -> tuple[list[Explanation], list[Holder]]:
    """The rows called `name` (or `Class.name`), and every class or module of the tree that has the name of its own."""
    wanted = {row.path: row for row in rows if name in {row.name, row.label, row.path}}
    said = [Explanation(row, facets(judge, row), tuple(judge.findings(row))) for row in wanted.values()]
    return said, judge.index.holders(name.rpartition(":")[2].rpartition(".")[2])
