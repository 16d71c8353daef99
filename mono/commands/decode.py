"""`amd-mono decode`: generate tokens with the fused phases."""

from __future__ import annotations

import enum
import itertools
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from sgl_amd_mono.errors import MonoError
from sgl_amd_mono.served_table import served_table

if TYPE_CHECKING:
    from sgl_amd_mono.device.base import Device
    from sgl_amd_mono.models.glm53_flash.checked_kda import CheckedKda
    from sgl_amd_mono.models.glm53_flash.decode import Decoded

BREACH = 1
"""Exit status when a comparison is past its limit."""


class DeviceName(str, enum.Enum):
    """Where the phases run."""

    HOST = "host"
    HIP = "hip"


class SlicingName(str, enum.Enum):
    """How a program is cut into launches."""

    PHASE = "phase"
    LAYER = "layer"
    STEP = "step"


def decode(
    directory: Annotated[Path, typer.Argument(help="Checkpoint folder.")],
    prompt: Annotated[list[str] | None, typer.Option(help="Text to continue; repeatable, one row each.")] = None,
    prompt_ids: Annotated[
        list[str] | None, typer.Option(metavar="ID,ID,...", help="Token ids to continue; repeatable, one row each.")
    ] = None,
    steps: Annotated[int, typer.Option(min=1, help="Tokens to generate for each row.")] = 16,
    rows: Annotated[
        int | None,
        typer.Option(min=1, max=16, help="Rows of the batch; prompts repeat in turn. Default: one a prompt."),
    ] = None,
    slicing: Annotated[
        SlicingName, typer.Option(help="A launch for each phase, layer or step; the tokens are the same.")
    ] = SlicingName.STEP,
    device: Annotated[DeviceName, typer.Option(help="host: this CPU. hip: the current AMD GPU.")] = DeviceName.HOST,
    check: Annotated[
        bool,
        typer.Option(
            "--check",
            help=f"Compare every phase and state with the float64 reference; exit status {BREACH} on a breach.",
        ),
    ] = False,
    json: Annotated[bool, typer.Option("--json", help="Print JSON instead of text.")] = False,
) -> None:
    """Continue prompts greedily, the KDA half layers fused and everything else computed by the reference.

    The checkpoint may be one of make-checkpoint or one that transformers saved.
    """
    from sgl_amd_mono.models.glm53_flash.config import Config
    from sgl_amd_mono.models.glm53_flash.decode import decode as run
    from sgl_amd_mono.models.glm53_flash.decode import served_by
    from sgl_amd_mono.program import Slicing

    config = Config.load(directory)
    batch = _batch(directory, prompt or [], prompt_ids or [], rows)
    console = Console(stderr=True)
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as bar:
        tasks: dict[str, Any] = {}

        def progress(activity: str, done: int, total: int) -> None:
            if activity not in tasks:
                tasks[activity] = bar.add_task(activity, total=total)
            bar.update(tasks[activity], completed=done, total=total)

        decoded = run(
            directory,
            batch,
            steps,
            device=_device(device),
            slicing=Slicing(slicing.value),
            check=check,
            progress=progress,
        )
    served = served_by(config)
    if json:
        typer.echo(msgspec.json.format(msgspec.json.encode(_document(decoded, served))))
    else:
        _show(Console(highlight=False), directory, batch, decoded, served)
    if decoded.check is not None and decoded.check.breached:
        raise typer.Exit(BREACH)


def _device(name: DeviceName) -> Device:
    from sgl_amd_mono.models.glm53_flash.program import KERNEL

    if name is DeviceName.HIP:
        from sgl_amd_mono.device.hip import HipDevice

        return HipDevice(KERNEL)
    from sgl_amd_mono.device.host import HostDevice

    return HostDevice(KERNEL)


def _batch(directory: Path, texts: Sequence[str], ids: Sequence[str], rows: int | None) -> list[list[int]]:
    from sgl_amd_mono.models.glm53_flash.tokenizer import load_tokenizer

    prompts = [_parse_ids(text) for text in ids]
    if texts:
        tokenizer = load_tokenizer(directory)
        prompts += [tokenizer.encode(text).ids for text in texts]
    if not prompts:
        raise MonoError("No prompt: give --prompt TEXT or --prompt-ids ID,ID,...")
    count = rows or len(prompts)
    if count < len(prompts):
        raise MonoError(f"{len(prompts)} prompts do not fit in {count} rows: raise --rows or give fewer prompts.")
    return list(itertools.islice(itertools.cycle(prompts), count))


def _parse_ids(text: str) -> list[int]:
    try:
        return [int(part) for part in text.split(",")]
    except ValueError as error:
        raise MonoError(f"--prompt-ids {text!r} is not a list of numbers like 12,7,301.") from error


def _document(decoded: Decoded, served: list[tuple[str, str]]) -> dict[str, Any]:
    layers = [
        {"layer": layer, "attention": attention, "feed_forward": feed_forward}
        for layer, (attention, feed_forward) in enumerate(served)
    ]
    document: dict[str, Any] = {"tokens": decoded.tokens, "layers": layers}
    if decoded.check is not None:
        document["check"] = [
            {**msgspec.structs.asdict(measured), "comparisons": decoded.check.comparisons[name], "ok": measured.ok}
            for name, measured in decoded.check.worst.items()
        ]
    return document


def _show(
    console: Console,
    directory: Path,
    batch: list[list[int]],
    decoded: Decoded,
    served: list[tuple[str, str]],
) -> None:
    console.print(served_table(served, "What served each layer"))
    text = _texts(directory, decoded.tokens)
    for row, (prompt, tokens) in enumerate(zip(batch, decoded.tokens, strict=True)):
        console.print(f"row {row}: {len(prompt)} prompt tokens, {len(tokens)} generated", style="bold", markup=False)
        console.print(f"  ids:  {','.join(map(str, tokens))}", markup=False)
        if text is not None:
            console.print(f"  text: {text[row]!r}", markup=False)
    if decoded.check is not None:
        console.print(_check_table(decoded.check))


def _texts(directory: Path, tokens: list[list[int]]) -> list[str] | None:
    """What the tokens say, where the checkpoint has a tokenizer: one that transformers saved may have none."""
    from sgl_amd_mono.models.glm53_flash.tokenizer import TOKENIZER_FILE, load_tokenizer

    if not (directory / TOKENIZER_FILE).is_file():
        return None
    tokenizer = load_tokenizer(directory)
    return [tokenizer.decode(row, skip_special_tokens=False) for row in tokens]


def _check_table(check: CheckedKda) -> Table:
    table = Table(title="Worst errors against the reference", title_justify="left")
    for name in ("launch", "output", "metric"):
        table.add_column(name)
    for name in ("comparisons", "worst", "limit"):
        table.add_column(name, justify="right")
    table.add_column("")
    for name, measured in check.worst.items():
        launch, output, metric = name.split(".")
        verdict = "[green]ok[/]" if measured.ok else "[bold red]BREACH[/]"
        numbers = f"{check.comparisons[name]}", f"{measured.value:.2e}", f"{measured.limit:.2e}"
        table.add_row(launch, output, metric, *numbers, verdict)
    return table
