"""What we read of SGLang before any step: the plugin contract, the calls that its host makes, settings.

The plugin contract exists from 0.5.23 on.
"""

from __future__ import annotations

from sgl_amd_mono.check.rows import (
    Call,
    attributes,
    calls,
    class_,
    class_attribute,
    constant,
    enum_member,
    field_,
    fields_,
    fill,
    function,
    method,
    on,
    property_,
    strings,
)

PLUGIN = "sglang.kernels.plugin_kernels.amd.spec"
_BINDING = "sglang.srt.kernel_plugins.amd.binding"
_FIELDS = "sglang.srt.arg_groups.fields"

UPSTREAM = "mono/upstream.py"
SPEC = "models/glm53_flash/spec.py"
REGISTRATION = "mono/plugin.py"

_PLUGIN_CONTRACT = fill(
    *on(
        PLUGIN,
        constant("MONOKERNEL_API_VERSION", value=("1",)),
        constant("BACKEND", value=("'amd'",), reader=REGISTRATION),
        constant("FLAG", value=("'--enable-amd-monokernel'",), reader=UPSTREAM),
        function("register", call=Call(keywords=("backend", "architecture", "path")), reader=REGISTRATION),
        function("spec_registered", call=Call(keywords=("backend", "architectures")), watched=True),
        function("find_spec", call=Call(keywords=("backend", "architectures", "isa")), watched=True),
    ),
    *on(
        f"{PLUGIN}:DeviceLimits",
        class_(
            fields=("widths", "tp_sizes", "resident_blocks"),
            options=("frozen=True",),
            call=Call(keywords=("widths", "tp_sizes", "resident_blocks")),
        ),
        *fields_("widths", "tp_sizes", "resident_blocks", watched=True),
    ),
    *on(
        f"{PLUGIN}:Requirements",
        class_(
            fields=("dtypes=", "attention_backends=", "server_args=", "hf_config=", "env="),
            options=("frozen=True",),
            call=Call(keywords=("dtypes", "attention_backends", "server_args", "hf_config", "env")),
        ),
    ),
    *on(
        f"{PLUGIN}:Numerics",
        class_(fields=("kind", "bounds="), options=("frozen=True",), call=Call(keywords=("kind", "bounds"))),
        field_("bounds", watched=True),
        method("bound", call=Call(1), watched=True),
        needed_for="check mode",
    ),
    *on(
        f"{PLUGIN}:NumericsKind",
        enum_member("BITWISE", value=("'bitwise'",), watched=True),
        enum_member("TOLERANCE", value=("'tolerance'",)),
    ),
    *on(
        f"{PLUGIN}:ShapeKey",
        class_(fields=("forward_mode", "batch_size", "tokens_per_request"), options=("frozen=True",)),
        *fields_("forward_mode", "batch_size", "tokens_per_request"),
        property_("rows"),
        needed_for="decode",
        watched=True,
    ),
    *on(
        f"{PLUGIN}:BuildContext",
        class_(fields=("isa", "widths", "deadline_s", "copies"), options=("frozen=True",)),
        *fields_("widths", "deadline_s"),
        *fields_("isa", "copies", watched=True),
    ),
    *on(
        f"{PLUGIN}:Plan",
        class_(fields=("key", "state="), options=("frozen=True",)),
        field_("key", gives=(f"{PLUGIN}:ShapeKey",)),
        field_("state"),
        needed_for="decode",
        watched=True,
    ),
    *on(
        f"{PLUGIN}:BuiltMonokernels",
        method("forward", call=Call(4, ("pp_proxy_tensors",)), watched=True),
        needed_for="decode",
    ),
    *on(
        f"{PLUGIN}:MonoSpec",
        class_(
            fields=(
                "name",
                "devices",
                "features",
                "requires",
                "numerics",
                "model_disable_reasons",
                "build",
                "api_version",
                "config_disable_reasons=",
                "load_tensor=",
                "tokens_per_request=",
                "unread_metadata=",
            ),
            options=("frozen=True",),
            call=Call(
                keywords=(
                    "name",
                    "devices",
                    "features",
                    "requires",
                    "numerics",
                    "model_disable_reasons",
                    "build",
                    "api_version",
                    "config_disable_reasons",
                    "load_tensor",
                )
            ),
        ),
        method("widths", call=Call(1), watched=True),
    ),
    *on(
        f"{PLUGIN}:Feature",
        *(
            enum_member(name)
            for name in (
                "PIPELINE_PARALLEL",
                "MULTI_NODE_TP",
                "DP_ATTENTION",
                "EXPERT_PARALLEL",
                "EPLB",
                "CONTEXT_PARALLEL",
                "SPECULATIVE_DECODING",
                "RAGGED_VERIFY",
                "TWO_BATCH_OVERLAP",
                "LORA",
                "PD_DISAGGREGATION",
                "RETURN_ROUTED_EXPERTS",
                "RETURN_INDEXER_TOPK",
                "EAGLE3_HIDDEN_STATES",
                "KV_OFFLOAD",
                "MEMORY_RELEASE",
                "CPU_OFFLOAD",
                "TORCH_COMPILE",
                "PARTITIONED_GPU",
            )
        ),
        watched=True,
    ),
    reader=SPEC,
    needed_for="start-up",
    since="0.5.23",
)

