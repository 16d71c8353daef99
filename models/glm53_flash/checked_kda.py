"""The fused KDA half layers, each phase compared with its reference on the inputs that the phase itself read."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import msgspec
import torch
from torch import Tensor

from sgl_amd_mono.metrics import Measured
from sgl_amd_mono.models.glm53_flash.fused_kda import FusedKda
from sgl_amd_mono.models.glm53_flash.kda_buffers import KdaCache, KdaScratch
from sgl_amd_mono.models.glm53_flash.layout import KdaWeights
from sgl_amd_mono.models.glm53_flash.numerics import compare
from sgl_amd_mono.models.glm53_flash.reference import kda
from sgl_amd_mono.models.glm53_flash.reference.model import ReferenceModel
from sgl_amd_mono.models.glm53_flash.reference.rounding import Rounding
from sgl_amd_mono.models.glm53_flash.reference.state import State
from sgl_amd_mono.program import Slicing


class Snapshot(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that a half layer has read or written up to one of its phases, on the CPU; to be read at once."""

    weights: KdaWeights
    slots: Tensor
    """[T] int32, -1 for a padded row."""
    x: Tensor
    scratch: KdaScratch
    partial: Tensor
    before: KdaCache
    """Pools before the half layer."""
    after: KdaCache

    @property
    def live(self) -> Tensor:
        """[T] bool: rows that are not padded."""
        return self.slots >= 0

    @property
    def live_slots(self) -> Tensor:
        """[live rows] int64."""
        return self.slots[self.live].long()


# by output or region: what the phase wrote, and what its reference gives
Outputs = dict[str, tuple[Tensor, Tensor]]


def _project(at: Snapshot) -> Outputs:
    expected = kda.kda_project(at.weights, at.x[at.live], Rounding.STANDARD)
    return {"projected": (at.scratch.projected[at.live], expected)}


def _gates(at: Snapshot) -> Outputs:
    expected = kda.kda_gates(at.weights, at.scratch.projected[at.live], Rounding.STANDARD)
    return {"gates": (at.scratch.gates[:, at.live], expected)}


def _conv(at: Snapshot) -> Outputs:
    window = at.before.conv[at.live_slots]
    convolved, shifted = kda.kda_conv(at.weights, at.scratch.projected[at.live], window, Rounding.STANDARD)
    pool = at.before.conv.double()
    pool[at.live_slots] = shifted
    return {"convolved": (at.scratch.convolved[at.live], convolved), "conv_state": (at.after.conv, pool)}


def _update(at: Snapshot) -> Outputs:
    beta = at.scratch.projected[at.live, at.weights.channels : at.weights.channels + at.weights.heads]
    inputs = at.scratch.convolved[at.live], beta, at.scratch.gates[0, at.live], at.before.temporal[at.live_slots]
    output, updated = kda.kda_update(at.weights, *inputs, Rounding.STANDARD)
    pool = at.before.temporal.double()
    pool[at.live_slots] = updated
    return {"output": (at.scratch.output[at.live], output.flatten(1)), "state": (at.after.temporal, pool)}


def _output(at: Snapshot) -> Outputs:
    heads = at.scratch.output[at.live].view(-1, at.weights.heads, at.weights.head_dim)
    expected = torch.zeros(at.partial.shape, dtype=torch.float64)
    expected[at.live] = kda.kda_output(at.weights, heads, at.scratch.gates[1, at.live], Rounding.STANDARD)
    return {"partial": (at.partial, expected)}


REFERENCES: Mapping[str, Callable[[Snapshot], Outputs]] = {
    "kda_project": _project,
    "kda_gates": _gates,
    "kda_conv": _conv,
    "kda_update": _update,
    "kda_output": _output,
}
"""What each phase is compared with, by its name."""


class CheckedKda:
    """A `KdaHalfLayer` that runs every half layer twice from the same state.

    First phase by phase, each output and state region measured against the float64 reference of the phase; then in the
    slicing that was asked for, which must give the same bits.

    Attributes
    ----------
    worst : by bound name, the measurement nearest to its limit or farthest past it.
    comparisons : by bound name, how many were made.
    """

    def __init__(self, fused: FusedKda, model: ReferenceModel) -> None:
        self._fused = fused
        self._model = model
        self.worst: dict[str, Measured] = {}
        self.comparisons: dict[str, int] = {}

    @property
    def breached(self) -> list[Measured]:
        """The worst measurements that are past their limits."""
        return [measured for measured in self.worst.values() if not measured.ok]

    def __call__(self, layer: int, y: Tensor, state: State) -> Tensor:
        """y [T, hidden] -> partial [T, hidden] float64 of KDA layer `layer`."""
        self._fused.load(y, state)
        before = self._pools(layer)
        for phase, span in self._fused.launches(layer):
            self._fused.program.run(Slicing.PHASE, *span)
            for output, (actual, expected) in REFERENCES[phase](self._snapshot(layer, before)).items():
                self._note(phase, output, actual, expected)
        if self._fused.slicing is not Slicing.PHASE:
            self._compare_slicing(layer, before)
        return self._fused.partial.cpu().double()

    def _compare_slicing(self, layer: int, before: KdaCache) -> None:
        by_phase = self._regions(layer)
        cache = self._fused.caches[layer]
        cache.conv.copy_(before.conv)
        cache.temporal.copy_(before.temporal)
        self._fused.run(layer, self._fused.slicing)
        for region, actual in self._regions(layer).items():
            self._note("slicing", region, actual, by_phase[region])

    def _regions(self, layer: int) -> dict[str, Tensor]:
        pools = self._pools(layer)
        return {"partial": self._fused.partial.cpu().clone(), "conv_state": pools.conv, "state": pools.temporal}

    def _pools(self, layer: int) -> KdaCache:
        cache = self._fused.caches[layer]
        return KdaCache(cache.conv.cpu().clone(), cache.temporal.cpu().clone())

    def _snapshot(self, layer: int, before: KdaCache) -> Snapshot:
        fused = self._fused
        return Snapshot(
            weights=self._model.kda_weights(layer),
            slots=fused.step.slots.cpu(),
            x=fused.x.cpu(),
            scratch=KdaScratch(
                **{name: buffer.cpu() for name, buffer in msgspec.structs.asdict(fused.scratch).items()}
            ),
            partial=fused.partial.cpu(),
            before=before,
            after=KdaCache(fused.caches[layer].conv.cpu(), fused.caches[layer].temporal.cpu()),
        )

    def _note(self, launch: str, output: str, actual: Tensor, expected: Tensor) -> None:
        for measured in compare(launch, output, actual, expected):
            self.comparisons[measured.name] = self.comparisons.get(measured.name, 0) + 1
            known = self.worst.get(measured.name)
            # written so that a NaN replaces any number
            if known is None or not measured.value <= known.value:
                self.worst[measured.name] = measured
