"""What both models read of SGLang's objects: settings, the step's batch, backends, recurrent state, ranks.

Beside this file only mono/plugin.py and models/*/{spec,bind}.py touch an SGLang name. Every name has a row in
mono/reads.py, mono/reads_host.py or models/*/reads.py, and `check` lints the one against the other. Imports stand in
the functions: a launcher loads this module to read settings, and must not load the model runner with it.
"""

from __future__ import annotations

import contextlib
import io
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import msgspec
from torch import Tensor

from sgl_amd_mono.errors import BindError, MonoError

if TYPE_CHECKING:
    from sglang.srt.arg_groups.fields.disagg import Disagg
    from sglang.srt.arg_groups.fields.exec_ import ExecGraph, ExecMamba
    from sglang.srt.arg_groups.fields.memory import Memory
    from sglang.srt.arg_groups.fields.model import Model
    from sglang.srt.arg_groups.fields.observability import Observability
    from sglang.srt.arg_groups.fields.parallel import Parallel
    from sglang.srt.layers.attention.hybrid_linear_attn_backend import HybridLinearAttnBackend
    from sglang.srt.mem_cache.memory_pool import MambaPool
    from sglang.srt.model_executor.forward_batch_info import ForwardBatch

# classes whose pools the kernels were checked with; subclasses keep their states elsewhere or number them otherwise
_HYBRID_BACKENDS = frozenset({"HybridLinearAttnBackend"})
_REQUEST_TABLES = frozenset({"HybridReqToTokenPool"})
_KV_POOLS = frozenset({"HybridLinearKVPool", "QSATokenToKVPool"})
_NO_GRAPHS = "disabled"


class ServerSettings(msgspec.Struct, frozen=True, kw_only=True):
    """The resolved server arguments that a spec may refuse, under SGLang's names."""

    tp_size: int
    startup_weight_load_mode: str
    linear_attn_backend: str
    """Of the decode phase."""
    enable_linear_replayssm: bool
    enable_linear_replayssm_spec: bool
    enable_unified_memory: bool
    enable_unified_cache_external_linker: bool
    enable_hisparse: bool
    disaggregation_decode_retraction_backup: str | None
    kv_canary: str
    decode_graphs: bool
    """Whether decode steps are captured in graphs."""
    temporal_dtype: str
    conv_dtype: str


def server_settings(
    cfg: Parallel | Model | ExecMamba | ExecGraph | Memory | Disagg | Observability,
) -> ServerSettings:
    """Read the settings of a server from the view that SGLang hands to `config_disable_reasons`."""
    temporal, conv = _state_dtypes()
    graph = cfg.cuda_graph_config
    return ServerSettings(
        tp_size=cfg.tp_size,
        startup_weight_load_mode=cfg.startup_weight_load_mode,
        linear_attn_backend=cfg.linear_attn_decode_backend or cfg.linear_attn_backend,
        enable_linear_replayssm=bool(cfg.enable_linear_replayssm),
        enable_linear_replayssm_spec=bool(cfg.enable_linear_replayssm_spec),
        enable_unified_memory=bool(cfg.enable_unified_memory),
        enable_unified_cache_external_linker=bool(cfg.enable_unified_cache_external_linker),
        enable_hisparse=bool(cfg.enable_hisparse),
        disaggregation_decode_retraction_backup=cfg.disaggregation_decode_retraction_backup,
        kv_canary=cfg.kv_canary,
        decode_graphs=graph is not None and graph.decode.backend != _NO_GRAPHS,
        temporal_dtype=cfg.mamba_ssm_dtype or temporal,
        conv_dtype=conv,
    )


def _state_dtypes() -> tuple[str, str]:
    """Names of the dtypes of temporal and conv states, unless a server argument says otherwise."""
    from sglang.srt.configs.mamba_utils import mamba2_state_dtype

    dtypes = mamba2_state_dtype()
    return str(dtypes.temporal).removeprefix("torch."), str(dtypes.conv).removeprefix("torch.")


def disable_reasons(arguments: Sequence[str], served_isa: str) -> tuple[str, ...]:
    """Let SGLang resolve the arguments of a server as its launcher does; every reason why it refuses the kernels.

    Parameters
    ----------
    arguments : of `launch_server`, the model among them.
    served_isa : what is asked about when the GPU itself is refused, so that no other reason stays hidden.

    Raises
    ------
    ImportError
        When SGLang, or something that it needs, is missing.
    MonoError
        When SGLang does not know an argument.
    """
    from sglang.kernels.plugin_kernels.amd.spec import FLAG
    from sglang.srt.arg_groups.model_override_base import model_config_of, resolving_view
    from sglang.srt.kernel_plugins.amd.binding import device_isa, monokernel_disable_reasons
    from sglang.srt.plugins import load_plugins

    load_plugins()
    isa = device_isa()
    args = _parsed_arguments(["--log-level", "error", *arguments, FLAG, *_device_arguments(arguments, isa)])
    stopped = _resolution_error(args.resolve_once, FLAG)
    cfg, model_config = resolving_view(args), model_config_of(args)
    spec, reasons = monokernel_disable_reasons(cfg=cfg, model_config=model_config, isa=isa)
    if spec is None and isa != served_isa:
        reasons += monokernel_disable_reasons(cfg=cfg, model_config=model_config, isa=served_isa)[1]
    if stopped:
        reasons.insert(
            0,
            f"SGLang refuses the arguments: {stopped}; what else refuses them is judged on what it had resolved so far",
        )
    return tuple(reasons)


