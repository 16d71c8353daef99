"""Quicker stand-ins for what the Triton interpreter spends a prompt on, checked against it in tests/upstream.

The prompt's kernels are not what the monokernel replaces: both paths run them alike. A decode step keeps SGLang's own
Triton kernels, with fewer and larger programs than on a GPU; each channel is computed the same.
"""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType
from typing import Any

import torch
import triton.runtime.interpreter as triton_interpreter
from torch import Tensor

from tests.sglang_cpu.import_hooks import after_import

_LINEAR = "sglang.srt.layers.attention.linear"
_L2_EPS = 1e-6
_HEAD_DIM = 128
# one program a row in place of one for 256 channels
_WIDER = {"_causal_conv1d_update_kernel": {"BLOCK_N": 8192}}


def install() -> None:
    """Have the prompt kernels of KDA replaced, and the tiles of its decode kernels widened, once they are imported."""
    after_import(f"{_LINEAR}.kda_backend", _replace_convolution)
    after_import(f"{_LINEAR}.kernels.kda_triton", _replace_delta_rule)
    after_import(
        "sglang.kernels.ops.attention.linear.fused_sigmoid_gating_recurrent",
        lambda module: setattr(module, "_select_recurrent_launch_config", lambda *_, **__: (_HEAD_DIM, 1)),
    )
    _widen()


def _replace_convolution(module: ModuleType) -> None:
    module.KDAAttnBackend._convolve_prefill = convolve_prompt


def _replace_delta_rule(module: ModuleType) -> None:
    module.TritonKDAKernel.extend = _torch_or(module.TritonKDAKernel.extend)


def _widen() -> None:
    executor = triton_interpreter.GridExecutor
    stock = executor.__call__

    def call(self: Any, *args: Any, **kwargs: Any) -> Any:
        return stock(self, *args, **(kwargs | _WIDER.get(self.fn.__name__, {})))

    executor.__call__ = call


def convolve_prompt(
    self: Any, layer: Any, forward_batch: Any, mixed_qkv: Tensor, conv_states: Tensor, cache_indices: Tensor
) -> Tensor:
    """`KDAAttnBackend._convolve_prefill`: mixed_qkv [tokens, C] bf16; conv_states [slots, C, 3], updated."""
    starts = self.forward_metadata.query_start_loc.tolist()
    taps = layer.conv_weights.float()
    outputs = []
    for i, slot in enumerate(cache_indices.tolist()):
        tokens = mixed_qkv[starts[i] : starts[i + 1]]
        past = conv_states[slot].T
        if not int(forward_batch.extend_prefix_lens[i]):
            past = torch.zeros_like(past)
        window = torch.cat([past, tokens]).float()
        count = tokens.shape[0]
        mixed = torch.stack([window[tap : tap + count] * taps[:, tap] for tap in range(taps.shape[1])]).sum(0)
        outputs.append(torch.nn.functional.silu(mixed).to(mixed_qkv.dtype))
        conv_states[slot] = window[-past.shape[0] :].T.to(conv_states.dtype)
    return torch.cat(outputs)


def extend_prompt(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    g: Tensor,
    beta: Tensor,
    *,
    ssm_states: Tensor,
    cache_indices: Tensor,
    query_start_loc: Tensor,
    A_log: Tensor,
    dt_bias: Tensor,
    lower_bound: float,
) -> Tensor:
    """The delta rule over prompts, token by token: q, k, v, g [1, tokens, H, D], beta [1, tokens, H] without activations."""
    heads, width = q.shape[2:]
    rate = A_log.float().reshape(heads, 1).exp()
    decays = torch.exp(lower_bound * torch.sigmoid(rate * (g[0].float() + dt_bias.float().view(heads, width))))
    q, k = (_unit(x[0].float()) for x in (q, k))
    values, betas = v[0].float(), torch.sigmoid(beta[0].float())
    starts = query_start_loc.tolist()
    output = torch.empty(values.shape)
    for i, slot in enumerate(cache_indices.tolist()):
        state = ssm_states[slot].float()
        for t in range(starts[i], starts[i + 1]):
            state = state * decays[t].unsqueeze(1)
            wanted = (values[t] - torch.einsum("hvk,hk->hv", state, k[t])) * betas[t].unsqueeze(1)
            state = state + wanted.unsqueeze(2) * k[t].unsqueeze(1)
            output[t] = torch.einsum("hvk,hk->hv", state, q[t]) * width**-0.5
        ssm_states[slot] = state.to(ssm_states.dtype)
    return output.to(v.dtype).unsqueeze(0)


def _unit(x: Tensor) -> Tensor:
    return x * torch.rsqrt(x.square().sum(-1, keepdim=True) + _L2_EPS)


def _torch_or(original: Callable[..., Any]) -> Callable[..., Any]:
    """`TritonKDAKernel.extend` in torch, where no per-chunk states are asked for; the kernel itself where they are."""
    own = ("ssm_states", "cache_indices", "query_start_loc", "A_log", "dt_bias", "lower_bound")

    def extend(self: Any, q: Tensor, k: Tensor, v: Tensor, g: Tensor, beta: Tensor, **kwargs: Any) -> Any:
        if kwargs.get("return_intermediate_states") or not kwargs.get("beta_is_raw"):
            return original(self, q, k, v, g, beta, **kwargs)
        return extend_prompt(q, k, v, g, beta, **{name: kwargs[name] for name in own})

    return extend
