"""`amd-mono doctor`: whether a server would run the kernels here, and every reason why not."""

from __future__ import annotations

import json as json_module
from pathlib import Path
from typing import Annotated

import typer

from sgl_amd_mono.errors import ContractError, MonoError

REFUSED = 1
"""Exit status when a server would not run the kernels."""


def doctor(
    model: Annotated[
        Path | None,
        typer.Argument(metavar="MODEL", help="Checkpoint folder to ask about. Default: the machine alone."),
    ] = None,
    arguments: Annotated[
        list[str] | None,
        typer.Argument(metavar="-- ARGUMENT", help="Arguments of sglang.launch_server, after `--`."),
    ] = None,
    tp_size: Annotated[
        int | None, typer.Option(min=1, help="Tensor-parallel size of the server. Default: SGLang's.")
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="Print JSON instead of text.")] = False,
) -> None:
    """Say what this machine, its SGLang and a server of MODEL would do with --enable-amd-monokernel.

    Nothing is compiled, loaded or started. Exit status 0: the kernels would run; 1: refused, for the reasons that are
    listed; 2: could not tell.
    """
    from sgl_amd_mono.check.errors import TreeError
    from sgl_amd_mono.commands.contract import contracts_of_models
    from sgl_amd_mono.doctor.report import Verdict, diagnose
    from sgl_amd_mono.doctor.tables import print_report

    try:
        report = diagnose(list(contracts_of_models().values()), model, tp_size, arguments or [])
    except TreeError as error:
        raise ContractError(str(error)) from error
    if json:
        typer.echo(json_module.dumps(report.as_json(), indent=2))
    else:
        print_report(report)
    if report.verdict is Verdict.UNKNOWN:
        raise MonoError(report.unknown)
    if report.verdict is Verdict.REFUSED:
        raise typer.Exit(REFUSED)
