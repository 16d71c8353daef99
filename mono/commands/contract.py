"""`amd-mono contract`: which upstream change breaks which model, and why."""

from __future__ import annotations

import enum
import importlib
import importlib.util
import json as json_module
import pkgutil
from pathlib import Path
from typing import Annotated

import typer

from sgl_amd_mono import models
from sgl_amd_mono.check.diff import changes
from sgl_amd_mono.check.errors import TreeError
from sgl_amd_mono.check.explain import explain
from sgl_amd_mono.check.judge import Judge
from sgl_amd_mono.check.lint import readers, sources_of
from sgl_amd_mono.check.report import check
from sgl_amd_mono.check.rows import Contract, Row
from sgl_amd_mono.check.tree import Tree, installed_tree, open_tree
from sgl_amd_mono.contract_check import store
from sgl_amd_mono.contract_report.markdown import markdown
from sgl_amd_mono.contract_report.tables import print_changes, print_explanation, print_report
from sgl_amd_mono.errors import ContractError

BREACH = 1
"""Exit status when an upstream name that we read is gone or changed, or the tree has no plugin contract."""


class Format(str, enum.Enum):
    """How the report is written."""

    TABLE = "table"
    GITHUB = "github"


def contract(
    sglang: Annotated[
        Path | None,
        typer.Option(
            metavar="PATH",
            help="Wheel, checkout or site-packages folder. Default: the installed SGLang. Nothing is imported.",
        ),
    ] = None,
    model: Annotated[
        list[str] | None, typer.Option(metavar="NAME", help="Model to check; repeatable. Default: all.")
    ] = None,
    explain_name: Annotated[
        str, typer.Option("--explain", metavar="NAME", help="Say everything known of one name, and who else has it.")
    ] = "",
    diff: Annotated[
        tuple[Path, Path] | None,
        typer.Option(metavar="OLD NEW", help="List what changed between two trees, of all that we read."),
    ] = None,
    format: Annotated[
        Format, typer.Option(help="table: for a terminal. github: Markdown for an issue.")
    ] = Format.TABLE,
    json: Annotated[bool, typer.Option("--json", help="Print JSON instead of text.")] = False,
) -> None:
    """Check every SGLang name that this package reads, from source alone.

    Exit status 0: all there; 1: a breach, or an SGLang without the plugin contract; 2: could not check.
    """
    try:
        contracts = _contracts(model)
        if diff:
            _diff(contracts, diff, json=json)
        elif explain_name:
            _explain(contracts, _tree(sglang), explain_name, json=json)
        else:
            _check(contracts, _tree(sglang), format, json=json)
    except TreeError as error:
        raise ContractError(str(error)) from error


def contracts_of_models() -> dict[str, Contract]:
    """The contract of each model package that has one, by the model's name."""
    found = {}
    for package in pkgutil.iter_modules(models.__path__, f"{models.__name__}."):
        if package.ispkg and importlib.util.find_spec(f"{package.name}.reads"):
            contract = importlib.import_module(f"{package.name}.reads").CONTRACT
            found[contract.model] = contract
    return found


def _contracts(names: list[str] | None) -> list[Contract]:
    every = contracts_of_models()
    if unknown := [name for name in names or () if name not in every]:
        raise ContractError(f"There is no model {', '.join(unknown)}; choose from {', '.join(every)}.")
    return [every[name] for name in names or every]


def _tree(place: Path | None) -> Tree:
    return open_tree(place) if place else installed_tree()


def _rows(contracts: list[Contract]) -> list[Row]:
    return [row for contract in contracts for row in contract.rows]


def _readers(rows: list[Row]) -> dict[str, str]:
    """Our file:line that reads each row, where the reader has been written."""
    package = Path(models.__path__[0])
    folders = {"models": package, "mono": Path(__file__).parents[1]}
    return readers(rows, sources_of(rows, folders))


def _check(contracts: list[Contract], tree: Tree, format: Format, *, json: bool) -> None:
    report = check(tree, contracts, store())
    places = _readers(_rows(contracts))
    if json:
        typer.echo(json_module.dumps(report.as_json(places), indent=2))
    elif format is Format.GITHUB:
        typer.echo(markdown(report, places))
    else:
        print_report(report, places)
    if report.exit_code:
        raise typer.Exit(BREACH)


def _explain(contracts: list[Contract], tree: Tree, name: str, *, json: bool) -> None:
    rows = _rows(contracts)
    said, holders = explain(Judge(tree, store()), rows, name)
    if not said and not holders:
        raise ContractError(f"Neither a row nor the tree has {name}.")
    if json:
        plain = {
            "rows": [
                {"path": s.row.path, "tree": s.facets, "verdicts": [f.verdict.text for f in s.findings]} for s in said
            ],
            "holders": [{"owner": holder.owner, "place": holder.place} for holder in holders],
        }
        typer.echo(json_module.dumps(plain, indent=2))
    else:
        print_explanation(name, said, holders, _readers(rows))


def _diff(contracts: list[Contract], trees: tuple[Path, Path], *, json: bool) -> None:
    old, new = (Judge(open_tree(place), store()) for place in trees)
    found = changes(old, new, _rows(contracts))
    if json:
        plain = [
            {"name": c.row.path, "facet": c.facet, "old": c.old, "new": c.new, "places": [c.old_place, c.new_place]}
            for c in found
        ]
        typer.echo(json_module.dumps(plain, indent=2))
    else:
        print_changes(found, old.tree.release, new.tree.release)
