"""`amd-mono build`: compile the kernels."""

from __future__ import annotations

import time
from typing import Annotated

import msgspec
import typer
from rich.console import Console
from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

from sgl_amd_mono.build import compile as compiler
from sgl_amd_mono.build.codeobject import Kernel, read_kernels
from sgl_amd_mono.build.gates import Violation, violations
from sgl_amd_mono.build.resources import resource_table
from sgl_amd_mono.errors import BuildError


class Built(msgspec.Struct, frozen=True):
    """One compiled source, as `--json` prints it."""

    artifact: compiler.Artifact
    seconds: float
    kernels: tuple[Kernel, ...]
    """Empty for the host and without `--resources`, as `violations` is."""
    violations: tuple[Violation, ...]


def build(
    arch: Annotated[
        list[str] | None,
        typer.Option(
            metavar="|".join(compiler.ARCHES),
            help=f"Architecture; repeatable. Default: {' and '.join(compiler.DEFAULT_ARCHES)}.",
        ),
    ] = None,
    kernel: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME", help="Kernel source hip/kernels/NAME.hip; repeatable. Default: all."),
    ] = None,
    resources: Annotated[
        bool,
        typer.Option(
            "--resources",
            help="Show what each GPU kernel occupies and check it against the limits; exit status 1 if one is broken.",
        ),
    ] = False,
    json: Annotated[bool, typer.Option("--json", help="Print JSON instead of text.")] = False,
) -> None:
    """Compile the kernels for the GPU and for the host.

    What has been compiled before from the same sources, with the same flags and compiler, is taken from the cache.
    """
    names = kernel or compiler.kernels()
    if not names:
        raise BuildError(f"No kernel sources in {compiler.SOURCES / 'kernels'}: install the package again.")
    built = _build_all([(name, target) for name in names for target in arch or compiler.DEFAULT_ARCHES], resources)
    if json:
        typer.echo(msgspec.json.format(msgspec.json.encode(built, enc_hook=str)))
    else:
        _show(built, resources)
    if any(one.violations for one in built):
        raise typer.Exit(1)


def _build_all(jobs: list[tuple[str, str]], resources: bool) -> list[Built]:
    columns = (SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn())
    console = Console(stderr=True)
    built = []
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as progress:
        for kernel, arch in jobs:
            task = progress.add_task(f"Compiling {kernel} for {arch}")
            built.append(_build(kernel, arch, resources))
            progress.remove_task(task)
    return built


def _build(kernel: str, arch: str, resources: bool) -> Built:
    start = time.perf_counter()
    artifact = compiler.build(kernel, arch)
    seconds = round(time.perf_counter() - start, 3)
    return Built(
        artifact,
        seconds,
        kernels=read_kernels(artifact.binary) if resources and arch != compiler.HOST else (),
        violations=violations(artifact) if resources else (),
    )


def _show(built: list[Built], resources: bool) -> None:
    console = Console(highlight=False, soft_wrap=True)
    console.print(f"Compiler: {built[0].artifact.compiler}", markup=False)
    for one in built:
        made = "cached" if one.artifact.cached else f"compiled in {one.seconds:.1f} s"
        console.print(f"{one.artifact.kernel} for {one.artifact.arch}: {made}", markup=False)
        console.print(f"  {one.artifact.binary}", style="dim", markup=False)
    if resources:
        console.print(resource_table((one.artifact.arch, kernel) for one in built for kernel in one.kernels))
    for one in built:
        for violation in one.violations:
            console.print(f"{one.artifact.arch}: {violation}", style="red", markup=False)
