"""The SGLang of this Python, and whether it would find and accept this package; nothing of it is imported."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from importlib.metadata import entry_points

import msgspec

from sgl_amd_mono.check.report import ModelReport, check
from sgl_amd_mono.check.rows import Contract
from sgl_amd_mono.contract_check import imported_tree, served_parts, store
from sgl_amd_mono.env import SGLANG_PLUGINS

PLUGIN_GROUP = "sglang.srt.plugins"
PLUGIN = "sgl-amd-mono"


class ContractVerdict(msgspec.Struct, frozen=True, kw_only=True):
    """Whether the names that one model reads are there."""

    model: str
    holds: bool
    """In all that a routed decode step needs."""
    said: str


class Installation(msgspec.Struct, frozen=True, kw_only=True):
    """What `look` found."""

    release: str
    place: str
    has_contract: bool
    """The plugin contract, SGLang's own side of it."""
    contracts: tuple[ContractVerdict, ...]
    seconds: float
    """That the contracts took."""


class Plugin(msgspec.Struct, frozen=True, kw_only=True):
    """How SGLang sees this package."""

    entry_point: str | None
    only: str | None
    """SGLANG_PLUGINS, which loads no others."""

    @property
    def is_loaded(self) -> bool:
        """Whether a server loads it."""
        return self.entry_point is not None and (self.only is None or PLUGIN in _names(self.only))


def look(contracts: Sequence[Contract]) -> Installation | None:
    """The SGLang that this Python imports, None where it has none.

    Raises
    ------
    TreeError
        When a file of it cannot be parsed.
    """
    tree = imported_tree()
    if tree is None:
        return None
    report = check(tree, contracts, store())
    return Installation(
        release=report.release,
        place=report.place,
        has_contract=not report.unsupported,
        contracts=tuple(map(_verdict, report.models)),
        seconds=round(report.seconds, 2),
    )


def find_plugin() -> Plugin:
    """This package among the plugins of SGLang."""
    points = [point.value for point in entry_points(group=PLUGIN_GROUP) if point.name == PLUGIN]
    return Plugin(entry_point=points[0] if points else None, only=SGLANG_PLUGINS.get())


def refusals(installation: Installation, models: Sequence[str]) -> Iterator[str]:
    """Why this SGLang would not run the kernels of `models`, whatever its arguments are."""
    if not installation.has_contract:
        yield (
            f"SGLang {installation.release} has no plugin contract: run `pip install 'sgl-amd-mono[sglang]'`, "
            "which asks for one that has"
        )
    for verdict in installation.contracts:
        if verdict.model in models and not verdict.holds:
            yield f"the contract of {verdict.model} is broken: {verdict.said}; `amd-mono contract` says more"


def plugin_refusals(plugin: Plugin) -> Iterator[str]:
    """Why a server would not load this package."""
    if plugin.entry_point is None:
        yield f"no entry point {PLUGIN} in the group {PLUGIN_GROUP}: install the package again"
    elif not plugin.is_loaded:
        yield f"{SGLANG_PLUGINS.name}={plugin.only} leaves {PLUGIN} out: unset it, or add {PLUGIN}"


def _verdict(model: ModelReport) -> ContractVerdict:
    broken = {part.name: len(part.breaches) for part in model.parts if not part.runs}
    needed = broken.keys() & served_parts()
    said = ", ".join(f"{name}: {count} breaches" for name, count in sorted(broken.items()))
    return ContractVerdict(model=model.contract.model, holds=not needed, said=said or "every name holds")


def _names(text: str) -> set[str]:
    return {name.strip() for name in text.split(",")}
