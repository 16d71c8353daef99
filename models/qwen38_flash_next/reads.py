"""What Qwen3.8-Flash-Next reads of SGLang beyond what both models read: GDN and PLE state, sparse GQA, modules."""

from __future__ import annotations

from sgl_amd_mono.check.rows import (
    Call,
    Contract,
    Probe,
    attribute,
    attributes,
    calls,
    class_,
    class_attribute,
    field_,
    fields_,
    fill,
    function,
    method,
    null_attribute,
    on,
    property_,
    unset_attribute,
)
from sgl_amd_mono.reads import CHANGE, LAYER_ROUTER, REQUEST_TABLE, ROWS, hybrid_backend
from sgl_amd_mono.reads_host import PLUGIN, UPSTREAM

_POOL = "sglang.srt.mem_cache.memory_pool"
_GDN = "sglang.srt.layers.attention.linear.gdn_backend:GDNAttnBackend"
_QSA = "sglang.srt.layers.attention.qwen_sparse_attn_backend"
_KV_POOL = "sglang.srt.mem_cache.qsa_kv_pool:QSATokenToKVPool"
_PLE = "sglang.srt.mem_cache.ple_state_pool"
_MODEL = "sglang.srt.models.qwen4_exp"

# nothing of ours binds this model yet, so each of its rows is watched
BIND = ""

_BACKENDS = fill(
    *hybrid_backend(
        linear=_GDN, full=f"{_QSA}:QwenSparseAttnBackend", pool=f"{_POOL}:MHATokenToKVPool", reader=UPSTREAM
    ),
    *on(
        "sglang.srt.layers.attention.attention_registry",
        calls(
            "attn_backend_wrapper",
            steps=("GDNAttnBackend", "QwenSparseAttnBackend"),
            only_if="is_qwen_qsa(runner.model_config.hf_config)",
        ),
    ),
    *on(
        _GDN,
        class_(
            watched=True,
            not_served=("sglang.srt.hardware_backend.xpu.attention.xpu_gdn_backend:XpuGDNAttnBackend",),
        ),
        method("forward_decode", body={"0.5.22": "9e3d12e4b5"}, watched=True),
    ),
    *on(
        f"{_QSA}:QwenSparseAttnBackend",
        class_(watched=True, holds_for=(f"{_QSA}:QwenSparseAttnBackend",)),
        null_attribute(
            "forward_metadata",
            set_by=("init_forward_metadata", "_capture_cuda_graph_metadata", "_replay_cuda_graph_metadata"),
            gives=(f"{_QSA}:QwenSparseAttnMetadata",),
        ),
        attribute("token_to_kv_pool", gives=(_KV_POOL,)),
        attribute("req_to_token_pool", gives=(f"{_POOL}:HybridReqToTokenPool",)),
        *attributes("req_to_token", "qsa_profile", "compress_ratio", "max_context_len", "_cuda_graph_metadata"),
        method("get_indexer_metadata", call=Call(2)),
        watched=True,
    ),
    *on(
        f"{_QSA}:QwenSparseAttnBackend",
        method("set_mtp_shared_sparse_indices", watched=True),
        method("should_reuse_mtp_sparse_indices", watched=True),
        needed_for="verify",
    ),
    *on(
        f"{_QSA}:QwenSparseAttnMetadata",
        *fields_("sequence_lengths", "token_to_batch_idx", "token_slot_table"),
        field_("indexer_metadata", gives=("sglang.srt.layers.attention.qsa.metadata:QSAIndexerMetadata",)),
        *fields_("row_req_pool_indices", "is_cuda_graph"),
        watched=True,
    ),
    *on(
        "sglang.srt.layers.attention.qsa.metadata:QSAIndexerMetadata",
        *fields_("pending_ring_slots", "decode_logical_positions", "graph_write_locs", "graph_ring_group_locs"),
        *fields_("graph_compressed_page_table", "graph_compressed_lengths", "write_locs", "compress_group_ring_locs"),
        *fields_("decode_page_table", "decode_lengths", "block_topk", "compress_ratio", "req_pool_indices"),
        field_("defer_block_expansion", since="0.5.22"),
        method("get_decode_mqa_inputs", body={"0.5.21": "5f5d3b0940"}),
        watched=True,
    ),
    *on(
        "sglang.srt.layers.attention.hybrid_linear_attn_backend:HybridLinearAttnBackend",
        method("_update_ple_state_after_mtp_verify", body={"0.5.22": "786f852daf"}, watched=True),
        needed_for="verify",
    ),
    reader=BIND,
    needed_for="decode",
)

_CLEARED = ("_clear_buffers",)

