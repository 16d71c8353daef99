"""Puts the kernels into a loaded model: the device, the weights, the log that says what serves each layer."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import TYPE_CHECKING

import torch

from sgl_amd_mono.build.compile import HOST, Artifact, find
from sgl_amd_mono.device.base import Device
from sgl_amd_mono.env import FAULT_INJECT
from sgl_amd_mono.errors import BuildError, LayoutError
from sgl_amd_mono.fault_inject import FaultInjection, injected_fault
from sgl_amd_mono.models.glm53_flash.bind import KdaModule, kda_modules, model_refusals
from sgl_amd_mono.models.glm53_flash.faulty_step import CORRUPTIBLE_REGIONS
from sgl_amd_mono.models.glm53_flash.kda_refusals import check_kda_weights
from sgl_amd_mono.models.glm53_flash.monokernel import Monokernel
from sgl_amd_mono.models.glm53_flash.numerics import STANDARD_BOUNDS
from sgl_amd_mono.models.glm53_flash.program import KERNEL
from sgl_amd_mono.step_check import StepCheck, check_policy
from sgl_amd_mono.upstream import tensor_parallel

if TYPE_CHECKING:
    from sglang.srt.models.glm5_next import Glm5NextForConditionalGeneration

logger = logging.getLogger(__name__)


def load_refusals(model: Glm5NextForConditionalGeneration) -> list[str]:
    """Why the kernels cannot run the model as it was loaded: every reason, of weights, modules and kernel builds."""
    if reasons := model_refusals(model):
        return reasons
    modules = list(kda_modules(model))
    if not modules:
        return ["no layer of this process is a KDA layer, so no step would run on the kernels"]
    reasons = []
    for module in modules:
        try:
            check_kda_weights(f"KDA layer {module.layer}", module.weights, module.weights.o_proj.shape[0])
        except LayoutError as error:
            reasons.append(str(error))
    try:
        _artifact(modules)
    except BuildError as error:
        reasons.append(str(error))
    return reasons


def install(model: Glm5NextForConditionalGeneration, *, deadline_s: float, widths: Sequence[int]) -> Monokernel:
    """Stand the kernels in for the model's KDA half layers; states are bound by the first step of each width."""
    modules = list(kda_modules(model))
    artifact = _artifact(modules)
    ranks = tensor_parallel()
    policy = check_policy()
    monokernel = Monokernel(
        model,
        modules,
        _device(artifact),
        ranks=ranks,
        deadline_s=deadline_s,
        check=StepCheck(policy, STANDARD_BOUNDS, ranks) if policy else None,
        fault=_fault([module.layer for module in modules]),
    )
    _log(modules, artifact, monokernel, widths, ranks.rank)
    return monokernel


def _artifact(modules: Sequence[KdaModule]) -> Artifact:
    where = modules[0].weights.o_proj.device
    if where.type == "cpu":
        return find(KERNEL, HOST)
    return find(KERNEL, torch.cuda.get_device_properties(where).gcnArchName.split(":")[0])


def _device(artifact: Artifact) -> Device:
    if artifact.arch == HOST:
        from sgl_amd_mono.device.host import HostDevice

        # as on a GPU, a wait that nobody ends lasts until its deadline and leaves a record
        return HostDevice(KERNEL, artifact=artifact, has_peers=True)
    from sgl_amd_mono.device.hip import HipDevice

    return HipDevice(KERNEL, artifact=artifact)


def _fault(layers: Sequence[int]) -> FaultInjection | None:
    fault = injected_fault(CORRUPTIBLE_REGIONS, tuple(layers))
    if fault is not None:
        logger.warning("monokernel: %s is set, for tests only: %s", FAULT_INJECT.name, fault)
    return fault


def _log(
    modules: Sequence[KdaModule], artifact: Artifact, monokernel: Monokernel, widths: Sequence[int], rank: int
) -> None:
    layers = [module.layer for module in modules]
    logger.info(
        "monokernel glm53_flash, rank %d: KDA half layers of layers %s fused, no weight copied; their feed-forward "
        "halves and every other layer run through the model's own modules; widths %s",
        rank,
        layers,
        list(widths),
    )
    logger.info(
        "monokernel glm53_flash: kernel %s for %s by %s, %d workgroups, %s",
        artifact.kernel,
        artifact.arch,
        artifact.compiler,
        monokernel.steps.device.workgroups,
        artifact.binary,
    )
