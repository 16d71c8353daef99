"""Checks the contracts of one or more models against a tree, and says what still runs."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sgl_amd_mono.check.findings import Finding, Level
from sgl_amd_mono.check.judge import Judge
from sgl_amd_mono.check.rows import Contract, Profile, Row
from sgl_amd_mono.check.store import Store
from sgl_amd_mono.check.tree import Tree


@dataclass(frozen=True, slots=True)
class Part:
    """One part of the product, and what stands in its way."""

    name: str
    breaches: tuple[Finding, ...]

    @property
    def runs(self) -> bool:
        return not self.breaches


@dataclass(frozen=True, slots=True)
class ModelReport:
    """The outcome for one model; `choice` says in one line which profile was chosen and why."""

    contract: Contract
    profile: Profile
    choice: str
    findings: tuple[Finding, ...]

    def at(self, level: Level) -> list[Finding]:
        """The findings of one level."""
        return [finding for finding in self.findings if finding.verdict.level is level]

    @property
    def parts(self) -> list[Part]:
        """What still runs and what does not."""
        names = dict.fromkeys(finding.row.needed_for for finding in self.findings)
        breaches = self.at(Level.BREACH)
        return [Part(name, tuple(f for f in breaches if f.row.needed_for == name)) for name in names]


@dataclass(frozen=True, slots=True)
class Report:
    """The outcome for one tree. `unsupported` is the reason why no row was judged at all."""

    place: str
    release: str
    seconds: float
    unsupported: str
    models: tuple[ModelReport, ...]

    @property
    def exit_code(self) -> int:
        """0 where everything that we read is there, 1 on a breach or an unsupported tree."""
        return int(bool(self.unsupported) or any(model.at(Level.BREACH) for model in self.models))

    def as_json(self, readers: Mapping[str, str]) -> dict[str, Any]:
        """The report as JSON values; `readers` are our file:line by row path, where they are known."""
        return {
            "tree": self.place,
            "release": self.release,
            "seconds": round(self.seconds, 3),
            "exit_code": self.exit_code,
            "unsupported": self.unsupported,
            "models": [
                {
                    "model": model.contract.model,
                    "profile": model.profile.name,
                    "choice": model.choice,
                    "parts": {part.name: part.runs for part in model.parts},
                    "findings": [_finding(finding, readers) for finding in model.findings],
                }
                for model in self.models
            ],
        }


def check(tree: Tree, contracts: Sequence[Contract], store: Store) -> Report:
    """Judge every row of the chosen profile of each contract.

    Raises
    ------
    TreeError
        A file that a row leads to cannot be parsed.
    """
    start = time.perf_counter()
    judge = Judge(tree, store)
    unsupported = next((reason for c in contracts if (reason := _unsupported(judge, c))), "")
    # rows that several models share are judged once
    judged: dict[int, list[Finding]] = {}

    def findings(row: Row) -> list[Finding]:
        if id(row) not in judged:
            judged[id(row)] = judge.findings(row)
        return judged[id(row)]

    models = []
    for contract in () if unsupported else contracts:
        profile, choice = choose(judge, contract)
        said = tuple(finding for row in contract.of(profile) for finding in findings(row))
        models.append(ModelReport(contract, profile, choice, said))
    return Report(str(tree.place), tree.release, time.perf_counter() - start, unsupported, tuple(models))


def choose(judge: Judge, contract: Contract) -> tuple[Profile, str]:
    """The profile that fits the tree, and one line that says why."""
    probe = contract.probe
    present = judge.names.class_at(probe.owner)
    has = present is not None and bool(judge.members.find(present, probe.name))
    profile = probe.present if has else probe.absent
    state = "is present" if has else "is absent"
    owner = probe.owner.rpartition(":")[2]
    return profile, f"{owner}.{probe.name} ({probe.change}) {state}: binding {profile.binding}"


def _unsupported(judge: Judge, contract: Contract) -> str:
    if judge.names.module(contract.plugin):
        return ""
    last = contract.plugin.rpartition(".")[2]
    moved = sorted(p for p in judge.tree.paths if p.endswith(f"/{last}.py") and "plugin" in p and "amd" in p)
    hint = f" (is it {moved[0]} now?)" if moved else ""
    return f"no plugin contract: {contract.plugin} does not exist{hint}"


def _finding(finding: Finding, readers: Mapping[str, str]) -> dict[str, Any]:
    return {
        "name": finding.label,
        "path": finding.row.path,
        "on": finding.on,
        "verdict": finding.verdict.text,
        "level": finding.verdict.level.value,
        "text": finding.text,
        "upstream": finding.place,
        "reader": readers.get(finding.row.path, finding.row.reader),
        "needed_for": finding.row.needed_for,
        "hints": list(finding.hints),
    }
