"""What GLM-5.3-Flash reads of SGLang beyond what both models read: KDA state, sparse MLA caches, modules."""

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
    late_attribute,
    method,
    null_attribute,
    on,
    property_,
)
from sgl_amd_mono.reads import CHANGE, LAYER_ROUTER, REQUEST_TABLE, ROWS, hybrid_backend
from sgl_amd_mono.reads_host import PLUGIN, UPSTREAM

_POOL = "sglang.srt.mem_cache.memory_pool"
_KDA = "sglang.srt.layers.attention.linear.kda_backend:KDAAttnBackend"
_DSA = "sglang.srt.layers.attention.dsa_backend:DeepseekSparseAttnBackend"
_MODEL = "sglang.srt.models.glm5_next"

BIND = "models/glm53_flash/bind.py"

_BACKENDS = fill(
    *hybrid_backend(linear=_KDA, full=_DSA, pool=f"{_POOL}:DSATokenToKVPool", reader=UPSTREAM),
    *on(
        "sglang.srt.layers.attention.attention_registry",
        calls(
            "attn_backend_wrapper",
            steps=("KDAAttnBackend",),
            only_if="glm5_next_config(runner.model_config) is not None",
        ),
    ),
    *on(
        _KDA,
        class_(
            watched=True,
            not_served=("sglang.srt.hardware_backend.npu.attention.ascend_kda_backend:AscendKDAAttnBackend",),
        ),
        method("forward_decode", body={"0.5.23": "9c7e8efcd7"}, watched=True),
    ),
    *on(
        _KDA,
        method("_forward_target_verify", body={"0.5.22": "ff20808110"}, watched=True),
        needed_for="verify",
    ),
    *on(
        _DSA,
        class_(watched=True, holds_for=(_DSA,)),
        null_attribute(
            "forward_metadata",
            set_by=("init_forward_metadata", "_build_forward_metadata_cuda_graph", "_apply_cuda_graph_metadata"),
            gives=("sglang.srt.layers.attention.dsa_backend:DSAMetadata",),
        ),
        late_attribute("decode_cuda_graph_metadata", set_by=("init_cuda_graph_state",)),
        *attributes("req_to_token", "dsa_index_topk", "dsa_index_kpool", "dsa_decode_impl", "use_fused_topk"),
        *attributes("kv_cache_dim", "max_context_len", "hisparse_coordinator", "speculative_num_draft_tokens"),
        attribute("physical_page_size", since="0.5.22"),
        method("forward_decode", body={"0.5.21": "08c22f3a3f"}, watched=True),
        watched=True,
    ),
    *on(
        "sglang.srt.layers.attention.hybrid_linear_attn_backend:HybridLinearAttnBackend",
        method("get_indexer_metadata", call=Call(2), watched=True),
    ),
    *on(
        "sglang.srt.layers.attention.dsa_backend:DSAMetadata",
        *fields_("page_size", "cache_seqlens_int32", "page_table_1", "real_page_table", "dsa_cache_seqlens_int32"),
        *fields_("dsa_seqlens_expanded", "cu_seqlens_q", "max_seq_len_k", "topk_indices_offset"),
        *fields_("pooled_index_kpool", "pooled_cache_seqlens_int32", "pooled_real_page_table"),
        field_("kpool_write_plan", gives=("sglang.srt.layers.attention.dsa.kpool_plan:KPoolWritePlan",)),
        field_("indexer_logical_page_table", since="0.5.23"),
        watched=True,
    ),
    *on(
        "sglang.srt.layers.attention.dsa.kpool_plan:KPoolWritePlan",
        *fields_("req", "write_start", "tail_logical_start", "write_loc"),
        *fields_("num_draft_tokens", "pool_seqlens_per_q", "seqlens_per_q"),
        watched=True,
    ),
    *on(
        "sglang.srt.layers.attention.dsa.dsa_indexer_kpool:IndexerKPool",
        method("_compress_write_decode", body={"0.5.21": "1ffb5365bc"}, watched=True),
        method("_get_topk_paged", body={"0.5.23": "d2dd2857ba"}, watched=True),
    ),
    *on(
        "sglang.srt.layers.attention.dsa.dsa_indexer_kpool:IndexerKPool",
        method("_forward_cuda_target_verify", body={"0.5.21": "1d0bf544b6"}, watched=True),
        needed_for="verify",
    ),
    reader=BIND,
    needed_for="decode",
)

