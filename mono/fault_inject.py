"""Faults that tests put into a running server, so that what must catch them can be seen to: MONO_FAULT_INJECT."""

from __future__ import annotations

import enum
import re

import msgspec

from sgl_amd_mono.env import FAULT_INJECT
from sgl_amd_mono.errors import MonoError

_SYNTAX = re.compile(r"(?P<kind>[a-z]+)(:(?P<region>[a-z_]+))?@(?P<layer>\d+)(\+(?P<after>\d+))?(/(?P<rank>\d+))?")


class FaultInjectionKind(enum.Enum):
    """What goes wrong."""

    CORRUPT = "corrupt"
    """An element of a region changes after the layer has run."""
    STALL = "stall"
    """A workgroup never arrives at the layer's first grid barrier."""
    SKIP = "skip"
    """The layer's launches are left out."""


class FaultInjection(msgspec.Struct, frozen=True, kw_only=True):
    """One fault: in this layer, from the routed step after `after` others on, on one rank or on all."""

    kind: FaultInjectionKind
    layer: int
    region: str = ""
    after: int = 0
    rank: int | None = None

    def hits(self, step: int, rank: int) -> bool:
        """Whether the fault is to happen in routed step `step` (from 0) of `rank`."""
        return step >= self.after and self.rank in (None, rank)


def injected_fault(regions: tuple[str, ...], layers: tuple[int, ...]) -> FaultInjection | None:
    """The fault that MONO_FAULT_INJECT asks for, `kind[:region]@layer[+steps][/rank]`; None when it is unset.

    Raises
    ------
    MonoError
        When it names no kind, no region, or no layer that there is.
    """
    text = FAULT_INJECT.get()
    if text is None:
        return None
    kinds = [kind.value for kind in FaultInjectionKind]
    match = _SYNTAX.fullmatch(text)
    if match is None or match["kind"] not in kinds:
        raise MonoError(
            f"{FAULT_INJECT.name}={text}: expected kind[:region]@layer[+steps][/rank], the kind one of {kinds}."
        )
    fault = FaultInjection(
        kind=FaultInjectionKind(match["kind"]),
        layer=int(match["layer"]),
        region=match["region"] or "",
        after=int(match["after"] or 0),
        rank=int(match["rank"]) if match["rank"] else None,
    )
    if fault.layer not in layers:
        raise MonoError(f"{FAULT_INJECT.name}={text}: layer {fault.layer} is not fused; {list(layers)} are.")
    if (fault.kind is FaultInjectionKind.CORRUPT) != (fault.region in regions):
        raise MonoError(
            f"{FAULT_INJECT.name}={text}: a corruption, and nothing else, names one of {', '.join(regions)}."
        )
    return fault
