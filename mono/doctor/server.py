"""What SGLang would do with a checkpoint and server arguments."""

from __future__ import annotations

import importlib
import json
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType

import msgspec

from sgl_amd_mono.errors import CheckpointError, MonoError
from sgl_amd_mono.plugin import SPECS
from sgl_amd_mono.upstream import disable_reasons


class ServedModel(msgspec.Struct, frozen=True, kw_only=True):
    """A model that this package has a spec for."""

    name: str
    """Of its package, its kernel and its contract."""
    arch: str
    widths: tuple[int, ...]
    tp_sizes: tuple[int, ...]
    workgroups: int


class Checkpoint(msgspec.Struct, frozen=True, kw_only=True):
    """What `look` found in a checkpoint folder."""

    folder: Path
    architectures: tuple[str, ...]
    model: ServedModel | None
    layers: tuple[tuple[str, str], ...]
    """What serves the attention half and the feed-forward half of each layer; empty without a spec."""


def served_models() -> dict[str, ServedModel]:
    """The models that have a spec, by architecture."""
    return {architecture: _model(_served(path)) for architecture, path in SPECS.items()}


def look(folder: Path) -> Checkpoint:
    """Read the configuration of a checkpoint; no SGLang is needed.

    Raises
    ------
    CheckpointError
        No readable config.json, or one that the model's package does not compute with.
    """
    architectures = _architectures(folder)
    path = next((SPECS[architecture] for architecture in architectures if architecture in SPECS), None)
    if path is None:
        return Checkpoint(folder=folder, architectures=architectures, model=None, layers=())
    served = _served(path)
    return Checkpoint(
        folder=folder, architectures=architectures, model=_model(served), layers=tuple(served.served_by(folder))
    )


def judge(folder: Path, tp_size: int | None, arguments: Sequence[str], served_arch: str) -> tuple[str, ...]:
    """Every reason why SGLang refuses --enable-amd-monokernel to a server of `folder` with these arguments.

    Raises
    ------
    MonoError
        When SGLang does not run in this Python, or does not know an argument.
    """
    sizes = [] if tp_size is None else ["--tp-size", str(tp_size)]
    try:
        return disable_reasons(["--model-path", str(folder), *arguments, *sizes], served_arch)
    except ImportError as error:
        raise MonoError(
            f"SGLang does not run in this Python, so its verdict cannot be told: {error}. "
            "Install what is missing, for ROCm as SGLang's documentation says."
        ) from error


def _served(path: str) -> ModuleType:
    """What the package of a spec says of the steps that it serves."""
    package = path.partition(":")[0].rpartition(".")[0]
    return importlib.import_module(f"{package}.served")


def _model(served: ModuleType) -> ServedModel:
    return ServedModel(
        name=served.__name__.split(".")[-2],
        arch=served.ARCH,
        widths=served.WIDTHS,
        tp_sizes=served.TP_SIZES,
        workgroups=served.RESIDENT_WORKGROUPS,
    )


def _architectures(folder: Path) -> tuple[str, ...]:
    path = folder / "config.json"
    try:
        return tuple(json.loads(path.read_text())["architectures"])
    except OSError as error:
        raise CheckpointError(f"{path}: {error.strerror}; give the folder of a checkpoint, which has one.") from error
    except (ValueError, KeyError, TypeError) as error:
        raise CheckpointError(f"{path}: no JSON object that names the model's `architectures` ({error}).") from error
