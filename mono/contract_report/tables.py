"""The contract report for a terminal."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from sgl_amd_mono.check.diff import Change
from sgl_amd_mono.check.explain import Explanation
from sgl_amd_mono.check.findings import Finding, Level
from sgl_amd_mono.check.index import Holder
from sgl_amd_mono.check.report import ModelReport, Report

_STYLE = {Level.OK: "green", Level.INFO: "cyan", Level.REVIEW: "yellow", Level.BREACH: "bold red"}


def print_report(report: Report, readers: Mapping[str, str]) -> None:
    """One line on the tree, then per model: the choice of profile, what differs, what runs."""
    console = _console()
    console.print(f"SGLang {report.release} at {escape(report.place)}, checked in {report.seconds:.2f} s")
    if report.unsupported:
        console.print(f"[bold red]unsupported[/]: {escape(report.unsupported)}")
    for model in report.models:
        console.print(f"\n[bold]{model.contract.model}[/]: {escape(model.choice)}")
        shown = [finding for finding in model.findings if finding.verdict.level is not Level.OK]
        if shown:
            console.print(_findings(shown, readers))
        _print_parts(console, model)


def print_changes(changes: Sequence[Change], old: str, new: str) -> None:
    """One row a facet that differs."""
    console = _console()
    table = _table("name", "facet", old, new, "where", title=f"What we read that changed: {len(changes)}")
    for change in changes:
        place = change.new_place or change.old_place
        table.add_row(*map(escape, (change.row.label, change.facet, change.old, change.new, place)))
    console.print(table)


def print_explanation(
    name: str, explanations: Sequence[Explanation], holders: Sequence[Holder], readers: Mapping[str, str]
) -> None:
    """Each row of the name, then everyone in the tree who has it."""
    console = _console()
    for said in explanations:
        row = said.row
        console.print(f"[bold]{escape(row.path)}[/]")
        lines = {
            "expected": f"{row.kind.value}{f', {row.when.value}' if row.when else ''}",
            "condition": row.only_if,
            "since": row.since,
            "profile": row.profile or "every",
            "replaced by": row.replaced_by,
            "needed for": row.needed_for,
            "read by": readers.get(row.path, row.reader),
        }
        for key, value in {**lines, **{f"tree: {k}": v for k, v in said.facets.items()}}.items():
            if value:
                console.print(f"  {key}: {escape(value)}")
        for finding in said.findings:
            console.print(f"  [{_STYLE[finding.verdict.level]}]{finding.verdict.text}[/]: {escape(finding.text)}")
    table = _table("has the name", "where", title=f"{name} in this tree: {len(holders)}")
    for holder in holders:
        table.add_row(escape(holder.owner), escape(holder.place))
    console.print(table)


def _console() -> Console:
    return Console(highlight=False)


def _table(*headers: str, title: str = "") -> Table:
    """A table that breaks long names and paths over lines instead of cutting them."""
    table = Table(title=title or None)
    for header in headers:
        table.add_column(header, overflow="fold")
    return table


def _findings(findings: Sequence[Finding], readers: Mapping[str, str]) -> Table:
    table = _table("verdict", "name", "found", "upstream", "read by")
    for finding in findings:
        text = "\n".join([finding.text, *(f"- {hint}" for hint in finding.hints)])
        reader = readers.get(finding.row.path, finding.row.reader)
        style = _STYLE[finding.verdict.level]
        verdict = f"[{style}]{finding.verdict.text}[/]"
        table.add_row(verdict, *map(escape, (finding.label, text, finding.place or "-", reader)))
    return table


def _print_parts(console: Console, model: ModelReport) -> None:
    counts = {level: len(model.at(level)) for level in Level}
    console.print(", ".join(f"[{_STYLE[level]}]{count} {level.value}[/]" for level, count in counts.items() if count))
    for part in model.parts:
        state = "[green]names hold[/]" if part.runs else f"[bold red]broken[/]: {len(part.breaches)} breaches"
        console.print(f"  {part.name}: {state}")
