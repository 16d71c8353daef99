"""What SGLang's launcher and loader ask about GLM-5.3-Flash; imported in every process of a server that runs it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sglang.kernels.plugin_kernels.amd.spec import (
    MONOKERNEL_API_VERSION,
    DeviceLimits,
    MonoSpec,
    Numerics,
    NumericsKind,
    Requirements,
)

from sgl_amd_mono.models.glm53_flash.numerics import STANDARD_BOUNDS
from sgl_amd_mono.models.glm53_flash.served import (
    ARCH,
    RESIDENT_WORKGROUPS,
    TP_SIZES,
    WIDTHS,
    setting_refusals,
    shape_refusals,
)
from sgl_amd_mono.upstream import server_settings

if TYPE_CHECKING:
    from sglang.kernels.plugin_kernels.amd.spec import BuildContext
    from sglang.srt.models.glm5_next import Glm5NextForConditionalGeneration

    from sgl_amd_mono.models.glm53_flash.monokernel import Monokernel


def config_disable_reasons(cfg: Any, hf_config: Any) -> list[str]:
    """Why this server, as its arguments are resolved, cannot run the kernels; before anything is loaded."""
    from sgl_amd_mono.contract_check import contract_refusals
    from sgl_amd_mono.models.glm53_flash.bind import kda_shape
    from sgl_amd_mono.models.glm53_flash.reads import CONTRACT

    settings = server_settings(cfg)
    return [
        *contract_refusals(CONTRACT),
        *setting_refusals(settings),
        *shape_refusals(kda_shape(hf_config), settings.tp_size),
    ]


def model_disable_reasons(model: Glm5NextForConditionalGeneration, hf_config: Any, copies: Any) -> list[str]:
    """Why the model, as it was loaded on this rank, cannot run on the kernels."""
    from sgl_amd_mono.models.glm53_flash.install import load_refusals

    return load_refusals(model)


def build(model: Glm5NextForConditionalGeneration, hf_config: Any, ctx: BuildContext) -> Monokernel:
    """The kernels on this rank, bound to the model's weights; states are bound by the first step."""
    from sgl_amd_mono.models.glm53_flash.install import install

    return install(model, deadline_s=ctx.deadline_s, widths=ctx.widths)


SPEC = MonoSpec(
    name="glm53_flash",
    devices={ARCH: DeviceLimits(widths=WIDTHS, tp_sizes=TP_SIZES, resident_blocks=RESIDENT_WORKGROUPS)},
    features=frozenset(),
    requires=Requirements(dtypes=frozenset({"bfloat16"})),
    numerics=Numerics(kind=NumericsKind.TOLERANCE, bounds=STANDARD_BOUNDS),
    model_disable_reasons=model_disable_reasons,
    build=build,
    api_version=MONOKERNEL_API_VERSION,
    config_disable_reasons=config_disable_reasons,
)
