"""The doctor's report for a terminal."""

from __future__ import annotations

from collections.abc import Iterator

from rich.console import Console, RenderableType
from rich.markup import escape
from rich.table import Table

from sgl_amd_mono.doctor.installation import Installation, Plugin
from sgl_amd_mono.doctor.machine import Machine
from sgl_amd_mono.doctor.report import Report, Verdict
from sgl_amd_mono.doctor.server import Checkpoint
from sgl_amd_mono.served_table import served_table

_STYLE = {Verdict.RUNS: "bold green", Verdict.REFUSED: "bold red", Verdict.UNKNOWN: "bold yellow"}
_NONE = "none"


def print_report(report: Report) -> None:
    """The tables, then the verdict and every reason."""
    console = Console(highlight=False, soft_wrap=True)
    for table in _tables(report):
        console.print(table)
        console.print()
    console.print(f"[{_STYLE[report.verdict]}]{report.verdict.value}[/]")
    for reason in report.reasons:
        console.print(f"  - {reason}", markup=False)
    if report.checkpoint is not None and report.verdict is Verdict.RUNS:
        console.print("  The weights are judged when the server has loaded them.", style="dim")


def _tables(report: Report) -> Iterator[RenderableType]:
    yield _facts("Machine", dict(_machine(report.machine)))
    yield _facts("SGLang", dict(_sglang(report.sglang, report.plugin)))
    if report.environment:
        yield _facts("Environment variables that are set", report.environment)
    if report.checkpoint is not None:
        yield _facts("Checkpoint", dict(_checkpoint(report.checkpoint)))
        if report.checkpoint.layers:
            yield served_table(report.checkpoint.layers, "What would serve each layer in a routed step")


def _machine(machine: Machine) -> Iterator[tuple[str, str]]:
    gpu = machine.gpu
    yield "torch", f"{machine.torch}, {f'HIP {machine.hip}' if machine.hip else 'not built for ROCm'}"
    yield "GPU", f"{gpu.name}: {gpu.arch}, {gpu.compute_units} compute units" if gpu else "no GPU"
    yield "hip-python", machine.hip_python or "not installed"
    yield "compiler", machine.compiler or _NONE
    for build in machine.kernels:
        yield f"kernel {build.kernel}", f"{build.arch}: {build.binary or 'not built'}"


def _sglang(installation: Installation | None, plugin: Plugin) -> Iterator[tuple[str, str]]:
    if installation is None:
        yield "version", "not installed"
    else:
        yield "version", f"{installation.release} at {installation.place}"
        yield (
            "plugin contract",
            "present" if installation.has_contract else "absent: SGLang 0.5.23 is the first with it",
        )
        for verdict in installation.contracts:
            yield f"names of {verdict.model}", verdict.said
        yield "checked in", f"{installation.seconds:.2f} s"
    yield "entry point", plugin.entry_point or "not visible"
    only = f" (SGLANG_PLUGINS={plugin.only})" if plugin.only else ""
    yield "loaded by a server", f"{'yes' if plugin.is_loaded else 'no'}{only}"


def _checkpoint(checkpoint: Checkpoint) -> Iterator[tuple[str, str]]:
    yield "folder", str(checkpoint.folder)
    yield "architecture", ", ".join(checkpoint.architectures)
    model = checkpoint.model
    if model is None:
        yield "spec", "none registered: every step would run through the model's own modules"
        return
    yield "spec", f"{model.name}, for {model.arch}"
    yield "rows of routed steps", ", ".join(map(str, model.widths))
    yield "tensor-parallel sizes", ", ".join(map(str, model.tp_sizes))


def _facts(title: str, facts: dict[str, str]) -> Table:
    table = Table(title=title, title_justify="left", title_style="bold", show_header=False, box=None)
    table.add_column(style="dim", no_wrap=True)
    # a path on several lines cannot be copied
    table.add_column(overflow="fold")
    for name, value in facts.items():
        table.add_row(escape(name), escape(value))
    return table
