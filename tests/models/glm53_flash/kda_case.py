"""One KDA half layer at a chosen shape, with random weights and pools, ready to run on the host device."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from sgl_amd_mono.device.base import Device
from sgl_amd_mono.models.glm53_flash.kda_buffers import KdaCache, KdaScratch, StepInputs, allocate_kda_scratch
from sgl_amd_mono.models.glm53_flash.layout import KdaWeights
from sgl_amd_mono.models.glm53_flash.program import kda_half_layer
from sgl_amd_mono.program import Program

HEAD_DIM = 128


def random_weights(hidden: int, heads: int, seed: int = 0) -> KdaWeights:
    """Weights whose activations stay near 1 and whose decays lie between 0.5 and 0.999."""
    generator = torch.Generator().manual_seed(seed)

    def normal(*shape: int, scale: float = 1.0) -> Tensor:
        return torch.randn(shape, generator=generator) * scale

    values = heads * HEAD_DIM
    return KdaWeights(
        projection=(normal(3 * values + heads + 2 * HEAD_DIM, hidden, scale=hidden**-0.5).bfloat16(),),
        forget_b=normal(values, HEAD_DIM, scale=HEAD_DIM**-0.5).bfloat16(),
        output_b=normal(values, HEAD_DIM, scale=HEAD_DIM**-0.5).bfloat16(),
        conv=normal(3 * values, 4, scale=0.5),
        A_log=normal(heads, scale=0.3),
        dt_bias=torch.empty(values).uniform_(-6.9, -2.25, generator=generator),
        o_norm=(1 + normal(HEAD_DIM, scale=0.1)).bfloat16(),
        o_proj=normal(hidden, values, scale=values**-0.5).bfloat16(),
        lower_bound=-5.0,
        norm_eps=1e-5,
    )


def random_cache(slots: int, heads: int, seed: int = 1) -> KdaCache:
    """Pools in which every slot holds something."""
    generator = torch.Generator().manual_seed(seed)
    conv = torch.randn(slots, 3, 3 * heads * HEAD_DIM, generator=generator).bfloat16()
    return KdaCache(conv, torch.randn(slots, heads, HEAD_DIM, HEAD_DIM, generator=generator))


class HalfLayer:
    """A program of one half layer whose scratch and output begin as NaN: nothing may be read before it is written."""

    def __init__(
        self,
        device: Device,
        weights: KdaWeights,
        cache: KdaCache,
        slots: Sequence[int],
        *,
        track: tuple[Sequence[bool], Sequence[int]] | None = None,
        layer: int = 0,
    ) -> None:
        rows, hidden = len(slots), weights.o_proj.shape[0]
        self.cache = cache
        self.weights = weights
        self.x = torch.full((rows, hidden), torch.nan, dtype=torch.bfloat16)
        self.partial = torch.full_like(self.x, torch.nan)
        self.scratch: KdaScratch = allocate_kda_scratch(weights, rows, device.torch_device)
        for name in self.scratch.__struct_fields__:
            getattr(self.scratch, name).fill_(torch.nan)
        self.step = StepInputs(
            slots=torch.tensor(slots, dtype=torch.int32),
            track_mask=None if track is None else torch.tensor(track[0]),
            track_slots=None if track is None else torch.tensor(track[1]),
        )
        entries = kda_half_layer(layer, weights, cache, self.step, self.scratch, self.x, self.partial)
        self.program = Program(device, entries)


def random_x(rows: int, hidden: int, seed: int = 2) -> Tensor:
    """[rows, hidden] bf16, as a norm puts it out."""
    return torch.randn(rows, hidden, generator=torch.Generator().manual_seed(seed)).bfloat16()