_HOST = fill(
    *on(
        "sglang.srt.plugins",
        constant("GENERAL_PLUGINS_GROUP", value=("'sglang.srt.plugins'",), watched=True),
        function("load_plugins", call=Call()),
    ),
    *on(
        "sglang.srt.model_executor.model_runner:ModelRunner",
        calls("load_model", steps=("post_load_model", "install_monokernel_forward", "load_kv_cache_scales")),
        since="0.5.23",
    ),
    *on(
        "sglang.srt.model_loader.loader:DefaultModelLoader",
        calls("load_weights_only", steps=("monokernel_weights_iterator", "model.load_weights")),
        needed_for="weights",
        since="0.5.23",
    ),
    *on(
        _BINDING,
        function("device_isa", call=Call()),
        function("deadline_s", call=Call(1), watched=True),
        function(
            "monokernel_disable_reasons",
            call=Call(keywords=("cfg", "model_config", "isa")),
            body={"0.5.23": "9f2b7a491e"},
        ),
        function(
            "monokernel_weights_iterator",
            call=Call(keywords=("model", "weights")),
            body={"0.5.23": "e4ca353fa6"},
            watched=True,
        ),
        function(
            "install_monokernel_forward",
            call=Call(keywords=("model", "hf_config", "capture_tail_hooks")),
            body={"0.5.23": "b0653ac03c"},
            watched=True,
        ),
        function("shape_key", call=Call(1), body={"0.5.23": "dce0532d97"}, watched=True),
        calls(
            "handle_amd_monokernel",
            steps=("device_isa", "monokernel_disable_reasons"),
            only_if="cfg.enable_amd_monokernel",
        ),
        calls(
            "install_monokernel_forward",
            steps=("find_spec", "spec.model_disable_reasons", "spec.build", "_install_forward"),
            only_if="not backend is None",
        ),
        since="0.5.23",
    ),
    *on(
        f"{_BINDING}:_CaptureCheck",
        method("__call__", call=Call(4), watched=True),
        since="0.5.23",
    ),
    *on(
        "sglang.srt.arg_groups.pipeline",
        calls(
            "run_resolution_pipeline",
            steps=("run_hook(handle_nvidia_megakernel)", "run_hook(handle_amd_monokernel)"),
            only_if="not cfg.model_path.lower() in ['none', 'dummy']",
        ),
        since="0.5.23",
    ),
    *on(
        "sglang.srt.model_executor.runner_utils.capture_mode",
        function("get_is_capture_mode", call=Call()),
        needed_for="check mode",
    ),
    *on(
        "sglang.srt.distributed.parallel_state",
        function("get_tp_group", call=Call(), gives=("sglang.srt.distributed.parallel_state:GroupCoordinator",)),
        needed_for="decode",
    ),
    *on(
        "sglang.srt.distributed.parallel_state:GroupCoordinator",
        *attributes("cpu_group", "rank_in_group", "world_size", only_if="self.rank in ranks"),
        method("barrier", call=Call(), watched=True),
        needed_for="decode",
    ),
    # on ROCm the scheduler waits for the whole replay before it writes the shared tables
    *on(
        "sglang.srt.layers.attention.base_attn_backend:AttentionBackend",
        method("shared_read_ends", call=Call(1), body={"0.5.21": "208f1103e3"}, watched=True),
        needed_for="decode",
    ),
    *on(
        "sglang.srt.model_executor.runner.decode_cuda_graph_runner:DecodeCudaGraphRunner",
        method("_resolve_shared_read_ends", call=Call(2), body={"0.5.22": "1521c9c9b3"}, watched=True),
        needed_for="decode",
    ),
    *on(
        "sglang.srt.distributed.device_communicators.custom_all_reduce",
        strings("dispatch_custom_allreduce", steps=("SGLANG_USE_AITER_AR",)),
        needed_for="check mode",
    ),
    reader=UPSTREAM,
    needed_for="start-up",
)

