"""Everything that the doctor found, its verdict, and both of its forms."""

from __future__ import annotations

import enum
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec

from sgl_amd_mono.check.rows import Contract
from sgl_amd_mono.doctor import installation, machine, server
from sgl_amd_mono.doctor.installation import Installation, Plugin
from sgl_amd_mono.doctor.machine import Machine
from sgl_amd_mono.doctor.server import Checkpoint, ServedModel
from sgl_amd_mono.env import VARIABLES

NO_SGLANG = "SGLang is not installed in this Python: run `pip install 'sgl-amd-mono[sglang]'`."


class Verdict(enum.Enum):
    """Whether a server would run the kernels."""

    RUNS = "would run"
    REFUSED = "refused"
    UNKNOWN = "could not tell"


class Report(msgspec.Struct, frozen=True, kw_only=True):
    """What `diagnose` found."""

    verdict: Verdict
    reasons: tuple[str, ...]
    """Every one that is known; with a verdict UNKNOWN there may be more."""
    unknown: str
    """What the verdict would need; empty where it could be told."""
    machine: Machine
    sglang: Installation | None
    plugin: Plugin
    checkpoint: Checkpoint | None
    environment: dict[str, str]
    """The variables that this package reads and that are set."""

    def as_json(self) -> dict[str, Any]:
        """The report as JSON values."""
        plain: dict[str, Any] = msgspec.to_builtins(self, enc_hook=str)
        return plain


def diagnose(
    contracts: Sequence[Contract], folder: Path | None, tp_size: int | None, arguments: Sequence[str]
) -> Report:
    """Look at the machine, its SGLang and, where `folder` is given, at a server of that checkpoint.

    Raises
    ------
    MonoError
        When the checkpoint cannot be read, or SGLang does not take the arguments.
    """
    checkpoint = server.look(folder) if folder else None
    models = _models(checkpoint)
    # every model is served on one architecture; the first says which
    served = models[0]
    here = machine.look([model.name for model in models], served.arch)
    sglang, plugin = installation.look(contracts), installation.find_plugin()
    reasons = list(machine.refusals(here, served.workgroups))
    reasons += installation.plugin_refusals(plugin)
    if sglang is not None and sglang.has_contract and checkpoint is not None:
        # it asks for the GPU and the contract itself
        reasons += server.judge(checkpoint.folder, tp_size, arguments, served.arch)
    else:
        reasons += machine.gpu_refusals(here, served.arch)
        reasons += installation.refusals(sglang, [model.name for model in models]) if sglang else ()
    verdict = Verdict.REFUSED if reasons else Verdict.RUNS
    return Report(
        verdict=verdict if sglang else Verdict.UNKNOWN,
        reasons=tuple(reasons),
        unknown="" if sglang else NO_SGLANG,
        machine=here,
        sglang=sglang,
        plugin=plugin,
        checkpoint=checkpoint,
        environment={variable.name: value for variable in VARIABLES if (value := variable.get())},
    )


def _models(checkpoint: Checkpoint | None) -> list[ServedModel]:
    if checkpoint is not None and checkpoint.model is not None:
        return [checkpoint.model]
    return list(server.served_models().values())
