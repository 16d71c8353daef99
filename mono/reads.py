"""What both models read of SGLang in a step: its inputs, the backends, the pools and their state.

`since` is the oldest of the releases 0.5.21 to 0.5.23 that has the name. Rows since PR #46980 state what its
description says: no release has it, so they are not verified against its code.
"""

from __future__ import annotations

from sgl_amd_mono.check.rows import (
    Call,
    Profile,
    Row,
    attribute,
    attributes,
    class_,
    class_attribute,
    enum_member,
    field_,
    fields_,
    fill,
    function,
    method,
    null_attribute,
    on,
    property_,
)
from sgl_amd_mono.reads_host import HOST_ROWS, UPSTREAM

_FORWARD_BATCH = "sglang.srt.model_executor.forward_batch_info"
_CONTEXT = "sglang.srt.model_executor.forward_context"
_POOL = "sglang.srt.mem_cache.memory_pool"
_HYBRID = "sglang.srt.layers.attention.hybrid_linear_attn_backend"
_LOGITS = "sglang.srt.layers.logits_processor"
_NPU = "sglang.srt.hardware_backend.npu"

# SGLang #46980 moves the recurrent state behind the linear-attention backend and the KV pool's layer router
REQUEST_TABLE = Profile("request table", "the request table's mamba2_layer_cache")
LAYER_ROUTER = Profile("layer router", "the linear-attention backend's state_layer_cache")
CHANGE = "PR #46980"

_STEP = fill(
    *on(
        f"{_FORWARD_BATCH}:ForwardBatch",
        field_("forward_mode", gives=(f"{_FORWARD_BATCH}:ForwardMode",), watched=True),
        *fields_("req_pool_indices", "out_cache_loc"),
        *fields_("batch_size", "input_ids", "seq_lens", "seq_lens_cpu", watched=True),
        *fields_("positions", "mrope_positions", "num_token_non_padded", watched=True),
        field_("out_cache_loc_is_physical", since="0.5.22", watched=True),
        property_("logical_forward_mode", since="0.5.23", gives=(f"{_FORWARD_BATCH}:ForwardMode",), watched=True),
    ),
    *on(
        f"{_FORWARD_BATCH}:ForwardBatch",
        *fields_("mamba_track_mask"),
        *fields_("mamba_track_indices", watched=True),
        needed_for="prefix cache",
    ),
    *on(
        f"{_FORWARD_BATCH}:ForwardBatch",
        field_("spec_info", gives=("sglang.srt.speculative.eagle_info:EagleVerifyInput",)),
        field_("spec_algorithm"),
        needed_for="verify",
        watched=True,
    ),
    *on(
        f"{_FORWARD_BATCH}:ForwardBatch",
        field_("capture_hidden_mode", gives=(f"{_FORWARD_BATCH}:CaptureHiddenMode",)),
        field_("next_token_logits_buffer"),
        field_("aux_hidden_states_buffer", since="0.5.22"),
        field_("residual_stream"),
        needed_for="hidden states",
        watched=True,
    ),
    *on(
        f"{_FORWARD_BATCH}:ForwardMode",
        *(enum_member(name) for name in ("DECODE", "TARGET_VERIFY", "IDLE")),
        *(
            method(name, call=Call())
            for name in ("is_decode", "is_target_verify", "is_decode_or_idle", "is_idle", "is_extend")
        ),
        watched=True,
    ),
    *on(
        f"{_FORWARD_BATCH}:CaptureHiddenMode",
        *(enum_member(name) for name in ("NULL", "LAST", "FULL")),
        needed_for="hidden states",
        watched=True,
    ),
    *on(
        "sglang.srt.speculative.eagle_info:EagleVerifyInput",
        *fields_("draft_token_num", "topk", "capture_hidden_mode", "custom_mask"),
        class_attribute("ragged_verify_layout", declared_on="SpecInput"),
        needed_for="verify",
        watched=True,
    ),
    *on(
        f"{_LOGITS}:LogitsProcessorOutput",
        class_(call=Call(keywords=("next_token_logits", "hidden_states", "last_hidden_states"))),
        *fields_("next_token_logits"),
        *fields_("hidden_states", "full_logits", "mm_input_embeds", watched=True),
        field_("last_hidden_states", since="0.5.23", watched=True),
        needed_for="hidden states",
    ),
    *on(
        f"{_LOGITS}:LogitsProcessor",
        method("forward", call=Call(5)),
        *attributes("do_tensor_parallel_all_gather", "use_attn_tp_group"),
        attribute("defer_verify_gather", since="0.5.23"),
        watched=True,
    ),
    reader=UPSTREAM,
    needed_for="decode",
)

