"""What GLM-5.3-Flash's kernels serve, and every reason of a server's settings why they do not (spec 16.2).

Only the KDA half layers are fused; the other parts of a routed step run through the model's own modules, whose layouts,
dtypes and options are therefore free here.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from sgl_amd_mono.env import CHECK
from sgl_amd_mono.errors import MonoError
from sgl_amd_mono.models.glm53_flash.bind import KdaShape
from sgl_amd_mono.models.glm53_flash.config import Config
from sgl_amd_mono.models.glm53_flash.kda_refusals import CONV_TAPS, DEPTH_GRANULE, HEAD_DIM, HEAD_GRANULE
from sgl_amd_mono.step_check import check_policy
from sgl_amd_mono.upstream import ServerSettings

ARCH = "gfx950"
WIDTHS = (1, 2, 4, 8)
"""Rows of the steps that are routed."""
TP_SIZES = (1, 2, 4, 8)
RESIDENT_WORKGROUPS = 256
"""The compute units of an MI355X: one workgroup of the persistent kernel on each."""

_TEMPORAL_DTYPE = "float32"
_CONV_DTYPE = "bfloat16"
_LINEAR_BACKEND = "triton"


def served_by(directory: Path) -> list[tuple[str, str]]:
    """What computes the attention half and the feed-forward half of each layer of a checkpoint in a routed step.

    Raises
    ------
    CheckpointError
        When its configuration is not one that this package computes with.
    """
    config = Config.load(directory)
    return [
        (
            "KDA, fused" if config.is_kda(layer) else "sparse MLA, the model's module",
            "MoE, the model's module" if config.is_sparse(layer) else "dense, the model's module",
        )
        for layer in range(config.num_hidden_layers)
    ]


def setting_refusals(settings: ServerSettings) -> list[str]:
    """Why a server with these settings cannot run the kernels; each says what it saw, what it needs, and the cure."""
    return [*_setting_refusals(settings), *_check_refusals(settings)]


def _setting_refusals(settings: ServerSettings) -> Iterator[str]:
    if settings.startup_weight_load_mode != "serial":
        yield (
            f"weights are loaded in {settings.startup_weight_load_mode!r} mode, after the kernels are bound to them: "
            "use --startup-weight-load-mode serial"
        )
    if settings.linear_attn_backend != _LINEAR_BACKEND:
        yield (
            f"the linear-attention decode backend is {settings.linear_attn_backend!r}, which may keep states "
            f"in another layout than {_LINEAR_BACKEND!r}: use --linear-attn-decode-backend {_LINEAR_BACKEND}"
        )
    if settings.enable_linear_replayssm or settings.enable_linear_replayssm_spec:
        yield (
            "ReplaySSM keeps recurrent states in a ring that the kernels do not replay: drop --enable-linear-replayssm "
            "and --enable-linear-replayssm-spec"
        )
    if settings.temporal_dtype != _TEMPORAL_DTYPE:
        yield (
            f"recurrent states are {settings.temporal_dtype}, the kernels keep {_TEMPORAL_DTYPE}: "
            f"use --mamba-ssm-dtype {_TEMPORAL_DTYPE} and unset SGLANG_MAMBA_SSM_DTYPE"
        )
    if settings.conv_dtype != _CONV_DTYPE:
        yield (
            f"convolution states are {settings.conv_dtype}, the kernels keep {_CONV_DTYPE}: "
            "unset SGLANG_MAMBA_CONV_DTYPE"
        )
    if settings.enable_unified_memory:
        yield (
            "unified memory numbers state slots virtually, the kernels take physical ones: drop --enable-unified-memory"
        )
    if settings.enable_unified_cache_external_linker:
        yield (
            "an external cache linker brings states in layer by layer and the kernels do not wait for it: "
            "drop --enable-unified-cache-external-linker"
        )
    if settings.disaggregation_decode_retraction_backup == "host_pool":
        yield (
            "a retraction backup in the host pool brings states in layer by layer and the kernels do not wait for it: "
            "use another --disaggregation-decode-retraction-backup"
        )
    if settings.enable_hisparse:
        yield "hierarchical sparse attention moves caches during a step: drop --enable-hisparse"
    if settings.kv_canary != "none":
        yield (
            f"the KV canary ({settings.kv_canary!r}) watches pool methods that the kernels bypass: use --kv-canary none"
        )


def _check_refusals(settings: ServerSettings) -> Iterator[str]:
    try:
        is_checked = check_policy() is not None
    except MonoError as error:
        yield str(error)
        return
    if is_checked and settings.decode_graphs:
        yield (
            f"{CHECK.name} compares eager steps and the decode steps are captured in graphs, so it would compare "
            f"nothing: add --disable-cuda-graph, or unset {CHECK.name}"
        )


def shape_refusals(shape: KdaShape, tp_size: int) -> list[str]:
    """Why the kernels do not compute KDA layers of this shape on ranks of a group of `tp_size`."""
    reasons = []
    if shape.head_dim != HEAD_DIM:
        reasons.append(f"linear_head_dim {shape.head_dim}, the kernels are compiled for {HEAD_DIM}")
    if shape.conv_taps != CONV_TAPS:
        reasons.append(f"linear_conv_kernel_dim {shape.conv_taps}, the kernels are compiled for {CONV_TAPS}")
    if shape.hidden % DEPTH_GRANULE:
        reasons.append(f"hidden_size {shape.hidden}, the kernels take multiples of {DEPTH_GRANULE}")
    if shape.heads % (tp_size * HEAD_GRANULE):
        reasons.append(
            f"{shape.heads} KDA heads over --tp-size {tp_size}, the kernels take a multiple of {HEAD_GRANULE} on each "
            "rank: use a smaller --tp-size"
        )
    if shape.lower_bound is None:
        reasons.append("no gate_lower_bound, the kernels compute the bounded forget gate")
    if not shape.hyper_connections:
        reasons.append("mhc is off, and a plain residual stream could keep the buffer that the kernels write anew")
    return [f"config: {reason}" for reason in reasons]
