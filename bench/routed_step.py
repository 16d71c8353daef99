"""What Python adds to a routed eager step of GLM-5.3-Flash, beside the launches: all layers of the released model.

A launch returns at once, and so does every module of the model: what is left is how the step finds its backend, follows
the state pools, takes its rows over, and hands each KDA layer's input and launch on. The same model without the kernels
is timed beside it, and the difference counts. What a step asks of SGLang is a stand-in: the getters of the active
attention backend and of the capture mode, the backend, its pools; the code that reads them is the product's.

Times are the best of several runs on this machine's CPU; its torch runs a copy where a GPU's enqueues one.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable
from functools import partial
from types import ModuleType, SimpleNamespace
from typing import Any

import torch
from rich.console import Console
from rich.table import Table
from torch import Tensor, nn

from sgl_amd_mono.device.host import HostDevice
from sgl_amd_mono.models.glm53_flash.bind import KdaModule
from sgl_amd_mono.models.glm53_flash.layout import KdaWeights
from sgl_amd_mono.models.glm53_flash.monokernel import Monokernel
from sgl_amd_mono.models.glm53_flash.program import KERNEL
from sgl_amd_mono.upstream import TensorParallel

LAYERS = 45
KDA_LAYERS = 34
GOAL_US = 200.0
ROWS = (1, 8)
SLOTS = 16
# the smallest half layer that the kernels take: a tensor's size costs Python nothing
HIDDEN, HEADS, HEAD_DIM, TAPS = 128, 8, 128, 4


class IdleDevice(HostDevice):
    """A host device whose launches do nothing."""

    def launch(self, args: bytes) -> None:
        pass


class IdleAttention(nn.Module):
    """Called as the model's decoder layers call theirs."""

    def forward(self, hidden_states: Tensor, forward_batch: Any, **kwargs: Any) -> Tensor:
        return hidden_states


class IdleModel(nn.Module):
    """Layers of which only the calls of their attention are left; the others have none that anyone stands in for."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(IdleAttention() for _ in range(LAYERS))
        self.hidden = torch.zeros(max(ROWS), HIDDEN, dtype=torch.bfloat16)

    def forward(self, input_ids: Tensor, positions: Tensor, forward_batch: Any) -> Tensor:
        hidden = self.hidden[: input_ids.shape[0]]
        for layer in self.layers:
            layer(hidden_states=hidden, forward_batch=forward_batch)
        return hidden


class HybridReqToTokenPool:
    """A request table over pools that hold the states of all layers, as SGLang's does."""

    def __init__(self) -> None:
        channels = 3 * HEADS * HEAD_DIM
        self.conv = torch.zeros(KDA_LAYERS, SLOTS, TAPS - 1, channels, dtype=torch.bfloat16)
        self.temporal = torch.zeros(KDA_LAYERS, SLOTS, HEADS, HEAD_DIM, HEAD_DIM)

    def mamba2_layer_cache(self, layer: int) -> SimpleNamespace:
        return SimpleNamespace(conv=[self.conv[layer]], temporal=self.temporal[layer], replayssm_d=None)


class HybridLinearKVPool:
    """A KV pool without HiCache."""

    layer_transfer_counter = None


class HybridLinearAttnBackend:
    """A backend that has prepared a step of `rows` rows."""

    def __init__(self, rows: int) -> None:
        self.req_to_token_pool = HybridReqToTokenPool()
        self.token_to_kv_pool = HybridLinearKVPool()
        metadata = SimpleNamespace(
            mamba_cache_indices=torch.arange(1, rows + 1, dtype=torch.int32), mamba_track_indices=None
        )
        self.linear_attn_backend = SimpleNamespace(req_to_token_pool=self.req_to_token_pool, forward_metadata=metadata)


def kda_weights() -> KdaWeights:
    """Zeros that the kernels would take, in the joined form."""
    values = HEADS * HEAD_DIM
    bf16 = {"dtype": torch.bfloat16}
    return KdaWeights(
        projection=(torch.zeros(3 * values + HEADS + 2 * HEAD_DIM, HIDDEN, **bf16),),
        forget_b=torch.zeros(values, HEAD_DIM, **bf16),
        output_b=torch.zeros(values, HEAD_DIM, **bf16),
        conv=torch.zeros(3 * values, TAPS),
        A_log=torch.zeros(HEADS),
        dt_bias=torch.zeros(values),
        o_norm=torch.zeros(HEAD_DIM, **bf16),
        o_proj=torch.zeros(HIDDEN, values, **bf16),
        lower_bound=-5.0,
        norm_eps=1e-5,
    )


def stand_in_for_getters(backend: HybridLinearAttnBackend) -> None:
    """Give `upstream` the modules that it imports in a step."""
    for name, attributes in {
        "forward_context": {"get_attn_backend": lambda: backend},
        "runner_utils.capture_mode": {"get_is_capture_mode": lambda: False},
    }.items():
        module = ModuleType(f"sglang.srt.model_executor.{name}")
        module.__dict__.update(attributes)
        sys.modules[module.__name__] = module


def routed(model: IdleModel) -> Monokernel:
    """`model` with the kernels standing in for its first layers, as `install` does it."""
    weights = kda_weights()
    modules = [KdaModule(layer, model.layers[layer], weights) for layer in range(KDA_LAYERS)]
    device = IdleDevice(KERNEL)
    return Monokernel(model, modules, device, ranks=TensorParallel(0, 1, None), deadline_s=1.0)


def step_us(rows: int, steps: int, repeats: int) -> list[float]:
    """Microseconds of a step without the kernels and with them: of the fastest rounds of each, which take turns."""
    stand_in_for_getters(HybridLinearAttnBackend(rows))
    token = torch.zeros(rows, dtype=torch.int64)
    batch = SimpleNamespace(mamba_track_mask=None)
    runs = [partial(IdleModel(), token, token, batch), partial(routed(IdleModel()).forward, None, token, token, batch)]
    best = [float("inf")] * len(runs)
    with torch.inference_mode():
        for _ in range(repeats):
            best = [min(known, round_us(run, steps)) for known, run in zip(best, runs, strict=True)]
    return best


def round_us(run: Callable[[], object], steps: int) -> float:
    """Microseconds of one of `steps` calls, after one that is not counted."""
    run()
    start = time.perf_counter()
    for _ in range(steps):
        run()
    return 1e6 * (time.perf_counter() - start) / steps


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=200, help="steps of a round (default: 200)")
    parser.add_argument("--repeats", type=int, default=15, help="rounds; the fastest counts (default: 15)")
    options = parser.parse_args()
    torch.set_num_threads(1)
    table = Table(
        "rows",
        title=f"Python of a routed step, {KDA_LAYERS} of {LAYERS} layers on the kernels, launches stubbed (us)",
        title_justify="left",
    )
    for column in ("without the kernels", "routed", "added", "goal"):
        table.add_column(column, justify="right")
    for rows in ROWS:
        plain, with_kernels = step_us(rows, options.steps, options.repeats)
        added = with_kernels - plain
        table.add_row(str(rows), f"{plain:.1f}", f"{with_kernels:.1f}", f"{added:.1f}", f"< {GOAL_US:.0f}")
    Console().print(table)


if __name__ == "__main__":
    main()
