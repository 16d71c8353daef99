"""`amd-mono make-checkpoint`: write a small checkpoint in a model's real format."""

from __future__ import annotations

import enum
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console


class Model(str, enum.Enum):
    """Models that checkpoints can be made of."""

    GLM53_FLASH = "glm53_flash"


class Format(str, enum.Enum):
    """How the linears are stored."""

    MXFP4 = "mxfp4"
    BF16 = "bf16"


def make_checkpoint(
    model: Annotated[Model, typer.Argument(help="Model whose format to write.")],
    directory: Annotated[Path, typer.Argument(help="Folder to write to; made if absent.", file_okay=False)],
    layers: Annotated[int, typer.Option(min=1, help="Decoder layers; every fourth is sparse MLA, the others KDA.")] = 8,
    experts: Annotated[int, typer.Option(min=1, help="Routed experts of a sparse layer.")] = 32,
    vocab: Annotated[int, typer.Option(min=1, help="Tokens of the vocabulary.")] = 1024,
    hidden: Annotated[int, typer.Option(min=1, help="Hidden size.")] = 512,
    kda_heads: Annotated[int, typer.Option(min=1, help="KDA heads, of 128 channels each.")] = 8,
    seed: Annotated[int, typer.Option(help="The same seed and sizes give the same bytes.")] = 0,
    stored: Annotated[
        Format,
        typer.Option(
            "--format",
            help="mxfp4: experts MXFP4, MLA and dense linears block FP8, as AMD Quark does. bf16: unquantised.",
        ),
    ] = Format.MXFP4,
) -> None:
    """Write config.json, model.safetensors and a tokenizer with random weights.

    Names, dtypes and layouts are those of the released checkpoint; the sizes are small enough for seconds on a CPU.
    """
    from sgl_amd_mono.models.glm53_flash import make_checkpoint as glm53_flash

    sizes = glm53_flash.Sizes(layers=layers, experts=experts, vocab=vocab, hidden=hidden, kda_heads=kda_heads)
    console = Console(stderr=True)
    with console.status(f"Writing {directory}"):
        config = glm53_flash.make_checkpoint(directory, sizes, seed=seed, format=glm53_flash.Format(stored.value))
    size = sum(path.stat().st_size for path in directory.iterdir())
    Console(highlight=False, soft_wrap=True).print(
        f"{directory}: {model.value}, {config.num_hidden_layers} layers ({len(config.kda_layers)} KDA, "
        f"{len(config.mla_layers)} sparse MLA), {stored.value}, {size / 1e6:.0f} MB",
        markup=False,
    )