_CACHES = fill(
    *on(
        _KV_POOL,
        class_(watched=True, holds_for=(_KV_POOL,)),
        *attributes("qsa_key_state_buffer_pool", "qsa_compressed_k_buffer_pool", "qsa_rope_position_buffer"),
        *attributes("qsa_compressed_flat", "qsa_compress_ratio", "qsa_block_topk", "qsa_compressed_page_size"),
        *attributes("qsa_compressed_capacity", "qsa_index_head_dim"),
        attribute("qsa_compressed_dtype", since="0.5.22"),
        class_attribute("index_state_dtype", value=("torch.bfloat16",)),
        method("get_qsa_key_state_buffer", call=Call(1), body={"0.5.21": "b261755ab8"}),
        method("get_qsa_compressed_k_buffer", call=Call(1), body={"0.5.22": "3d568d7fe9"}),
        attribute("full_kv_pool", declared_on="HybridLinearKVPool", gives=(f"{_POOL}:MHATokenToKVPool",)),
        method("get_key_buffer", declared_on="HybridLinearKVPool", call=Call(1)),
        method("get_value_buffer", declared_on="HybridLinearKVPool", call=Call(1)),
        null_attribute(
            "layer_transfer_counter", declared_on="HybridLinearKVPool", set_by=("register_layer_transfer_counter",)
        ),
        attribute("layer_router", declared_on="HybridLinearKVPool", profile=LAYER_ROUTER.name, since=CHANGE),
        watched=True,
    ),
    *on(
        f"{_POOL}:MHATokenToKVPool",
        class_(
            watched=True,
            not_served=(
                f"{_POOL}:MHATokenToKVPoolFP4",
                f"{_POOL}:MHATokenToKVPoolMXFP8",
                f"{_POOL}:NoOpMHATokenToKVPool",
                f"{_POOL}:PageMajorMHATokenToKVPool",
                "sglang.srt.hardware_backend.npu.memory_pool_npu:NPUMHATokenToKVPool",
                "sglang.srt.mem_cache.hisparse_memory_pool:HiSparseMHAMainPool",
                "sglang.srt.mem_cache.page_interleave_pool:PageInterleaveMHATokenToKVPool",
                "sglang.srt.mem_cache.unified_draft_pool:UnifiedDraftKVPool",
                "sglang.srt.mem_cache.unified_memory_pool:UnifiedMHATokenToKVPool",
            ),
        ),
        *attributes("k_buffer", "v_buffer", deleted_by=_CLEARED),
        method("get_key_buffer", call=Call(1), body={"0.5.21": "5f5369030a"}),
        *attributes("head_num", "head_dim", "store_dtype"),
        *attributes("dtype", "page_size", declared_on="KVCache"),
        property_("is_quantized_kv_cache"),
        watched=True,
    ),
    reader=BIND,
    needed_for="decode",
)

_SIDE_STATE = fill(
    *on(
        f"{_POOL}:HybridReqToTokenPool",
        method(
            "short_conv_layer_cache",
            call=Call(1),
            body={"0.5.21": "f3d0971648"},
            replaced_by="the layer router's short-conv part",
        ),
        method(
            "get_ngram_context",
            call=Call(1),
            body={"0.5.22": "e5f5e92528"},
            replaced_by="the layer router's N-gram part",
        ),
        method(
            "set_ngram_context", call=Call(2), body={"0.5.21": "c4da4fd2bb"}, replaced_by="the layer router's part_view"
        ),
        attribute("short_conv_pool", gives=(f"{_PLE}:ShortConvPool",), replaced_by="StateStorage"),
        attribute("ngram_pool", gives=(f"{_PLE}:NGramPool",), replaced_by="StateStorage"),
        unset_attribute("ple_window_cache"),
        profile=REQUEST_TABLE.name,
        watched=True,
    ),
    *on(
        f"{_POOL}:HybridReqToTokenPool",
        method(
            "short_conv_layer_intermediate_cache",
            call=Call(1),
            body={"0.5.21": "92781e942a"},
            replaced_by="the layer router's short-conv part",
        ),
        method(
            "set_ngram_intermediate_context",
            call=Call(1, ("indices",)),
            body={"0.5.22": "ce67ef0ce1"},
            replaced_by="the layer router's part_view",
        ),
        needed_for="verify",
        profile=REQUEST_TABLE.name,
        watched=True,
    ),
    *on(
        "*:KVLayerRouter",
        method("part_view"),
        profile=LAYER_ROUTER.name,
        since=CHANGE,
        watched=True,
    ),
    *on(
        f"{_PLE}:ShortConvPool",
        attribute("conv_state", only_if="not (not layer_ids or state_shape is None)"),
        attribute("layer_map"),
        method("layer_cache", call=Call(1)),
        property_("enabled"),
        watched=True,
    ),
    *on(
        f"{_PLE}:ShortConvPool",
        attribute(
            "intermediate_conv_state",
            only_if="not (not layer_ids or state_shape is None) and speculative_num_draft_tokens is not None",
        ),
        method("layer_intermediate_cache", call=Call(1)),
        needed_for="verify",
        watched=True,
    ),
    *on(
        f"{_PLE}:NGramPool",
        attribute("context", only_if="not context_len <= 0"),
        *attributes("context_len", "eos_token_id"),
        method("get_context", call=Call(1)),
        method("set_context", call=Call(2)),
        watched=True,
    ),
    *on(
        f"{_PLE}:NGramPool",
        attribute(
            "intermediate_context",
            only_if="not context_len <= 0 and speculative_num_draft_tokens is not None",
        ),
        method("set_intermediate_context"),
        needed_for="verify",
        watched=True,
    ),
    reader=BIND,
    needed_for="decode",
)

