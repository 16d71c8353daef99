"""The command line, `amd-mono`."""

from __future__ import annotations

import sys
from typing import Annotated

import typer
from rich.console import Console
from rich.text import Text

from sgl_amd_mono import __version__, env
from sgl_amd_mono.commands.build import build
from sgl_amd_mono.commands.contract import contract
from sgl_amd_mono.commands.decode import decode
from sgl_amd_mono.commands.doctor import doctor
from sgl_amd_mono.commands.make_checkpoint import make_checkpoint
from sgl_amd_mono.errors import MonoError

FAILURE = 2
"""Exit status when the command could not do its work; the message on standard error says why."""

_ENVIRONMENT = "\n\n".join(f"[bold]{variable.name}[/]  {variable.doc}" for variable in env.VARIABLES)

app = typer.Typer(
    name="amd-mono",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode="rich",
    # an error that is not the user's keeps its plain traceback, which is what a bug report needs.
    pretty_exceptions_enable=False,
    epilog=f"Environment variables:\n\n{_ENVIRONMENT}",
)
app.command()(build)
app.command()(make_checkpoint)
app.command()(decode)
app.command()(contract)
app.command()(doctor)


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"amd-mono {__version__}")
        raise typer.Exit


@app.callback()
def options(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    """Monokernel decode backend of SGLang for AMD Instinct MI355X."""


def main() -> None:
    """Run `amd-mono`: status 0, 2 with one message for an error of the user's, a traceback for a bug of ours."""
    try:
        app(prog_name=app.info.name)
    except MonoError as error:
        console = Console(stderr=True, highlight=False, soft_wrap=True)
        console.print(Text.assemble(("Error: ", "bold red"), str(error)))
        sys.exit(FAILURE)