_CHAIN = fill(
    *on(
        _CONTEXT,
        function(
            "get_attn_backend",
            call=Call(),
            gives=(f"{_HYBRID}:HybridLinearAttnBackend",),
            body={"0.5.21": "4f1636f7df"},
        ),
        function(
            "get_token_to_kv_pool",
            call=Call(),
            gives=(f"{_POOL}:HybridLinearKVPool",),
            body={"0.5.21": "86cd43cc08"},
            watched=True,
        ),
        function(
            "get_req_to_token_pool",
            call=Call(),
            gives=(f"{_POOL}:HybridReqToTokenPool",),
            body={"0.5.21": "cb9b974cc4"},
            profile=REQUEST_TABLE.name,
            watched=True,
        ),
    ),
    *on(
        f"{_HYBRID}:HybridLinearAttnBackend",
        class_(
            watched=True,
            not_served=(
                f"{_HYBRID}:ShortConvHybridAttnBackend",
                "sglang.srt.layers.attention.linear.inkling_sconv_backend:InklingShortConvHybridAttnBackend",
                f"{_NPU}.attention.ascend_hybrid_linear_attn_backend:AscendHybridLinearAttnBackend",
            ),
        ),
        method("update_mamba_state_after_mtp_verify", body={"0.5.23": "57dc1a3af9"}, watched=True),
        needed_for="verify",
    ),
    *on(
        "sglang.srt.layers.attention.linear.utils",
        function(
            "select_verify_intermediate_state_indices", since="0.5.22", body={"0.5.22": "950f2ffc3b"}, watched=True
        ),
        needed_for="verify",
    ),
    *on(
        "sglang.srt.layers.attention.mamba.mamba2_metadata:ForwardMetadata",
        *fields_("mamba_cache_indices"),
        *fields_("query_start_loc", watched=True),
        field_("replayssm_write_pos", watched=True),
    ),
    *on(
        "sglang.srt.layers.attention.mamba.mamba2_metadata:ForwardMetadata",
        *fields_("mamba_track_indices"),
        *fields_("has_mamba_track_mask", watched=True),
        needed_for="prefix cache",
    ),
    *on(
        "sglang.srt.layers.attention.mamba.mamba2_metadata:ForwardMetadata",
        *fields_("retrieve_parent_token", "retrieve_next_token", "retrieve_next_sibling"),
        *fields_("is_target_verify", "draft_token_num"),
        needed_for="verify",
        watched=True,
    ),
    reader=UPSTREAM,
    needed_for="decode",
)

