"""What both models read of SGLang: the plugin contract, its host, the step's inputs, the pools and the backends.

`since` is the oldest of the releases 0.5.21 to 0.5.23 that has the name; the plugin contract exists from 0.5.23 on.
Rows since PR #46980 state what its description says: no release has it, so they are not verified against its code.
"""

from __future__ import annotations

from sgl_amd_mono.check.rows import (
    Call,
    Profile,
    Row,
    attribute,
    attributes,
    calls,
    class_,
    class_attribute,
    constant,
    enum_member,
    field_,
    fields_,
    function,
    method,
    null_attribute,
    on,
    property_,
    strings,
)

PLUGIN = "sglang.kernels.plugin_kernels.amd.spec"
_BINDING = "sglang.srt.kernel_plugins.amd.binding"
_FORWARD_BATCH = "sglang.srt.model_executor.forward_batch_info"
_CONTEXT = "sglang.srt.model_executor.forward_context"
_POOL = "sglang.srt.mem_cache.memory_pool"
_HYBRID = "sglang.srt.layers.attention.hybrid_linear_attn_backend"
_LOGITS = "sglang.srt.layers.logits_processor"
_FIELDS = "sglang.srt.arg_groups.fields"

UPSTREAM = "mono/upstream.py"

# SGLang #46980 moves the recurrent state behind the linear-attention backend and the KV pool's layer router
REQUEST_TABLE = Profile("request table", "the request table's mamba2_layer_cache")
LAYER_ROUTER = Profile("layer router", "the linear-attention backend's state_layer_cache")
CHANGE = "PR #46980"

_PLUGIN_CONTRACT = (
    *on(
        PLUGIN,
        constant("MONOKERNEL_API_VERSION", value=("1",)),
        constant("BACKEND", value=("'amd'",)),
        constant("FLAG", value=("'--enable-amd-monokernel'",)),
        function("register", call=Call(keywords=("backend", "architecture", "path"))),
        function("spec_registered", call=Call(keywords=("backend", "architectures")), watched=True),
        function("find_spec", call=Call(keywords=("backend", "architectures", "isa")), watched=True),
        reader=UPSTREAM,
        needed_for="start-up",
        since="0.5.23",
    ),
    *on(
        f"{PLUGIN}:DeviceLimits",
        class_(
            fields=("widths", "tp_sizes", "resident_blocks"),
            options=("frozen=True",),
            call=Call(keywords=("widths", "tp_sizes", "resident_blocks")),
        ),
        *fields_("widths", "tp_sizes", "resident_blocks"),
        reader=UPSTREAM,
        needed_for="start-up",
        since="0.5.23",
    ),
    *on(
        f"{PLUGIN}:Requirements",
        class_(
            fields=("dtypes=", "attention_backends=", "server_args=", "hf_config=", "env="),
            options=("frozen=True",),
            call=Call(keywords=("dtypes", "attention_backends", "server_args", "hf_config", "env")),
        ),
        reader=UPSTREAM,
        needed_for="start-up",
        since="0.5.23",
    ),
    *on(
        f"{PLUGIN}:Numerics",
        class_(fields=("kind", "bounds="), options=("frozen=True",), call=Call(keywords=("kind", "bounds"))),
        field_("bounds"),
        method("bound", call=Call(1)),
        reader=UPSTREAM,
        needed_for="check mode",
        since="0.5.23",
    ),
    *on(
        f"{PLUGIN}:NumericsKind",
        enum_member("BITWISE", value=("'bitwise'",)),
        enum_member("TOLERANCE", value=("'tolerance'",)),
        reader=UPSTREAM,
        needed_for="start-up",
        since="0.5.23",
    ),
    *on(
        f"{PLUGIN}:ShapeKey",
        class_(fields=("forward_mode", "batch_size", "tokens_per_request"), options=("frozen=True",)),
        *fields_("forward_mode", "batch_size", "tokens_per_request"),
        property_("rows"),
        reader=UPSTREAM,
        needed_for="decode",
        since="0.5.23",
    ),
    *on(
        f"{PLUGIN}:BuildContext",
        class_(fields=("isa", "widths", "deadline_s", "copies"), options=("frozen=True",)),
        *fields_("isa", "widths", "deadline_s", "copies"),
        reader=UPSTREAM,
        needed_for="start-up",
        since="0.5.23",
    ),
    *on(
        f"{PLUGIN}:Plan",
        class_(fields=("key", "state="), options=("frozen=True",)),
        field_("key", gives=(f"{PLUGIN}:ShapeKey",)),
        field_("state"),
        reader=UPSTREAM,
        needed_for="decode",
        since="0.5.23",
    ),
    *on(
        f"{PLUGIN}:BuiltMonokernels",
        method("forward", call=Call(4, ("pp_proxy_tensors",)), watched=True),
        reader=UPSTREAM,
        needed_for="decode",
        since="0.5.23",
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
        reader=UPSTREAM,
        needed_for="start-up",
        since="0.5.23",
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
        reader=UPSTREAM,
        needed_for="start-up",
        since="0.5.23",
    ),
)

