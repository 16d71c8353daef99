"""What a decode step reads and writes besides weights: KDA pools, MLA cache, index cache, lengths."""

from __future__ import annotations

import torch
from torch import Tensor

from sgl_amd_mono.errors import LayoutError
from sgl_amd_mono.models.glm53_flash.config import Config
from sgl_amd_mono.models.glm53_flash.reference.indexer import IndexCache
from sgl_amd_mono.models.glm53_flash.reference.rounding import Rounding


class State:
    """State of `rows` sequences of at most `max_tokens` tokens.

    STANDARD stores what the standard path's pools store (spec 5.6, 6.3, 7.2), EXACT stores float64. L counts the layers
    of one kind, in the order of Config.kda_layers and Config.mla_layers.

    Attributes
    ----------
    conv : [L, rows + 1, 3, C] bf16, indexed by slot; slot 0 is reserved, row i owns slot i + 1.
    temporal : [L, rows + 1, H, V, K] float32, indexed by slot.
    kv : [L, rows, max_tokens, R] bf16, the normed latents.
    tail_key, tail_score : [L, rows, kpool, D] bf16, ring of the newest tokens' index keys and pooling scores.
    pool_key : [L, rows, pools, D] float32 e4m3 values, pool_scale : [L, rows, pools] float32.
    lengths : [rows] int64, tokens of each row, the one of this step included.
    active : [rows] bool, rows that take part in this step.
    """

    def __init__(self, config: Config, rows: int, max_tokens: int, rounding: Rounding) -> None:
        bf16, float32 = (
            (torch.bfloat16, torch.float32) if rounding is Rounding.STANDARD else (torch.float64, torch.float64)
        )
        kda, mla = len(config.kda_layers), len(config.mla_layers)
        heads, head_dim = config.linear_num_heads, config.linear_head_dim
        window = config.linear_conv_kernel_dim - 1
        kpool, index_dim, pools = config.index_kpool, config.index_head_dim, max_tokens // config.index_kpool
        self.max_tokens = max_tokens
        self.conv = torch.zeros(kda, rows + 1, window, 3 * config.linear_dim, dtype=bf16)
        self.temporal = torch.zeros(kda, rows + 1, heads, head_dim, head_dim, dtype=float32)
        self.kv = torch.zeros(mla, rows, max_tokens, config.kv_lora_rank, dtype=bf16)
        self.tail_key = torch.zeros(mla, rows, kpool, index_dim, dtype=bf16)
        self.tail_score = torch.zeros(mla, rows, kpool, index_dim, dtype=bf16)
        self.pool_key = torch.zeros(mla, rows, pools, index_dim, dtype=float32)
        self.pool_scale = torch.zeros(mla, rows, pools, dtype=float32)
        self.lengths = torch.zeros(rows, dtype=torch.int64)
        self.active = torch.zeros(rows, dtype=torch.bool)

    @property
    def slots(self) -> Tensor:
        """[rows] int32: KDA slot of each row in this step, -1 for a row that does not take part."""
        own = torch.arange(1, len(self.active) + 1, dtype=torch.int32)
        return torch.where(self.active, own, -1)

    def index_cache(self, mla_layer: int, row: int) -> IndexCache:
        """Views of one row's index cache; `mla_layer` counts MLA layers only."""
        return IndexCache(
            tail_key=self.tail_key[mla_layer, row],
            tail_score=self.tail_score[mla_layer, row],
            pool_key=self.pool_key[mla_layer, row],
            pool_scale=self.pool_scale[mla_layer, row],
        )

    def advance(self, active: Tensor) -> None:
        """Begin a step in which the rows of `active` [rows] bool append one token; LayoutError past max_tokens."""
        if active.shape != self.active.shape:
            raise LayoutError(f"{active.numel()} rows in a step of a state of {self.active.numel()} rows")
        lengths = self.lengths + active
        if bool((lengths > self.max_tokens).any()):
            raise LayoutError(f"row {int(lengths.argmax())} is full: the state was made for {self.max_tokens} tokens")
        self.lengths = lengths
        self.active = active.clone()
