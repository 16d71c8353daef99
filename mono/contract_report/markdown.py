"""The contract report as GitHub Markdown, for an issue or a job summary."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from sgl_amd_mono.check.findings import Level
from sgl_amd_mono.check.report import ModelReport, Report


def markdown(report: Report, readers: Mapping[str, str]) -> str:
    """The whole report as one Markdown text."""
    return "\n".join(_lines(report, readers))


def _lines(report: Report, readers: Mapping[str, str]) -> Iterator[str]:
    yield f"SGLang {report.release} (`{report.place}`), checked in {report.seconds:.2f} s."
    if report.unsupported:
        yield ""
        yield f"**Unsupported:** {report.unsupported}"
    for model in report.models:
        yield ""
        yield from _model(model, readers)


def _model(model: ModelReport, readers: Mapping[str, str]) -> Iterator[str]:
    yield f"### {model.contract.model}"
    yield ""
    yield f"{model.choice}."
    yield ""
    yield "| part | state |"
    yield "|---|---|"
    for part in model.parts:
        yield f"| {part.name} | {'names hold' if part.runs else f'**broken**: {len(part.breaches)} breaches'} |"
    shown = [finding for level in (Level.BREACH, Level.REVIEW, Level.INFO) for finding in model.at(level)]
    if shown:
        yield ""
        yield "| verdict | name | found | upstream | read by |"
        yield "|---|---|---|---|---|"
    for finding in shown:
        verdict = f"**{finding.verdict.text}**" if finding.verdict.level is Level.BREACH else finding.verdict.text
        text = "<br>".join([finding.text, *finding.hints])
        reader = readers.get(finding.row.path, finding.row.reader)
        cells = (verdict, f"`{finding.label}`", text, f"`{finding.place or '-'}`", f"`{reader}`")
        yield f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |"