_CACHES = fill(
    *on(
        f"{_POOL}:HybridLinearKVPool",
        method("get_key_buffer", call=Call(1), references=("_wait_for_layer",), body={"0.5.21": "09f731119d"}),
        # the two that wait for HiCache, and the one that does not
        method("get_index_k_with_scale_buffer", call=Call(1), references=("_wait_for_layer",)),
        method("get_compress_tail_buffers", call=Call(1), avoids=("_wait_for_layer", "layer_transfer_counter")),
        attribute("use_dsa"),
        property_("kv_cache_dim", watched=True),
        property_("index_kpool"),
        property_("index_page_size", since="0.5.22", watched=True),
    ),
    *on(
        f"{_POOL}:DSATokenToKVPool",
        class_(
            watched=True,
            not_served=(
                "sglang.srt.mem_cache.hisparse_memory_pool:HiSparseDSATokenToKVPool",
                "sglang.srt.mem_cache.dsa_cache_layer_split:LayerSplitDSATokenToKVPool",
                "sglang.srt.mem_cache.page_interleave_pool:PageInterleaveDSATokenToKVPool",
            ),
        ),
        attribute("kv_buffer", declared_on="MLATokenToKVPool", deleted_by=("_clear_buffers",)),
        *attributes("data_ptrs", "kv_cache_dim", "kv_lora_rank", "qk_rope_head_dim", declared_on="MLATokenToKVPool"),
        *attributes("page_size", "dtype", "store_dtype", "start_layer", declared_on="KVCache"),
        method("get_key_buffer", call=Call(1), declared_on="MLATokenToKVPool", body={"0.5.21": "dfe1624cb7"}),
        attribute("index_key_cache", gives=("sglang.srt.mem_cache.index_key_cache:IndexKeyCache",)),
        property_("index_k_with_scale_buffer"),
        method("get_index_k_with_scale_buffer", call=Call(1)),
        method("get_compress_tail_buffers", call=Call(1), body={"0.5.21": "be91ab14f7"}),
        *(
            attribute(name, only_if="self.kpool_use_compress", deleted_by=("_clear_buffers",))
            for name in ("_compress_tail_k", "_compress_tail_score")
        ),
        *attributes("index_kpool", "index_kpool_compress", "tail_extra_slots", "index_head_dim"),
        *attributes("skip_topk_layers", "kpool_use_compress", "index_buf_size"),
        attribute("index_page_size", since="0.5.22"),
        class_attribute("quant_block_size", value=("128",)),
        watched=True,
    ),
    *on(
        f"{_POOL}:MLATokenToKVPool",
        method("_create_buffers", body={"0.5.21": "30a95c737f"}, watched=True),
    ),
    *on(
        "sglang.srt.mem_cache.index_key_cache:IndexKeyCache",
        attribute("buffer", deleted_by=("clear",)),
        method("get_buffer", call=Call(1)),
        method("get_local_buffer", call=Call(1)),
        method("_kernel_view", since="0.5.22", body={"0.5.22": "e6513e2727"}, watched=True),
        method("_buffer_shape", body={"0.5.22": "8fc0db843b"}, watched=True),
        watched=True,
    ),
    reader=BIND,
    needed_for="decode",
)

_CONFIG = fill(
    *on(
        "sglang.srt.configs.glm5_next:Glm5NextConfig",
        attribute("text_config", gives=("sglang.srt.configs.glm5_next:Glm5NextTextConfig",)),
    ),
    *on(
        "sglang.srt.configs.glm5_next:Glm5NextTextConfig",
        *attributes("hidden_size", "linear_attn_config", "mhc"),
    ),
    reader=BIND,
    needed_for="start-up",
)

_PRESENT = "not self.encoder_only"
_FUSED = "self.do_fuse_qkvbfg"

