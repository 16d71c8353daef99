"""The routed decode step of GLM-5.3-Flash in SGLang: the model's own forward, its KDA half layers on the kernels."""

from __future__ import annotations

import functools
import logging
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from sgl_amd_mono.counters import new_counters
from sgl_amd_mono.device.base import Device
from sgl_amd_mono.errors import LaunchError
from sgl_amd_mono.fault_inject import FaultInjection
from sgl_amd_mono.models.glm53_flash.bind import KdaModule, kda_caches
from sgl_amd_mono.models.glm53_flash.checked_step import CheckedStep, HalfLayer
from sgl_amd_mono.models.glm53_flash.faulty_step import faulty
from sgl_amd_mono.models.glm53_flash.kda_steps import KdaStep, KdaSteps
from sgl_amd_mono.step_check import StepCheck
from sgl_amd_mono.upstream import (
    TensorParallel,
    binding_name,
    hybrid_backend,
    is_capturing,
    step_rows,
    transfer_in_flight,
)

logger = logging.getLogger(__name__)


class Monokernel:
    """What SGLang routes decode steps to; a `BuiltMonokernels` of its plugin contract.

    The model's attention modules of the KDA layers are told to compute what `active` gives; outside of a routed step
    that is None, and they compute what they always did.

    Attributes
    ----------
    standard : the model's own forward.
    standard_halves : by layer, the attention module's own forward.
    steps : the programs, by the step's rows.
    counters : what was served.
    check : compares steps with the standard path, or None.
    """

    def __init__(
        self,
        model: torch.nn.Module,
        modules: Sequence[KdaModule],
        device: Device,
        *,
        ranks: TensorParallel,
        deadline_s: float,
        check: StepCheck | None = None,
        fault: FaultInjection | None = None,
    ) -> None:
        self.standard: Callable[..., Any] = model.forward
        self.standard_halves: dict[int, Callable[..., Tensor]] = {}
        self.ranks = ranks
        self.steps = KdaSteps(
            device,
            {module.layer: module.weights for module in modules},
            kda_caches,
            rank=ranks.rank,
            deadline_s=deadline_s,
        )
        self.counters = new_counters()
        self.check = check
        self._checked = CheckedStep(self, model, check) if check else None
        self._fault = fault
        self._active: HalfLayer | None = None
        for module in modules:
            self._stand_in(module)

    @torch.no_grad()
    def forward(self, plan: Any, *args: Any, **kwargs: Any) -> Any:
        """Run the step that SGLang's router hands over: the arguments and the result of the model's own forward."""
        batch = kwargs["forward_batch"] if "forward_batch" in kwargs else args[2]
        backend = hybrid_backend()
        if transfer_in_flight(backend):
            return self._decline("HiCache is loading this step's layers", args, kwargs)
        rows = step_rows(backend, batch)
        step = self.steps.of(backend, rows)
        self._count(backend, step)
        if self._checked and not is_capturing() and self._checked.is_due():
            self.counters.checked += 1
            return self._checked.run(
                backend, batch, step, rows, self._half_layer(step, step.run_by_phase), args, kwargs
            )
        return self.run_with(self._half_layer(step, step.run), args, kwargs)

    def run_with(self, half_layer: HalfLayer | None, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
        """The model's own forward, its KDA layers computing `half_layer`; None stands for the standard path.

        Raises
        ------
        LaunchError
            Logged here too, so that the fault's record stands in this rank's log whatever the server does with it.
        """
        self._active = half_layer
        try:
            return self.standard(*args, **kwargs)
        except LaunchError as error:
            logger.error("monokernel: rank %d stops: %s", self.ranks.rank, error)
            raise
        finally:
            self._active = None

    def _half_layer(self, step: KdaStep, run: HalfLayer) -> HalfLayer:
        if self._fault and self._fault.hits(self.counters.fused.total() - 1, self.ranks.rank):
            return faulty(step, run, self._fault)
        return run

    def _stand_in(self, module: KdaModule) -> None:
        standard: Callable[..., Tensor] = module.attention.forward
        layer = module.layer
        self.standard_halves[layer] = standard

        @functools.wraps(standard)
        def forward(hidden_states: Tensor, forward_batch: Any, **kwargs: Any) -> Tensor:
            if self._active is None:
                return standard(hidden_states=hidden_states, forward_batch=forward_batch, **kwargs)
            return self._active(layer, hidden_states)

        module.attention.forward = forward

    def _decline(self, reason: str, args: Any, kwargs: Any) -> Any:
        if reason not in self.counters.declined:
            logger.warning("monokernel: a routed step runs the standard path: %s", reason)
        self.counters.declined[reason] += 1
        return self.standard(*args, **kwargs)

    def _count(self, backend: Any, step: KdaStep) -> None:
        rows = step.x.shape[0]
        if rows not in self.counters.fused:
            logger.info(
                "monokernel: first step of %d rows; KDA half layers of %d layers on %s, states through %s; all else "
                "through the model's own modules",
                rows,
                len(self.standard_halves),
                type(self.steps.device).__name__,
                binding_name(backend),
            )
        self.counters.fused[rows] += 1
