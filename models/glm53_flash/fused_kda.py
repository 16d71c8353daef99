"""The KDA half layers of the reference model, served by the program's phases."""

from __future__ import annotations

from typing import Any

import msgspec
import torch
from torch import Tensor

from sgl_amd_mono.device.base import Device
from sgl_amd_mono.models.glm53_flash.kda_buffers import KdaCache, KdaScratch, StepInputs, allocate_kda_scratch
from sgl_amd_mono.models.glm53_flash.layout import KdaWeights
from sgl_amd_mono.models.glm53_flash.program import kda_half_layer
from sgl_amd_mono.models.glm53_flash.reference.model import ReferenceModel
from sgl_amd_mono.models.glm53_flash.reference.state import State
from sgl_amd_mono.program import Entry, Program, Slicing


class FusedKda:
    """Computes KDA half layers of `model` on `device`; a `KdaHalfLayer` of the reference.

    The pools of `state` move to the device and are updated there, by every step that this object serves.

    Attributes
    ----------
    x, partial : [T, hidden] bf16 on the device: input and output of the half layer, shared by all layers.
    """

    def __init__(self, model: ReferenceModel, device: Device, state: State, slicing: Slicing) -> None:
        config, target = model.config, device.torch_device
        rows = len(state.active)
        self.slicing = slicing
        self.device = device
        self.weights = {layer: _to_device(model.kda_weights(layer), target) for layer in config.kda_layers}
        state.conv, state.temporal = state.conv.to(target), state.temporal.to(target)
        self.caches = {
            layer: KdaCache(state.conv[pool], state.temporal[pool]) for pool, layer in enumerate(config.kda_layers)
        }
        self.x = torch.empty(rows, config.hidden_size, dtype=torch.bfloat16, device=target)
        self.partial = torch.empty_like(self.x)
        self.step = StepInputs(slots=torch.empty(rows, dtype=torch.int32, device=target))
        self.scratch: KdaScratch = allocate_kda_scratch(self.weights[config.kda_layers[0]], rows, target)
        entries: list[Entry] = []
        self._ranges = {}
        for layer in config.kda_layers:
            begin = len(entries)
            entries += kda_half_layer(
                layer, self.weights[layer], self.caches[layer], self.step, self.scratch, self.x, self.partial
            )
            self._ranges[layer] = (begin, len(entries))
        self.program = Program(device, entries)

    def __call__(self, layer: int, y: Tensor, state: State) -> Tensor:
        """y [T, hidden] -> partial [T, hidden] float64 of KDA layer `layer`."""
        self.load(y, state)
        self.run(layer, self.slicing)
        return self.partial.cpu().double()

    def load(self, y: Tensor, state: State) -> None:
        """Set the inputs of the next run: y [T, hidden], whose values are bf16 numbers, and the step's slots."""
        self.x.copy_(y)
        self.step.slots.copy_(state.slots)

    def run(self, layer: int, slicing: Slicing) -> None:
        """Run the phases of one layer on the inputs that are loaded."""
        self.program.run(slicing, *self._ranges[layer])

    def launches(self, layer: int) -> list[tuple[str, tuple[int, int]]]:
        """The layer's phases by name, each with the program range that runs it alone."""
        begin, end = self._ranges[layer]
        return [(self.program.entries[i].phase, (i, i + 1)) for i in range(begin, end)]


def _to_device(weights: KdaWeights, device: torch.device) -> KdaWeights:
    def move(value: Any) -> Any:
        if isinstance(value, tuple):
            return tuple(move(part) for part in value)
        return value.to(device) if isinstance(value, Tensor) else value

    return KdaWeights(**{name: move(value) for name, value in msgspec.structs.asdict(weights).items()})
