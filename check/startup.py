"""The check that the plugin makes when a server starts: breaches become reasons why the model is refused."""

from __future__ import annotations

from collections.abc import Collection

from sgl_amd_mono.check.errors import TreeError
from sgl_amd_mono.check.findings import Finding, Level
from sgl_amd_mono.check.report import Report, check
from sgl_amd_mono.check.rows import Contract
from sgl_amd_mono.check.store import Store
from sgl_amd_mono.check.tree import Tree


def refusal_reasons(contract: Contract, tree: Tree, store: Store, parts: Collection[str]) -> list[str]:
    """Why `contract` does not hold in `tree`, one reason a row; empty where it holds.

    The answer is kept in `store` under the tree's stamp, so only the first of a server's processes judges.

    Parameters
    ----------
    parts: the parts of the product that this server uses; a breach of another part is no reason
    """
    key = ("refusals", tree.stamp, repr(contract), *sorted(parts))
    if (kept := store.get(*key)) is not None:
        return list(map(str, kept))
    try:
        reasons = _reasons(check(tree, [contract], store), parts)
    except TreeError as error:
        reasons = [f"the SGLang contract could not be checked: {error}"]
    store.put(reasons, *key)
    return reasons


def _reasons(report: Report, parts: Collection[str]) -> list[str]:
    if report.unsupported:
        return [f"SGLang {report.release} at {report.place} is not supported: {report.unsupported}"]
    breaches = [finding for model in report.models for finding in model.at(Level.BREACH)]
    return [_reason(finding) for finding in breaches if finding.row.needed_for in parts]


def _reason(finding: Finding) -> str:
    where = f" at {finding.place}" if finding.place else ""
    said = [f"{finding.label} {finding.text} ({finding.verdict.text}{where}), needed for {finding.row.needed_for}"]
    said += finding.hints
    said.append(
        "install the sgl-amd-mono made for this SGLang, or an SGLang that this one supports; "
        f"`amd-mono contract --explain {finding.row.name or finding.row.label}` says more"
    )
    return "; ".join(said)