_MODULES = fill(
    *on(
        f"{_MODEL}:Glm5NextForConditionalGeneration",
        method(
            "forward", call=Call(3, ("input_embeds", "pp_proxy_tensors")), body={"0.5.22": "ff8434301b"}, watched=True
        ),
        method("load_weights", body={"0.5.22": "6435a78c6f"}, watched=True),
        attribute("model", only_if=_PRESENT, gives=(f"{_MODEL}:Glm5NextModel",)),
        attribute("lm_head", only_if=_PRESENT, watched=True),
        attribute(
            "logits_processor",
            only_if=_PRESENT,
            gives=("sglang.srt.layers.logits_processor:LogitsProcessor",),
            watched=True,
        ),
        *attributes("capture_aux_hidden_states"),
        *attributes("is_mrope_enabled", "num_fused_shared_experts", "config", "pp_group", watched=True),
    ),
    *on(
        f"{_MODEL}:Glm5NextModel",
        attribute("layers", gives=(f"{_MODEL}:Glm5NextDecoderLayer",)),
        *attributes("start_layer", "end_layer"),
        *attributes("embed_tokens", "norm", watched=True),
        method("forward", body={"0.5.22": "6678ac4d79"}, watched=True),
    ),
    *on(
        f"{_MODEL}:Glm5NextModel",
        *attributes("layers_to_capture", "dflash_capture"),
        needed_for="hidden states",
        watched=True,
    ),
    *on(
        f"{_MODEL}:Glm5NextDecoderLayer",
        attribute(
            "self_attn",
            gives=(f"{_MODEL}:Glm5NextLinearAttention", "sglang.srt.models.deepseek_v2:DeepseekV2AttentionMLA"),
        ),
        *attributes("mlp", "input_layernorm", "post_attention_layernorm", watched=True),
        *attributes("is_linear_attn", "layer_id"),
        *attributes("is_layer_sparse", watched=True),
        *(
            attribute(f"hc_{half}_{part}", only_if="self.config.mhc", watched=True)
            for half in ("attn", "ffn")
            for part in ("fn", "scale", "base")
        ),
    ),
    *on(
        f"{_MODEL}:Glm5NextLinearAttention",
        *attributes("do_fuse_qkvbfg", "fuse_bfg"),
        *attributes("local_num_heads", watched=True),
        *attributes("fused_qkvbfg_a_proj", only_if=_FUSED),
        *attributes("split_sizes", only_if=_FUSED, watched=True),
        attribute("fused_fg_b_proj", only_if=f"{_FUSED} or self.fuse_bfg"),
        attribute("fused_bfg_a_proj", only_if=f"not {_FUSED} and self.fuse_bfg"),
        attribute("qkv_proj", only_if=f"not {_FUSED}"),
        *attributes(
            "b_proj", "f_a_proj", "g_a_proj", "f_b_proj", "g_b_proj", only_if=f"not {_FUSED} and not self.fuse_bfg"
        ),
        *attributes("A_log", "dt_bias", "o_norm", "o_proj"),
        *attributes("qkv_conv1d", watched=True),
        attribute("attn", gives=("sglang.srt.layers.radix_linear_attention:RadixLinearAttention",)),
        method("_can_fuse_proj", body={"0.5.22": "28241e12cd"}, watched=True),
        method("__init__", body={"0.5.23": "90c0afb068"}, watched=True),
    ),
    *on(
        "sglang.srt.layers.radix_linear_attention:RadixLinearAttention",
        *attributes("lower_bound"),
        *attributes("layer_id", "A_log", "dt_bias", "num_v_heads", "head_v_dim", "q_dim", watched=True),
        *attributes("conv_weights", "bias", "activation"),
    ),
    reader=BIND,
    needed_for="weights",
)

CONTRACT = Contract(
    model="glm53_flash",
    architecture="Glm5NextForConditionalGeneration",
    plugin=PLUGIN,
    probe=Probe(_KDA, "state_layer_cache", CHANGE, present=LAYER_ROUTER, absent=REQUEST_TABLE),
    rows=(*ROWS, *_BACKENDS, *_CACHES, *_CONFIG, *_MODULES),
)
