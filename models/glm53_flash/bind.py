"""What GLM-5.3-Flash's kernels read of SGLang's modules and caches; nothing else touches them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import msgspec
import torch
from torch import Tensor

from sgl_amd_mono.errors import BindError
from sgl_amd_mono.models.glm53_flash.kda_buffers import KdaCache
from sgl_amd_mono.models.glm53_flash.layout import KdaWeights
from sgl_amd_mono.region import Region
from sgl_amd_mono.upstream import layer_states

if TYPE_CHECKING:
    from sglang.srt.configs.glm5_next import Glm5NextConfig
    from sglang.srt.layers.attention.hybrid_linear_attn_backend import HybridLinearAttnBackend
    from sglang.srt.layers.logits_processor import LogitsProcessorOutput
    from sglang.srt.mem_cache.memory_pool import MambaPool
    from sglang.srt.model_executor.forward_batch_info import ForwardBatch
    from sglang.srt.models.glm5_next import (
        Glm5NextDecoderLayer,
        Glm5NextForConditionalGeneration,
        Glm5NextLinearAttention,
    )

# of a key of the sparse indexer, and of its scale
_INDEX_DIM = 128
_SCALE_BYTES = 4


class KdaShape(msgspec.Struct, frozen=True, kw_only=True):
    """The sizes of the KDA layers, as the configuration gives them."""

    hidden: int
    heads: int
    """Over all ranks."""
    head_dim: int
    conv_taps: int
    lower_bound: float | None
    hyper_connections: bool
    """Whether the residual is kept in mHC streams."""


def kda_shape(hf_config: Glm5NextConfig) -> KdaShape:
    """Sizes of the KDA layers from the model's configuration."""
    text = hf_config.text_config
    linear = text.linear_attn_config
    return KdaShape(
        hidden=text.hidden_size,
        heads=linear["num_heads"],
        head_dim=linear["head_dim"],
        conv_taps=linear["short_conv_kernel_size"],
        lower_bound=linear.get("gate_lower_bound"),
        hyper_connections=bool(text.mhc),
    )


class KdaModule(msgspec.Struct, frozen=True):
    """One KDA half layer of the loaded model."""

    layer: int
    attention: Any
    """The module whose `forward` the kernels stand in for."""
    weights: KdaWeights


def kda_modules(model: Glm5NextForConditionalGeneration) -> Iterator[KdaModule]:
    """The model's KDA half layers that this process runs, in layer order."""
    for layer in model.model.layers[model.model.start_layer : model.model.end_layer]:
        if layer.is_linear_attn:
            yield KdaModule(layer.layer_id, layer.self_attn, kda_weights(layer))


def kda_weights(layer: Glm5NextDecoderLayer) -> KdaWeights:
    """The weights of a KDA layer where SGLang holds them; nothing is copied."""
    attention = layer.self_attn
    forget_b, output_b = _gate_factors(attention)
    linear = attention.attn
    return KdaWeights(
        projection=tuple(_data(weight) for weight in _projections(attention)),
        forget_b=forget_b,
        output_b=output_b,
        conv=_data(linear.conv_weights),
        A_log=_data(attention.A_log).flatten(),
        dt_bias=_data(attention.dt_bias),
        o_norm=_data(attention.o_norm.weight),
        o_proj=_data(attention.o_proj.weight),
        lower_bound=float(linear.lower_bound),
        norm_eps=float(attention.o_norm.eps),
    )


def _projections(attention: Glm5NextLinearAttention) -> list[Tensor]:
    """Weights of q, k, v, beta and both gates' first factors, in this order, joined as the loader joined them."""
    if attention.do_fuse_qkvbfg:
        return [attention.fused_qkvbfg_a_proj.weight]
    if attention.fuse_bfg:
        return [attention.qkv_proj.weight, attention.fused_bfg_a_proj.weight]
    return [
        attention.qkv_proj.weight,
        attention.b_proj.weight,
        attention.f_a_proj.weight,
        attention.g_a_proj.weight,
    ]


def _gate_factors(attention: Glm5NextLinearAttention) -> tuple[Tensor, Tensor]:
    """Second factors of the forget gate and of the output gate, [HD, D] each."""
    if attention.do_fuse_qkvbfg or attention.fuse_bfg:
        joined = _data(attention.fused_fg_b_proj.weight)
        return joined[0], joined[1]
    return _data(attention.f_b_proj.weight), _data(attention.g_b_proj.weight)