_SETTINGS = fill(
    *on(
        f"{_FIELDS}.exec_:ExecKernel",
        field_("enable_amd_monokernel", value=("False",), since="0.5.23", watched=True),
        field_("decode_attention_backend", value=("None",), watched=True),
    ),
    *on(
        f"{_FIELDS}.exec_:ExecGraph",
        field_(
            "cuda_graph_config",
            value=("None",),
            gives=("sglang.srt.model_executor.cuda_graph_config:CudaGraphConfig",),
        ),
    ),
    *on(
        "sglang.srt.model_executor.cuda_graph_config:CudaGraphConfig",
        field_("decode", gives=("sglang.srt.model_executor.cuda_graph_config:PhaseConfig",)),
    ),
    *on(
        "sglang.srt.model_executor.cuda_graph_config:PhaseConfig",
        field_("backend"),
    ),
    *on(
        "sglang.srt.model_executor.cuda_graph_config:Backend",
        class_attribute("DISABLED", value=("'disabled'",), watched=True),
    ),
    *on(
        f"{_FIELDS}.parallel:Parallel",
        field_("tp_size", value=("1",)),
    ),
    *on(
        "sglang.srt.configs.mamba_utils",
        function("mamba2_state_dtype", call=Call(), gives=("sglang.srt.configs.mamba_utils:Mamba2StateDType",)),
    ),
    *on(
        "sglang.srt.configs.mamba_utils:Mamba2StateDType",
        *fields_("conv", "temporal"),
    ),
    *on(
        f"{_FIELDS}.exec_:ExecMamba",
        field_("mamba_ssm_dtype", value=("None",)),
        field_("linear_attn_backend", value=("'triton'",)),
        field_("linear_attn_decode_backend", value=("None",)),
        field_("enable_linear_replayssm", value=("False",)),
        field_("enable_linear_replayssm_spec", value=("False",)),
    ),
    *on(
        f"{_FIELDS}.model:Model",
        field_("startup_weight_load_mode", value=("'serial'",)),
        field_("kv_cache_dtype", value=("'auto'",), watched=True),
    ),
    *on(
        f"{_FIELDS}.memory:Memory",
        field_("enable_unified_memory", value=("False",)),
        field_("enable_unified_cache_external_linker", value=("False",)),
        field_("enable_hisparse", value=("False",)),
        field_("enable_hierarchical_cache", value=("False",), watched=True),
    ),
    *on(
        f"{_FIELDS}.disagg:Disagg",
        field_("disaggregation_decode_retraction_backup", value=("None",)),
    ),
    *on(
        f"{_FIELDS}.schedule:Schedule",
        field_("page_size", value=("None",)),
        watched=True,
    ),
    *on(
        f"{_FIELDS}.observability:Observability",
        field_("kv_canary", value=("'none'",)),
    ),
    *on(
        f"{_FIELDS}.spec:Spec",
        field_("speculative_algorithm", value=("None",), watched=True),
        field_("speculative_eagle_topk", value=("None",)),
        field_("speculative_num_draft_tokens", value=("None",)),
        needed_for="verify",
        watched=True,
    ),
    *on(
        f"{_FIELDS}.device:Device",
        field_("watchdog_timeout", value=("300",), watched=True),
    ),
    *on(
        "sglang.srt.environ:Envs",
        class_attribute("SGLANG_PLUGINS", value=("EnvStr('')",), watched=True),
        class_attribute("SGLANG_RAGGED_VERIFY_MODE", value=("EnvStr('static')",), watched=True),
        class_attribute("SGLANG_MAMBA_SSM_DTYPE", value=("EnvStr(None)",), watched=True),
        class_attribute("SGLANG_MAMBA_CONV_DTYPE", value=("EnvStr('bfloat16')",), watched=True),
        class_attribute("SGLANG_USE_1STAGE_ALLREDUCE", value=("EnvBool(False)",), watched=True),
        class_attribute("SGLANG_ENABLE_DETERMINISTIC_INFERENCE", value=("EnvBool(False)",), watched=True),
    ),
    reader=UPSTREAM,
    needed_for="start-up",
)

_DOCTOR = fill(
    *on(
        "sglang.srt.arg_groups.model_override_base",
        function("model_config_of", call=Call(1)),
        function("resolving_view", call=Call(1)),
    ),
    *on(
        "sglang.srt.server_args",
        # it gives a ServerArgs, a name that upstream binds again to a class made at import, which no tree shows
        function("prepare_server_args", call=Call(1)),
    ),
    *on(
        "sglang.launch_server",
        # so the method that resolves it is judged by the launcher's own call
        calls("run_server", steps=("server_args.resolve_once",)),
    ),
    reader=UPSTREAM,
    needed_for="doctor",
    since="0.5.23",
)

HOST_ROWS = (*_PLUGIN_CONTRACT, *_HOST, *_SETTINGS, *_DOCTOR)
