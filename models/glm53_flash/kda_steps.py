"""The KDA half layers of a model in SGLang, as programs bound to its weights, states and step buffers."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import Any

import msgspec
import torch
from torch import Tensor

from sgl_amd_mono.device.base import Device
from sgl_amd_mono.errors import BindError
from sgl_amd_mono.fault_watch import FaultWatch
from sgl_amd_mono.models.glm53_flash.kda_buffers import KdaCache, StepInputs, allocate_kda_scratch
from sgl_amd_mono.models.glm53_flash.layout import KdaWeights
from sgl_amd_mono.models.glm53_flash.program import kda_half_layer
from sgl_amd_mono.program import Entry, Program, Slicing
from sgl_amd_mono.upstream import StepRows

logger = logging.getLogger(__name__)


class KdaStep:
    """All KDA half layers of one model for one number of rows, with the buffers that its steps are run in.

    Attributes
    ----------
    x, partial : [T, hidden] bf16: input and output of the half layer that runs; all layers share them.
    inputs : what the rows of the step own.
    caches : state pools by layer.
    """

    def __init__(
        self,
        device: Device,
        weights: dict[int, KdaWeights],
        caches: dict[int, KdaCache],
        rows: int,
        *,
        is_tracked: bool,
        rank: int,
        deadline_s: float,
    ) -> None:
        first, where = next(iter(weights.values())), device.torch_device
        hidden = first.o_proj.shape[0]
        self.caches = caches
        self.x = torch.empty(rows, hidden, dtype=torch.bfloat16, device=where)
        self.partial = torch.empty_like(self.x)
        self.inputs = StepInputs(
            slots=torch.empty(rows, dtype=torch.int32, device=where),
            track_mask=torch.zeros(rows, dtype=torch.bool, device=where) if is_tracked else None,
            track_slots=torch.zeros(rows, dtype=torch.int64, device=where) if is_tracked else None,
        )
        self._scratch = allocate_kda_scratch(first, rows, where)
        entries: list[Entry] = []
        spans = {}
        for layer, layer_weights in weights.items():
            begin = len(entries)
            entries += kda_half_layer(
                layer, layer_weights, caches[layer], self.inputs, self._scratch, self.x, self.partial
            )
            spans[layer] = (begin, len(entries))
        self.program = Program(device, entries, rank=rank, deadline_s=deadline_s)
        self._slices = {
            slicing: {layer: tuple(self.program.slices(slicing, *span)) for layer, span in spans.items()}
            for slicing in (Slicing.LAYER, Slicing.PHASE)
        }
        # the arguments of a launch never change, so a step only hands them on
        self._launches = {
            layer: tuple(self.program.launch_args(*span) for span in spans)
            for layer, spans in self._slices[Slicing.LAYER].items()
        }

    @property
    def nbytes(self) -> int:
        """Bytes of the step's own buffers."""
        buffers = [self.x, self.partial, *msgspec.structs.astuple(self.inputs), *msgspec.structs.astuple(self._scratch)]
        return sum(buffer.numel() * buffer.element_size() for buffer in buffers if buffer is not None)

    def load(self, rows: StepRows) -> None:
        """Take over what the step's rows own; copies on the device's stream, so that a graph replays them."""
        self.inputs.slots.copy_(rows.slots)
        for own, given in (
            (self.inputs.track_mask, rows.track_mask),
            (self.inputs.track_slots, rows.track_slots),
        ):
            if own is not None and given is not None:
                own.copy_(given)

    def run(self, layer: int, x: Tensor) -> Tensor:
        """x [T, hidden] bf16 -> this rank's share [T, hidden] bf16 of the half layer, in a buffer that the next reuses.

        Raises
        ------
        LaunchError
            When a launch is refused or fails; names the fault that the kernel recorded.
        """
        self._take(x)
        self.program.launch(self._launches[layer])
        return self.partial

    def run_by_phase(self, layer: int, x: Tensor) -> Tensor:
        """As `run`, a launch a phase."""
        self._take(x)
        for span in self._slices[Slicing.PHASE][layer]:
            self.program.run(Slicing.PHASE, *span)
        return self.partial

    def _take(self, x: Tensor) -> None:
        # a copy would spread one row over all
        if x.shape != self.x.shape:
            raise BindError(f"The half layer's input is {list(x.shape)}, the step has {list(self.x.shape)}.")
        self.x.copy_(x)