_STATE = fill(
    *on(
        f"{_POOL}:HybridReqToTokenPool",
        class_(
            watched=True,
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
        watched=True,
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
            watched=True,
        ),
        attribute("mamba_map", watched=True),
        attribute("mamba_pool", gives=(f"{_POOL}:MambaPool",), watched=True),
        null_attribute(
            "layer_transfer_counter",
            set_by=("register_layer_transfer_counter",),
            replaced_by="the KV pool's layer_transfer_counter",
            watched=True,
        ),
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
        needed_for="verify",
        profile=REQUEST_TABLE.name,
        watched=True,
    ),
    *on(
        f"{_POOL}:MambaPool.State",
        *fields_("conv", "temporal"),
        field_("replayssm_d"),
        method("at_layer_idx", call=Call(1), watched=True),
    ),
    *on(
        f"{_POOL}:MambaPool.SpeculativeState",
        *fields_("conv", "temporal", declared_on="MambaPool.State"),
        *fields_("intermediate_ssm", "intermediate_conv_window"),
        needed_for="verify",
        watched=True,
    ),
    *on(
        f"{_POOL}:MambaPool",
        class_(
            watched=True,
            not_served=(
                "sglang.srt.mem_cache.unified_draft_pool:UnifiedDraftMambaPool",
                "sglang.srt.mem_cache.unified_memory_pool:UnifiedMambaPool",
            ),
        ),
        attribute("mamba_cache", gives=(f"{_POOL}:MambaPool.State",), watched=True),
        *attributes("num_mamba_layers", "mamba_layer_ids", "size", watched=True),
        method("__init__", body={"0.5.22": "ac3b11b094"}, watched=True),
    ),
    *on(
        f"{_POOL}:HybridLinearKVPool",
        class_(watched=True, not_served=("sglang.srt.mem_cache.unified_memory_pool:UnifiedHybridLinearKVPool",)),
        attribute("full_attention_layer_id_mapping"),
        method("_transfer_full_attention_id", call=Call(1), watched=True),
        *attributes("page_size"),
        *attributes("size", "dtype", watched=True),
        null_attribute(
            "layer_transfer_counter",
            set_by=("register_layer_transfer_counter",),
            gives=("sglang.srt.managers.cache_controller:LayerDoneCounter",),
        ),
        attribute("layer_router", profile=LAYER_ROUTER.name, since=CHANGE, gives=("*:KVLayerRouter",), watched=True),
        holds_for=(f"{_POOL}:HybridLinearKVPool", "sglang.srt.mem_cache.qsa_kv_pool:QSATokenToKVPool"),
    ),
    *on(
        "*:KVLayerRouter",
        method("read", call=Call(2)),
        profile=LAYER_ROUTER.name,
        since=CHANGE,
        watched=True,
    ),
    *on(
        "sglang.srt.managers.cache_controller:LayerDoneCounter",
        attribute("consumer_index"),
        method("wait_until", call=Call(1), body={"0.5.21": "14dfea9e1e"}, watched=True),
    ),
    reader=UPSTREAM,
    needed_for="decode",
)

ROWS = (*HOST_ROWS, *_STEP, *_CHAIN, *_STATE)


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
            attribute("full_attn_backend", gives=(full,), watched=True),
            attribute("token_to_kv_pool", gives=(f"{_POOL}:HybridLinearKVPool",)),
            attribute("req_to_token_pool", gives=(f"{_POOL}:HybridReqToTokenPool",)),
            attribute("full_attn_layers", watched=True),
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
            *attributes("state_indices_list", "query_start_loc_list", "pad_slot_id", declared_on=base, watched=True),
            attribute("conv_states_shape", watched=True),
            attribute("req_to_token_pool", declared_on=base, gives=(f"{_POOL}:HybridReqToTokenPool",)),
            method(
                "state_layer_cache",
                call=Call(1),
                declared_on=base,
                profile=LAYER_ROUTER.name,
                since=CHANGE,
                gives=(f"{_POOL}:MambaPool.State",),
            ),
            attribute("state_pool", declared_on=base, profile=LAYER_ROUTER.name, since=CHANGE, watched=True),
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
            watched=True,
        ),
        *on(
            linear,
            attribute("verify_intermediate_state_indices"),
            reader=reader,
            needed_for="verify",
            watched=True,
        ),
        *on(
            f"{_POOL}:HybridLinearKVPool",
            attribute("full_kv_pool", gives=(pool,)),
            reader=reader,
            needed_for="decode",
            watched=True,
        ),
    )