_VL = "Qwen3VLForConditionalGeneration"
_BASE = "Qwen3_5ForCausalLM"
_ATTENTION = "Qwen3_5AttentionDecoderLayer"
_EXTENSION = "Qwen4ExpLayerExtensionMixin"
_HAS_MODEL = "not hasattr(config, 'encoder_only') or not config.encoder_only"

_EXTENDED = (
    *attributes("attn_hyper_connection", "mlp_hyper_connection", declared_on=_EXTENSION),
    attribute(
        "ple", declared_on=_EXTENSION, only_if="_has_ple(layer_id, config)", gives=(f"{_MODEL}:Qwen4ExpPLELayer",)
    ),
)

_MODULES = fill(
    *on(
        f"{_MODEL}:Qwen4ExpForConditionalGeneration",
        method("forward", call=Call(3, ("get_embedding", "pp_proxy_tensors")), body={"0.5.21": "ecf0a948ac"}),
        method("load_weights", body={"0.5.21": "38c383a00c"}, watched=True),
        attribute("model", declared_on=_VL, only_if=_HAS_MODEL, gives=(f"{_MODEL}:Qwen4ExpVLModel",)),
        attribute("lm_head", declared_on=_VL, only_if=_HAS_MODEL),
        attribute("logits_processor", declared_on=_VL, gives=("sglang.srt.layers.logits_processor:LogitsProcessor",)),
        attribute("is_mrope_enabled"),
        *attributes("capture_aux_hidden_states", "use_deepstack", "language_model_only", declared_on=_VL),
        attribute("visual", declared_on=_VL, only_if="not self.language_model_only"),
        watched=True,
    ),
    *on(
        f"{_MODEL}:Qwen4ExpVLModel",
        attribute("layers", declared_on=_BASE),
        attribute("embed_tokens", declared_on=_BASE),
        *attributes("hyper_connection_mixer", "hc_count", "has_ple", declared_on="Qwen4ExpModel"),
        *attributes("ple_ngram_size", "ple_ngram_eos_token_id", declared_on="Qwen4ExpModel"),
        method("forward", body={"0.5.21": "b5690ae7e8"}, watched=True),
        watched=True,
    ),
    *on(
        f"{_MODEL}:Qwen4ExpVLModel",
        null_attribute("last_hc_hidden_states", set_by=("forward",)),
        needed_for="hidden states",
        watched=True,
    ),
    *on(
        f"{_MODEL}:Qwen4ExpAttentionDecoderLayer",
        attribute("indexer", only_if="self.is_qsa"),
        attribute("is_qsa"),
        *attributes("attn", "qkv_proj", "o_proj", "rotary_emb", "mlp", declared_on=_ATTENTION),
        *_EXTENDED,
        attribute("attn_boundary", declared_on=_EXTENSION, watched=True),
        watched=True,
    ),
    *on(
        f"{_MODEL}:Qwen4ExpLinearDecoderLayer",
        attribute(
            "linear_attn",
            declared_on="Qwen3_5LinearDecoderLayer",
            gives=("sglang.srt.models.qwen3_5:Qwen3_5GatedDeltaNet",),
        ),
        attribute("mlp", declared_on="Qwen3_5LinearDecoderLayer"),
        *_EXTENDED,
        watched=True,
    ),
    *on(
        f"{_MODEL}:Qwen4ExpPLELayer",
        attribute("ple_embedding", gives=(f"{_MODEL}:Qwen4ExpNGramEmbedding",)),
        *attributes("key_proj", "value_proj", "norm_key", "norm_query", "norm_conv", "conv1d"),
        *attributes("short_conv_dilation", "short_conv_state_len", "layer_id"),
        method("forward", body={"0.5.21": "577b3c7a32"}, watched=True),
        watched=True,
    ),
    *on(
        _MODEL,
        function("_prepare_ple_batch", body={"0.5.21": "8c1c00492c"}, watched=True),
        needed_for="decode",
    ),
    *on(
        f"{_MODEL}:Qwen4ExpNGramEmbedding",
        *attributes("layer_multipliers", "ngram_heads_vocab_sizes", "ngram_heads_offsets", "ngram_embedding"),
        *attributes("eos_token_id", "ngram_size", "heads_per_ngram", "enable_ple_fusion"),
        watched=True,
    ),
    *on(
        "sglang.srt.environ:Envs",
        class_attribute("SGLANG_ENABLE_QWEN4_PLE_FUSION", value=("EnvBool(True)",), watched=True),
    ),
    reader=BIND,
    needed_for="weights",
)

CONTRACT = Contract(
    model="qwen38_flash_next",
    architecture="Qwen4ExpForConditionalGeneration",
    plugin=PLUGIN,
    probe=Probe(_GDN, "state_layer_cache", CHANGE, present=LAYER_ROUTER, absent=REQUEST_TABLE),
    rows=(*ROWS, *_BACKENDS, *_CACHES, *_SIDE_STATE, *_MODULES),
)