class KdaSteps:
    """The steps of every width, made when the first of each comes, and made anew when the state pools have moved.

    Parameters
    ----------
    weights : by layer, in layer order.
    find_caches : gives the state pools of layers.
    """

    def __init__(
        self,
        device: Device,
        weights: dict[int, KdaWeights],
        find_caches: Callable[[Any, Sequence[int]], dict[int, KdaCache]],
        *,
        rank: int,
        deadline_s: float,
    ) -> None:
        self.device = device
        self._weights = weights
        self._find_caches = find_caches
        self._rank = rank
        self._deadline_s = deadline_s
        self._caches: dict[int, KdaCache] = {}
        self._watched: tuple[int, ...] = ()
        self._steps: dict[tuple[int, bool], KdaStep] = {}
        self._watch = FaultWatch()

    def of(self, backend: Any, rows: StepRows) -> KdaStep:
        """The step of so many rows, its inputs loaded, on the pools of `backend`.

        Raises
        ------
        BindError
            When a graph capture is the first to ask, or finds the pools moved.
        LayoutError
            When the kernels do not read a pool's layout.
        """
        self._follow_pools(backend)
        key = (rows.slots.shape[0], rows.track_mask is not None)
        step = self._steps.get(key)
        if step is None:
            step = self._steps[key] = self._make(*key)
        step.load(rows)
        return step

    def _follow_pools(self, backend: Any) -> None:
        found = self._find_caches(backend, self._watched)
        if self._caches and all(_same(found[layer], self._caches[layer]) for layer in self._watched):
            return
        self._refuse_capture("the state pools have moved" if self._caches else "no step ran before it")
        if self._caches:
            logger.info("KDA: the state pools have moved; %d steps are bound anew", len(self._steps))
        self._steps.clear()
        self._watch.forget()
        self._caches = self._find_caches(backend, tuple(self._weights))
        self._watched = _one_layer_a_storage(self._caches)

    def _make(self, rows: int, is_tracked: bool) -> KdaStep:
        self._refuse_capture(f"no step of {rows} rows ran before it")
        # buffers of an inference-mode step could not be written outside of it
        with torch.inference_mode(False):
            step = KdaStep(
                self.device,
                self._weights,
                self._caches,
                rows,
                is_tracked=is_tracked,
                rank=self._rank,
                deadline_s=self._deadline_s,
            )
        self._watch.add(step.program)
        logger.info(
            "KDA: %d rows%s bound: %d layers, %.1f KiB of buffers",
            rows,
            " with prefix-cache copies" if is_tracked else "",
            len(self._weights),
            step.nbytes / 1024,
        )
        return step

    def _refuse_capture(self, why: str) -> None:
        if self.device.is_capturing():
            raise BindError(
                f"A graph capture cannot bind a step, and {why}. Warm the batch size up before it is captured."
            )


def _same(a: KdaCache, b: KdaCache) -> bool:
    return all(
        new.data_ptr() == old.data_ptr() and new.shape == old.shape and new.stride() == old.stride()
        for new, old in ((a.conv, b.conv), (a.temporal, b.temporal))
    )


def _one_layer_a_storage(caches: dict[int, KdaCache]) -> tuple[int, ...]:
    """One layer of every storage that pools lie in: while those stay where they are, all do."""
    layers: dict[tuple[int, int], int] = {}
    for layer, cache in caches.items():
        storages = cache.conv.untyped_storage().data_ptr(), cache.temporal.untyped_storage().data_ptr()
        layers.setdefault(storages, layer)
    return tuple(layers.values())
