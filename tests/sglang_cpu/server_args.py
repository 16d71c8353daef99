"""Arguments of SGLang that GLM-5.3-Flash needs on a CPU."""

from __future__ import annotations

from typing import Any


def cpu_server_args() -> dict[str, Any]:
    """Fields of ServerArgs that GLM-5.3-Flash needs on a CPU, and small pools."""
    return {
        "device": "cpu",
        "attention_backend": "triton",
        "disable_cuda_graph": True,
        "disable_overlap_schedule": True,
        # the default keeps states for reuse in a way that asserts a GPU
        "disable_radix_cache": True,
        # it would read a preprocessor's configuration
        "enable_multimodal": False,
        "skip_tokenizer_init": True,
        "skip_server_warmup": True,
        "max_running_requests": 8,
        "max_total_tokens": 8192,
        "mem_fraction_static": 0.5,
        "watchdog_timeout": 600.0,
    }
