"""Half layers that go wrong as MONO_FAULT_INJECT asks; only tests of what must catch them run these."""

from __future__ import annotations

from torch import Tensor

from sgl_amd_mono.fault_inject import FaultInjection, FaultInjectionKind
from sgl_amd_mono.models.glm53_flash.checked_step import HalfLayer
from sgl_amd_mono.models.glm53_flash.kda_steps import KdaStep

CORRUPTIBLE_REGIONS = ("conv_state", "state", "partial")


def faulty(step: KdaStep, run: HalfLayer, fault: FaultInjection) -> HalfLayer:
    """`run`, with the fault in its layer."""

    def half_layer(layer: int, x: Tensor) -> Tensor:
        if layer != fault.layer:
            return run(layer, x)
        if fault.kind is FaultInjectionKind.SKIP:
            return step.partial
        if fault.kind is FaultInjectionKind.STALL:
            step.program.lose_an_arrival()
        partial = run(layer, x)
        if fault.kind is FaultInjectionKind.CORRUPT:
            _corrupt(step, layer, fault.region)
        return partial

    return half_layer


def _corrupt(step: KdaStep, layer: int, region: str) -> None:
    """Move one element of the last row by as much as the row's largest."""
    slot = step.inputs.slots[-1].long()
    pools = {"conv_state": step.caches[layer].conv, "state": step.caches[layer].temporal}
    row = step.partial[-1] if region == "partial" else pools[region][slot]
    flat = row.flatten()
    flat[0] += flat.abs().max() + 1
    if region == "partial":
        step.partial[-1] = flat.view_as(row)
    else:
        pools[region][slot] = flat.view_as(row)
