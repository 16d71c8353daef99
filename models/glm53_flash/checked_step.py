"""A routed step run twice from the same caches, by the standard path and by the kernels, and compared."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

import torch
from torch import Tensor

from sgl_amd_mono.models.glm53_flash.bind import attention_regions, hidden_states_of, logits_of
from sgl_amd_mono.models.glm53_flash.kda_buffers import KdaCache
from sgl_amd_mono.models.glm53_flash.kda_steps import KdaStep
from sgl_amd_mono.region import Region
from sgl_amd_mono.step_check import StepCheck
from sgl_amd_mono.upstream import StepRows

# (layer, input [T, hidden]) -> this rank's share of the half layer's output [T, hidden]
HalfLayer = Callable[[int, Tensor], Tensor]


class Model(Protocol):
    """The two ways to run a step."""

    standard_halves: dict[int, Callable[..., Tensor]]

    def run_with(self, half_layer: HalfLayer | None, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
        """The model's own forward, its KDA layers computing `half_layer`; None stands for the standard path."""
        ...


class CheckedStep:
    """Runs steps for `check`, on a model whose last hidden states `hidden_states_of` gives."""

    def __init__(self, model: Model, module: torch.nn.Module, check: StepCheck) -> None:
        self._model = model
        self._check = check
        self._hidden = hidden_states_of(module)

    def is_due(self) -> bool:
        """Whether the routed step that begins now is checked."""
        return self._check.is_due()

    def run(
        self,
        backend: Any,
        batch: Any,
        step: KdaStep,
        rows: StepRows,
        half_layer: HalfLayer,
        args: Sequence[Any],
        kwargs: dict[str, Any],
    ) -> Any:
        """The kernels' result of the step, which is also what the caches hold after it.

        First the whole step by the standard path; then, from the same caches, by the kernels, each half layer of which
        is compared by itself with the standard one on the same input. So a difference is named where it arises.

        Raises
        ------
        CheckError
            On every rank, when one of them found more than the bounds allow and the policy says so.
        """
        self._check.begin()
        kda = {layer: _kda_regions(layer, cache, rows) for layer, cache in step.caches.items()}
        regions = [region for layer in kda.values() for region in layer] + attention_regions(backend, batch)
        before = _read(regions)
        standard = self._model.run_with(None, args, kwargs)
        standard_hidden, standard_logits = self._hidden().clone(), logits_of(standard).clone()
        standard_after = _read(regions)
        _restore(regions, before)

        def compared(layer: int, x: Tensor) -> Tensor:
            return self._half_layer(layer, x, batch, kda[layer], half_layer)

        fused = self._model.run_with(compared, args, kwargs)
        for region, by_kernels, by_standard in zip(regions, _read(regions), standard_after, strict=True):
            self._check.note("step", region.layer, region.name, region.numbers(by_kernels), region.numbers(by_standard))
        self._check.note("step", -1, "hidden", self._hidden(), standard_hidden)
        self._check.note("step", -1, "logits", logits_of(fused), standard_logits)
        self._check.finish()
        return fused

    def _half_layer(
        self, layer: int, x: Tensor, batch: Any, regions: Sequence[Region], half_layer: HalfLayer
    ) -> Tensor:
        before = _read(regions)
        standard = self._model.standard_halves[layer](hidden_states=x, forward_batch=batch).clone()
        standard_after = _read(regions)
        _restore(regions, before)
        partial = half_layer(layer, x)
        self._check.note("kda", layer, "partial", partial, standard)
        for region, by_kernels, by_standard in zip(regions, _read(regions), standard_after, strict=True):
            self._check.note("kda", layer, region.name, by_kernels, by_standard)
        return partial


def _kda_regions(layer: int, cache: KdaCache, rows: StepRows) -> list[Region]:
    slots = [rows.slots[rows.slots >= 0].long()]
    if rows.track_mask is not None and rows.track_slots is not None:
        slots.append(rows.track_slots[rows.track_mask])
    written = torch.cat(slots).unique()
    pools = {"conv_state": cache.conv, "state": cache.temporal}
    return [Region(name=name, layer=layer, pool=pool, rows=written) for name, pool in pools.items()]


def _read(regions: Sequence[Region]) -> list[Tensor]:
    return [region.read() for region in regions]


def _restore(regions: Sequence[Region], saved: Sequence[Tensor]) -> None:
    for region, values in zip(regions, saved, strict=True):
        region.restore(values)
