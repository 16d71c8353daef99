"""What this process needs before it imports sglang."""

from __future__ import annotations

import contextlib
import functools
import os
import types

from tests.sglang_cpu import import_stubs
from tests.sglang_cpu.import_hooks import after_import

_VARIABLES = {
    "TRITON_INTERPRET": "1",
    # these two have TileLang kernels by default, and torch bodies otherwise
    "SGLANG_OPT_USE_TILELANG_MHC_PRE": "0",
    "SGLANG_OPT_USE_TILELANG_MHC_POST": "0",
    "HF_HUB_OFFLINE": "1",
    # compiling the few torch.compile'd helpers costs more than it saves
    "TORCHDYNAMO_DISABLE": "1",
    "TOKENIZERS_PARALLELISM": "false",
}
_GFX950_UNITS = 256


@functools.cache
def prepare() -> None:
    """Make this process able to run SGLang without a GPU. Call before anything imports sglang or triton.

    A second call does nothing.
    """
    os.environ.update(_VARIABLES)
    import_stubs.install()
    # triton reads TRITON_INTERPRET when a kernel is declared: nothing of it may be imported above
    from tests.sglang_cpu import interpreter, interpreter_bf16, interpreter_libdevice, interpreter_programs

    interpreter.install()
    interpreter_bf16.install()
    interpreter_libdevice.install()
    interpreter_programs.install()
    _stand_in_for_devices()
    _prepare_models()


@functools.cache
def pretend_gfx950() -> None:
    """Make SGLang's monokernel binding find a gfx950 with all its compute units; everything else still finds no GPU.

    Call after `prepare()`, in every process.
    """
    import torch

    torch.cuda.current_device = lambda: 0
    torch.cuda.memory_allocated = lambda device=None: 0
    after_import("sglang.srt.kernel_plugins.amd.binding", lambda binding: _set(binding, device_isa=lambda: "gfx950"))


def _stand_in_for_devices() -> None:
    """Answer what SGLang asks of torch.cuda and torch.cpu even when the device is the CPU."""
    import torch

    properties = types.SimpleNamespace(
        name="CPU in place of a GPU",
        gcnArchName="gfx950",
        multi_processor_count=_GFX950_UNITS,
        major=8,
        minor=0,
        total_memory=8 << 30,
        warp_size=64,
        shared_memory_per_block=64 << 10,
        L2_cache_size=1 << 20,
    )
    _set(torch.cuda, get_device_properties=lambda device=None: properties)
    # below Hopper: from there on kernels use programmatic dependent launch, which the interpreter lacks
    torch.cuda.get_device_capability = lambda device=None: (properties.major, properties.minor)
    torch.cuda.empty_cache = lambda: None
    torch.cuda.synchronize = lambda device=None: None
    if not hasattr(torch.cpu, "device"):
        _set(torch.cpu, device=lambda index: contextlib.nullcontext())


def _prepare_models() -> None:
    """Give modules of the model, once each is imported, the variants of their operators that run on a CPU."""
    after_import("sglang.srt.models.deepseek_v2", _use_rocm_silu_clamp)
    after_import(
        "sglang.srt.layers.attention.dsa.dsa_indexer_kpool",
        # returns None where the attention backend has no metadata for the indexer: attention is then dense
        lambda module: _set(module.IndexerKPool, forward_native=module.IndexerKPool.forward_cuda),
    )


def _use_rocm_silu_clamp(deepseek: types.ModuleType) -> None:
    from sglang.kernels.ops.activation.silu_and_mul_clamp_hip import silu_and_mul_clamp_triton

    _set(deepseek, silu_and_mul_clamp=lambda x, out, limit: out.copy_(silu_and_mul_clamp_triton(x, limit)))


def _set(owner: object, **attributes: object) -> None:
    for name, value in attributes.items():
        setattr(owner, name, value)