def _resolution_error(resolve: Callable[[], None], flag: str) -> str:
    """What stops a server with these arguments, other than SGLang's own refusal of the flag."""
    try:
        resolve()
    except ImportError:
        raise
    # a check of SGLang's may be a ValueError, an assertion or anything else
    except Exception as error:
        return "" if str(error).startswith(flag) else f"{type(error).__name__}: {error}".rstrip(".")
    return ""


def _device_arguments(arguments: Sequence[str], isa: str | None) -> list[str]:
    """Without a GPU SGLang stops at the device, before it resolves anything else; on ROCm it would find this one."""
    chosen = any(argument.partition("=")[0] == "--device" for argument in arguments)
    return ["--device", "cuda"] if isa is None and not chosen else []


def _parsed_arguments(arguments: Sequence[str]) -> Any:
    from sglang.srt.server_args import prepare_server_args

    said = io.StringIO()
    try:
        with contextlib.redirect_stderr(said):
            return prepare_server_args(list(arguments))
    except SystemExit as error:
        # the usage that stands before it is pages long
        raise MonoError(f"SGLang does not take these arguments: {said.getvalue().splitlines()[-1]}") from error


class TensorParallel(msgspec.Struct, frozen=True):
    """This process among those that share the model."""

    rank: int
    size: int
    cpu_group: Any
    """torch.distributed group over gloo."""

    def gather(self, value: Any) -> list[Any]:
        """`value` of every rank, in rank order; every rank calls it."""
        if self.size == 1:
            return [value]
        import torch.distributed as dist

        values: list[Any] = [None] * self.size
        dist.all_gather_object(values, value, group=self.cpu_group)
        return values


def tensor_parallel() -> TensorParallel:
    """The tensor-parallel group of this process."""
    from sglang.srt.distributed.parallel_state import get_tp_group

    group = get_tp_group()
    return TensorParallel(group.rank_in_group, group.world_size, group.cpu_group)


def is_capturing() -> bool:
    """Whether the step runs for a graph capture, warm-ups included: SGLang's all-reduces return zeros then."""
    from sglang.srt.model_executor.runner_utils.capture_mode import get_is_capture_mode

    return bool(get_is_capture_mode())


def hybrid_backend() -> HybridLinearAttnBackend:
    """The attention backend of the active forward.

    Raises
    ------
    BindError
        When it, or one of its pools, is of a class that the kernels were not checked with.
    """
    from sglang.srt.model_executor.forward_context import get_attn_backend

    backend = get_attn_backend()
    _require(backend, _HYBRID_BACKENDS, "attention backend")
    _require(backend.req_to_token_pool, _REQUEST_TABLES, "request table")
    _require(backend.token_to_kv_pool, _KV_POOLS, "KV pool")
    return backend


def layer_states(backend: HybridLinearAttnBackend) -> Callable[[int], MambaPool.State]:
    """What gives the recurrent state of a layer, by the model's layer number.

    SGLang #46980 put `state_layer_cache` on the linear-attention backend; before it, the request table has the states.
    The class tells, no version does.
    """
    linear = backend.linear_attn_backend
    if hasattr(type(linear), "state_layer_cache"):
        return linear.state_layer_cache
    return linear.req_to_token_pool.mamba2_layer_cache


def binding_name(backend: HybridLinearAttnBackend) -> str:
    """Which of the two `layer_states` uses, for the log."""
    has_getter = hasattr(type(backend.linear_attn_backend), "state_layer_cache")
    return (
        "the linear-attention backend's state_layer_cache" if has_getter else "the request table's mamba2_layer_cache"
    )


class StepRows(msgspec.Struct, frozen=True, kw_only=True):
    """What a step's rows own, in buffers whose addresses only a captured graph may keep."""

    slots: Tensor
    """[T] int32: state slot, negative for a padded row."""
    track_mask: Tensor | None
    """[T] bool, or None where the prefix cache keeps nothing of this step."""
    track_slots: Tensor | None
    """[T] int64."""


def step_rows(backend: HybridLinearAttnBackend, batch: ForwardBatch) -> StepRows:
    """The state slots of the step that `batch` describes.

    Raises
    ------
    BindError
        When the backend has not prepared this step.
    """
    metadata = backend.linear_attn_backend.forward_metadata
    if metadata is None:
        raise BindError("The linear-attention backend holds no metadata: init_forward_metadata did not run.")
    mask = batch.mamba_track_mask
    # the batch's own indices may be virtual; the metadata's are what the standard path writes to
    targets = metadata.mamba_track_indices if mask is not None else None
    return StepRows(
        slots=metadata.mamba_cache_indices, track_mask=mask if targets is not None else None, track_slots=targets
    )


def transfer_in_flight(backend: HybridLinearAttnBackend) -> bool:
    """Whether HiCache is still bringing layers of this step from the host: only the standard path waits for them."""
    counter = backend.token_to_kv_pool.layer_transfer_counter
    return counter is not None and counter.consumer_index >= 0


def _require(value: object, known: frozenset[str], what: str) -> None:
    if type(value).__name__ not in known:
        raise BindError(
            f"The {what} is a {type(value).__module__}.{type(value).__name__}, the kernels are bound to "
            f"{' or '.join(sorted(known))} alone. Start without --enable-amd-monokernel, or without the option that "
            f"chose it."
        )