def model_refusals(model: Glm5NextForConditionalGeneration) -> list[str]:
    """What the loaded model has that the kernels do not serve, beyond the layout of its weights."""
    reasons = []
    if model.capture_aux_hidden_states:
        reasons.append(
            "the model keeps auxiliary hidden states of its layers for a draft model (EAGLE3, DFLASH); "
            "the routed step gives none: drop --speculative-algorithm"
        )
    for layer in model.model.layers[model.model.start_layer : model.model.end_layer]:
        if layer.is_linear_attn and (found := _linear_refusals(layer)):
            reasons += [f"layer {layer.layer_id}: {reason}" for reason in found]
    return reasons


def _linear_refusals(layer: Glm5NextDecoderLayer) -> list[str]:
    linear = layer.self_attn.attn
    reasons = []
    if linear.bias is not None:
        reasons.append("its convolution has a bias, the kernel adds none")
    if linear.activation != "silu":
        reasons.append(f"its convolution is followed by {linear.activation}, the kernel applies silu")
    if linear.lower_bound is None:
        reasons.append("its forget gate has no lower bound, the kernel computes the bounded gate")
    return reasons


def kda_caches(backend: HybridLinearAttnBackend, layers: Sequence[int]) -> dict[int, KdaCache]:
    """The state pools of each of the model's `layers`; whatever their order in storage.

    Raises
    ------
    BindError
        When a layer's state is kept in a ring that the kernels do not replay.
    """
    state_of = layer_states(backend)
    caches = {}
    for layer in layers:
        state: MambaPool.State = state_of(layer)
        if state.replayssm_d is not None:
            raise BindError(
                f"KDA layer {layer}: its state is buffered by ReplaySSM. Start without --enable-linear-replayssm."
            )
        caches[layer] = KdaCache(state.conv[0], state.temporal)
    return caches


def _data(parameter: Tensor) -> Tensor:
    return parameter.data if isinstance(parameter, torch.nn.Parameter) else parameter.detach()


def attention_regions(backend: HybridLinearAttnBackend, batch: ForwardBatch) -> list[Region]:
    """What the sparse-attention layers may write of their caches in the step that `batch` describes."""
    pool = backend.token_to_kv_pool
    locations = batch.out_cache_loc.unique()
    regions = []
    for layer in sorted(pool.full_attention_layer_id_mapping):
        regions.append(Region(name="latent", layer=layer, pool=pool.get_key_buffer(layer), rows=locations))
        if not pool.use_dsa:
            continue
        pages = pool.get_index_k_with_scale_buffer(layer)
        # a layer that takes another's indices keeps no keys
        if pages.shape[0]:
            regions.append(
                Region(
                    name="index_key",
                    layer=layer,
                    pool=pages,
                    rows=(locations // pool.page_size).unique(),
                    values=_index_keys,
                )
            )
        if pool.index_kpool > 1:
            requests = batch.req_pool_indices.unique()
            for tail in pool.get_compress_tail_buffers(layer):
                regions.append(Region(name="index_tail", layer=layer, pool=tail, rows=requests))
    return regions


def _index_keys(pages: Tensor) -> Tensor:
    """[n, P * (D + 4)] uint8, P FP8 keys of D = 128 and their fp32 scales -> [n, P, D] float32 (contract 2.5)."""
    count = pages.shape[1] // (_INDEX_DIM + _SCALE_BYTES)
    keys, scales = pages.split([count * _INDEX_DIM, count * _SCALE_BYTES], dim=1)
    numbers = keys.contiguous().view(torch.float8_e4m3fn).float().view(-1, count, _INDEX_DIM)
    return numbers * scales.contiguous().view(torch.float32).view(-1, count, 1)


def hidden_states_of(model: Glm5NextForConditionalGeneration) -> Callable[[], Tensor]:
    """What gives the hidden states [T, hidden] that the model's last forward handed to its logits processor."""
    return _last_output(model.model)


def _last_output(module: torch.nn.Module) -> Callable[[], Tensor]:
    last: list[Tensor] = []

    def keep(module: torch.nn.Module, arguments: Any, output: Tensor) -> None:
        last[:] = [output]

    module.register_forward_hook(keep)
    return lambda: last[0]


def logits_of(output: LogitsProcessorOutput) -> Tensor:
    """The logits [T, vocabulary] of a forward's result."""
    return output.next_token_logits