_HOST = (
    *on(
        "sglang.srt.plugins",
        constant("GENERAL_PLUGINS_GROUP", value=("'sglang.srt.plugins'",), watched=True),
        function("load_plugins", call=Call(), watched=True),
        reader=UPSTREAM,
        needed_for="start-up",
    ),
    *on(
        "sglang.srt.model_executor.model_runner:ModelRunner",
        calls("load_model", steps=("post_load_model", "install_monokernel_forward", "load_kv_cache_scales")),
        reader=UPSTREAM,
        needed_for="start-up",
        since="0.5.23",
    ),
    *on(
        "sglang.srt.model_loader.loader:DefaultModelLoader",
        calls("load_weights_only", steps=("monokernel_weights_iterator", "model.load_weights")),
        reader=UPSTREAM,
        needed_for="weights",
        since="0.5.23",
    ),
    *on(
        _BINDING,
        function("device_isa", call=Call(), watched=True),
        function("deadline_s", call=Call(1), watched=True),
        function(
            "monokernel_disable_reasons",
            call=Call(keywords=("cfg", "model_config", "isa")),
            body={"0.5.23": "9f2b7a491e"},
            watched=True,
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
        reader=UPSTREAM,
        needed_for="start-up",
        since="0.5.23",
    ),
    *on(
        f"{_BINDING}:_CaptureCheck",
        method("__call__", call=Call(4), watched=True),
        reader=UPSTREAM,
        needed_for="start-up",
        since="0.5.23",
    ),
    *on(
        "sglang.srt.arg_groups.pipeline",
        calls(
            "run_resolution_pipeline",
            steps=("run_hook(handle_nvidia_megakernel)", "run_hook(handle_amd_monokernel)"),
            only_if="not cfg.model_path.lower() in ['none', 'dummy']",
        ),
        reader=UPSTREAM,
        needed_for="start-up",
        since="0.5.23",
    ),
    *on(
        "sglang.srt.model_executor.runner_utils.capture_mode",
        function("get_is_capture_mode", call=Call()),
        reader=UPSTREAM,
        needed_for="check mode",
    ),
    *on(
        "sglang.srt.distributed.parallel_state",
        function("get_tp_group", call=Call(), gives=("sglang.srt.distributed.parallel_state:GroupCoordinator",)),
        reader=UPSTREAM,
        needed_for="decode",
    ),
    *on(
        "sglang.srt.distributed.parallel_state:GroupCoordinator",
        *attributes("cpu_group", "rank_in_group", "world_size", only_if="self.rank in ranks"),
        method("barrier", call=Call()),
        reader=UPSTREAM,
        needed_for="decode",
    ),
    # on ROCm the scheduler waits for the whole replay before it writes the shared tables
    *on(
        "sglang.srt.layers.attention.base_attn_backend:AttentionBackend",
        method("shared_read_ends", call=Call(1), body={"0.5.21": "208f1103e3"}, watched=True),
        reader=UPSTREAM,
        needed_for="decode",
    ),
    *on(
        "sglang.srt.model_executor.runner.decode_cuda_graph_runner:DecodeCudaGraphRunner",
        method("_resolve_shared_read_ends", call=Call(2), body={"0.5.22": "1521c9c9b3"}, watched=True),
        reader=UPSTREAM,
        needed_for="decode",
    ),
    *on(
        "sglang.srt.distributed.device_communicators.custom_all_reduce",
        strings("dispatch_custom_allreduce", steps=("SGLANG_USE_AITER_AR",)),
        reader=UPSTREAM,
        needed_for="check mode",
    ),
)

_SETTINGS = (
    *on(
        f"{_FIELDS}.exec_:ExecKernel",
        field_("enable_amd_monokernel", value=("False",), since="0.5.23", watched=True),
        field_("decode_attention_backend", value=("None",), watched=True),
        reader=UPSTREAM,
        needed_for="start-up",
    ),
    *on(
        f"{_FIELDS}.exec_:ExecMamba",
        field_("mamba_ssm_dtype", value=("None",)),
        field_("linear_attn_backend", value=("'triton'",)),
        field_("linear_attn_decode_backend", value=("None",)),
        field_("enable_linear_replayssm", value=("False",)),
        field_("enable_linear_replayssm_spec", value=("False",)),
        reader=UPSTREAM,
        needed_for="start-up",
    ),
    *on(
        f"{_FIELDS}.model:Model",
        field_("startup_weight_load_mode", value=("'serial'",)),
        field_("kv_cache_dtype", value=("'auto'",)),
        reader=UPSTREAM,
        needed_for="start-up",
    ),
    *on(
        f"{_FIELDS}.memory:Memory",
        field_("enable_unified_memory", value=("False",)),
        field_("enable_unified_cache_external_linker", value=("False",)),
        field_("enable_hisparse", value=("False",)),
        field_("enable_hierarchical_cache", value=("False",), watched=True),
        reader=UPSTREAM,
        needed_for="start-up",
    ),
    *on(
        f"{_FIELDS}.disagg:Disagg",
        field_("disaggregation_decode_retraction_backup", value=("None",)),
        reader=UPSTREAM,
        needed_for="start-up",
    ),
    *on(
        f"{_FIELDS}.schedule:Schedule",
        field_("page_size", value=("None",)),
        reader=UPSTREAM,
        needed_for="start-up",
    ),
    *on(
        f"{_FIELDS}.observability:Observability",
        field_("kv_canary", value=("'none'",)),
        reader=UPSTREAM,
        needed_for="start-up",
    ),
    *on(
        f"{_FIELDS}.spec:Spec",
        field_("speculative_algorithm", value=("None",), watched=True),
        field_("speculative_eagle_topk", value=("None",)),
        field_("speculative_num_draft_tokens", value=("None",)),
        reader=UPSTREAM,
        needed_for="verify",
    ),
    *on(
        f"{_FIELDS}.device:Device",
        field_("watchdog_timeout", value=("300",), watched=True),
        reader=UPSTREAM,
        needed_for="start-up",
    ),
    *on(
        "sglang.srt.environ:Envs",
        class_attribute("SGLANG_PLUGINS", value=("EnvStr('')",), watched=True),
        class_attribute("SGLANG_RAGGED_VERIFY_MODE", value=("EnvStr('static')",), watched=True),
        class_attribute("SGLANG_MAMBA_SSM_DTYPE", value=("EnvStr(None)",), watched=True),
        class_attribute("SGLANG_MAMBA_CONV_DTYPE", value=("EnvStr('bfloat16')",), watched=True),
        class_attribute("SGLANG_USE_1STAGE_ALLREDUCE", value=("EnvBool(False)",), watched=True),
        class_attribute("SGLANG_ENABLE_DETERMINISTIC_INFERENCE", value=("EnvBool(False)",), watched=True),
        reader=UPSTREAM,
        needed_for="start-up",
    ),
)

_STEP = (
    *on(
        f"{_FORWARD_BATCH}:ForwardBatch",
        field_("forward_mode", gives=(f"{_FORWARD_BATCH}:ForwardMode",)),
        *fields_("batch_size", "input_ids", "req_pool_indices", "seq_lens", "seq_lens_cpu", "out_cache_loc"),
        *fields_("positions", "mrope_positions", "num_token_non_padded"),
        field_("out_cache_loc_is_physical", since="0.5.22"),
        property_("logical_forward_mode", since="0.5.23", gives=(f"{_FORWARD_BATCH}:ForwardMode",)),
        reader=UPSTREAM,
        needed_for="decode",
    ),
    *on(
        f"{_FORWARD_BATCH}:ForwardBatch",
        *fields_("mamba_track_indices", "mamba_track_mask"),
        reader=UPSTREAM,
        needed_for="prefix cache",
    ),
    *on(
        f"{_FORWARD_BATCH}:ForwardBatch",
        field_("spec_info", gives=("sglang.srt.speculative.eagle_info:EagleVerifyInput",)),
        field_("spec_algorithm"),
        reader=UPSTREAM,
        needed_for="verify",
    ),
    *on(
        f"{_FORWARD_BATCH}:ForwardBatch",
        field_("capture_hidden_mode", gives=(f"{_FORWARD_BATCH}:CaptureHiddenMode",)),
        field_("next_token_logits_buffer"),
        field_("aux_hidden_states_buffer", since="0.5.22"),
        field_("residual_stream"),
        reader=UPSTREAM,
        needed_for="hidden states",
    ),
    *on(
        f"{_FORWARD_BATCH}:ForwardMode",
        *(enum_member(name) for name in ("DECODE", "TARGET_VERIFY", "IDLE")),
        *(
            method(name, call=Call())
            for name in ("is_decode", "is_target_verify", "is_decode_or_idle", "is_idle", "is_extend")
        ),
        reader=UPSTREAM,
        needed_for="decode",
    ),
    *on(
        f"{_FORWARD_BATCH}:CaptureHiddenMode",
        *(enum_member(name) for name in ("NULL", "LAST", "FULL")),
        reader=UPSTREAM,
        needed_for="hidden states",
    ),
    *on(
        "sglang.srt.speculative.eagle_info:EagleVerifyInput",
        *fields_("draft_token_num", "topk", "capture_hidden_mode", "custom_mask"),
        class_attribute("ragged_verify_layout", declared_on="SpecInput"),
        reader=UPSTREAM,
        needed_for="verify",
    ),
    *on(
        f"{_LOGITS}:LogitsProcessorOutput",
        class_(call=Call(keywords=("next_token_logits", "hidden_states", "last_hidden_states"))),
        *fields_("next_token_logits", "hidden_states", "full_logits", "mm_input_embeds"),
        field_("last_hidden_states", since="0.5.23"),
        reader=UPSTREAM,
        needed_for="hidden states",
    ),
    *on(
        f"{_LOGITS}:LogitsProcessor",
        method("forward", call=Call(5)),
        *attributes("do_tensor_parallel_all_gather", "use_attn_tp_group"),
        attribute("defer_verify_gather", since="0.5.23"),
        reader=UPSTREAM,
        needed_for="decode",
    ),
)

_CHAIN = (
    *on(
        _CONTEXT,
        function(
            "get_attn_backend",
            call=Call(),
            gives=(f"{_HYBRID}:HybridLinearAttnBackend",),
            body={"0.5.21": "4f1636f7df"},
        ),
        function(
            "get_token_to_kv_pool", call=Call(), gives=(f"{_POOL}:HybridLinearKVPool",), body={"0.5.21": "86cd43cc08"}
        ),
        function(
            "get_req_to_token_pool",
            call=Call(),
            gives=(f"{_POOL}:HybridReqToTokenPool",),
            body={"0.5.21": "cb9b974cc4"},
            profile=REQUEST_TABLE.name,
        ),
        reader=UPSTREAM,
        needed_for="decode",
    ),
    *on(
        f"{_HYBRID}:HybridLinearAttnBackend",
        method("update_mamba_state_after_mtp_verify", body={"0.5.23": "57dc1a3af9"}, watched=True),
        reader=UPSTREAM,
        needed_for="verify",
    ),
    *on(
        "sglang.srt.layers.attention.linear.utils",
        function(
            "select_verify_intermediate_state_indices", since="0.5.22", body={"0.5.22": "950f2ffc3b"}, watched=True
        ),
        reader=UPSTREAM,
        needed_for="verify",
    ),
    *on(
        "sglang.srt.layers.attention.mamba.mamba2_metadata:ForwardMetadata",
        *fields_("query_start_loc", "mamba_cache_indices"),
        field_("replayssm_write_pos"),
        reader=UPSTREAM,
        needed_for="decode",
    ),
    *on(
        "sglang.srt.layers.attention.mamba.mamba2_metadata:ForwardMetadata",
        *fields_("mamba_track_indices", "has_mamba_track_mask"),
        reader=UPSTREAM,
        needed_for="prefix cache",
    ),
    *on(
        "sglang.srt.layers.attention.mamba.mamba2_metadata:ForwardMetadata",
        *fields_("retrieve_parent_token", "retrieve_next_token", "retrieve_next_sibling"),
        *fields_("is_target_verify", "draft_token_num"),
        reader=UPSTREAM,
        needed_for="verify",
    ),
)

_STATE = (
    *on(
        f"{_POOL}:HybridReqToTokenPool",
        class_(
            holds_for=(f"{_POOL}:HybridReqToTokenPool",),
            not_served=(
                "sglang.srt.disaggregation.decode:HybridMambaDecodeReqToTokenPool",
                "sglang.srt.mem_cache.unified_memory_pool:UnifiedHybridReqToTokenPool",
            ),
        ),
        attribute("req_to_token", declared_on="ReqToTokenPool"),
        attribute("size", declared_on="ReqToTokenPool"),
        attribute("req_index_to_mamba_index_mapping"),
        method("get_mamba_indices", call=Call(1), body={"0.5.21": "34ecd1cb7c"}),
        method("translate_mamba_indices", call=Call(1), body={"0.5.21": "d7735e698c"}, watched=True),
        reader=UPSTREAM,
        needed_for="decode",
    ),
    *on(
        f"{_POOL}:HybridReqToTokenPool",
        method(
            "mamba2_layer_cache",
            call=Call(1),
            gives=(f"{_POOL}:MambaPool.State",),
            references=("mamba2_layer_index",),
            body={"0.5.21": "15345ff575"},
            replaced_by="the linear-attention backend's state_layer_cache",
        ),
        method(
            "mamba2_layer_index",
            call=Call(1),
            references=("mamba_map",),
            body={"0.5.21": "bd6b20abbb"},
            replaced_by="the layer router",
        ),
        attribute("mamba_map"),
        attribute("mamba_pool", gives=(f"{_POOL}:MambaPool",)),
        null_attribute(
            "layer_transfer_counter",
            set_by=("register_layer_transfer_counter",),
            replaced_by="the KV pool's layer_transfer_counter",
        ),
        reader=UPSTREAM,
        needed_for="decode",
        profile=REQUEST_TABLE.name,
    ),
    *on(
        f"{_POOL}:HybridReqToTokenPool",
        method(
            "get_speculative_mamba2_params_all_layers",
            call=Call(),
            gives=(f"{_POOL}:MambaPool.SpeculativeState",),
            replaced_by="the state pool's own method",
        ),
        reader=UPSTREAM,
        needed_for="verify",
        profile=REQUEST_TABLE.name,
    ),
    *on(
        f"{_POOL}:MambaPool.State",
        *fields_("conv", "temporal"),
        field_("replayssm_d"),
        method("at_layer_idx", call=Call(1)),
        reader=UPSTREAM,
        needed_for="decode",
    ),
    *on(
        f"{_POOL}:MambaPool.SpeculativeState",
        *fields_("conv", "temporal", declared_on="MambaPool.State"),
        *fields_("intermediate_ssm", "intermediate_conv_window"),
        reader=UPSTREAM,
        needed_for="verify",
    ),
    *on(
        f"{_POOL}:MambaPool",
        attribute("mamba_cache", gives=(f"{_POOL}:MambaPool.State",)),
        *attributes("num_mamba_layers", "mamba_layer_ids", "size"),
        method("__init__", body={"0.5.22": "ac3b11b094"}, watched=True),
        reader=UPSTREAM,
        needed_for="decode",
    ),
    *on(
        f"{_POOL}:HybridLinearKVPool",
        attribute("full_attention_layer_id_mapping"),
        method("_transfer_full_attention_id", call=Call(1)),
        *attributes("page_size", "size", "dtype"),
        null_attribute(
            "layer_transfer_counter",
            set_by=("register_layer_transfer_counter",),
            gives=("sglang.srt.managers.cache_controller:LayerDoneCounter",),
        ),
        attribute("layer_router", profile=LAYER_ROUTER.name, since=CHANGE, gives=("*:KVLayerRouter",)),
        reader=UPSTREAM,
        needed_for="decode",
    ),
    *on(
        "*:KVLayerRouter",
        method("read", call=Call(2)),
        reader=UPSTREAM,
        needed_for="decode",
        profile=LAYER_ROUTER.name,
        since=CHANGE,
    ),
    *on(
        "sglang.srt.managers.cache_controller:LayerDoneCounter",
        attribute("consumer_index"),
        method("wait_until", call=Call(1), body={"0.5.21": "14dfea9e1e"}, watched=True),
        reader=UPSTREAM,
        needed_for="decode",
    ),
)

ROWS = (*_PLUGIN_CONTRACT, *_HOST, *_SETTINGS, *_STEP, *_CHAIN, *_STATE)


def hybrid_backend(*, linear: str, full: str, pool: str, reader: str) -> tuple[Row, ...]:
    """The rows of a model's backends and KV pool, whose classes only the model knows.

    Parameters
    ----------
    linear, full: paths of the linear-attention and full-attention backend classes
    pool: path of the class of `HybridLinearKVPool.full_kv_pool`
    reader: our file that reads them
    """
    base = "MambaAttnBackendBase"
    return (
        *on(
            f"{_HYBRID}:HybridLinearAttnBackend",
            attribute("linear_attn_backend", gives=(linear,)),
            attribute("full_attn_backend", gives=(full,)),
            attribute("token_to_kv_pool", gives=(f"{_POOL}:HybridLinearKVPool",)),
            attribute("req_to_token_pool", gives=(f"{_POOL}:HybridReqToTokenPool",)),
            attribute("full_attn_layers"),
            reader=reader,
            needed_for="decode",
        ),
        *on(
            linear,
            null_attribute(
                "forward_metadata",
                declared_on=base,
                set_by=("init_forward_metadata", "init_forward_metadata_out_graph"),
                gives=("sglang.srt.layers.attention.mamba.mamba2_metadata:ForwardMetadata",),
            ),
            *attributes("state_indices_list", "query_start_loc_list", "pad_slot_id", declared_on=base),
            attribute("conv_states_shape"),
            attribute("req_to_token_pool", declared_on=base, gives=(f"{_POOL}:HybridReqToTokenPool",)),
            method(
                "state_layer_cache",
                call=Call(1),
                declared_on=base,
                profile=LAYER_ROUTER.name,
                since=CHANGE,
                gives=(f"{_POOL}:MambaPool.State",),
            ),
            attribute("state_pool", declared_on=base, profile=LAYER_ROUTER.name, since=CHANGE),
            reader=reader,
            needed_for="decode",
        ),
        *on(
            linear,
            null_attribute("mamba_track_indices_buf", declared_on=base, set_by=("init_cuda_graph_state",)),
            method(
                "_track_mamba_state_decode", declared_on=base, call=Call(5), body={"0.5.21": "c5d54e9961"}, watched=True
            ),
            reader=reader,
            needed_for="prefix cache",
        ),
        *on(
            linear,
            attribute("verify_intermediate_state_indices"),
            reader=reader,
            needed_for="verify",
        ),
        *on(
            f"{_POOL}:HybridLinearKVPool",
            attribute("full_kv_pool", gives=(pool,)),
            reader=reader,
            needed_for="decode",
        ),
    )
