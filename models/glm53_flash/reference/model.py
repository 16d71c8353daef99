"""The whole model: prefill and decode steps over an explicit state."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from sgl_amd_mono.models.glm53_flash.checkpoint import Checkpoint
from sgl_amd_mono.models.glm53_flash.checkpoint_tensors import EMBEDDING, FINAL_NORM, LM_HEAD
from sgl_amd_mono.models.glm53_flash.layout import KdaWeights, load_kda
from sgl_amd_mono.models.glm53_flash.reference.dense import dense_half_layer, load_dense
from sgl_amd_mono.models.glm53_flash.reference.embedding import embed
from sgl_amd_mono.models.glm53_flash.reference.head import head
from sgl_amd_mono.models.glm53_flash.reference.indexer import load_indexer
from sgl_amd_mono.models.glm53_flash.reference.kda import kda_half_layer
from sgl_amd_mono.models.glm53_flash.reference.mhc import load_mhc, mhc_read, mhc_write
from sgl_amd_mono.models.glm53_flash.reference.mla import load_mla, mla_half_layer
from sgl_amd_mono.models.glm53_flash.reference.moe import load_moe, moe_half_layer
from sgl_amd_mono.models.glm53_flash.reference.rounding import Rounding
from sgl_amd_mono.models.glm53_flash.reference.state import State

KdaHalfLayer = Callable[[int, Tensor, State], Tensor]
"""(layer, y [T, hidden] float64, state) -> partial [T, hidden]; updates state.conv, state.temporal at state.slots."""


class ReferenceModel:
    """Reference of one rank that holds the whole model (TP 1)."""

    def __init__(self, checkpoint: Checkpoint, rounding: Rounding) -> None:
        config = checkpoint.config
        layers = range(config.num_hidden_layers)
        self.config = config
        self.rounding = rounding
        self._embedding = checkpoint.tensor(EMBEDDING)
        self._final_norm = checkpoint.tensor(FINAL_NORM)
        self._lm_head = checkpoint.tensor(LM_HEAD)
        self._mhc = [{half: load_mhc(checkpoint, layer, half) for half in ("attn", "ffn")} for layer in layers]
        self._kda = {layer: load_kda(checkpoint, layer) for layer in config.kda_layers}
        self._mla = {layer: load_mla(checkpoint, layer) for layer in config.mla_layers}
        self._indexer = {layer: load_indexer(checkpoint, layer) for layer in config.mla_layers}
        self._moe = {layer: load_moe(checkpoint, layer) for layer in layers if config.is_sparse(layer)}
        self._dense = {layer: load_dense(checkpoint, layer) for layer in layers if not config.is_sparse(layer)}

    def new_state(self, rows: int, max_tokens: int) -> State:
        """An empty state for `rows` sequences of at most `max_tokens` tokens."""
        return State(self.config, rows, max_tokens, self.rounding)

    def prefill(self, prompts: Sequence[Sequence[int]], state: State, kda: KdaHalfLayer | None = None) -> Tensor:
        """Feed each row its prompt, token by token, and return the logits [rows, vocab] after each row's last token.

        A row with a shorter prompt sits out the remaining steps; a row with an empty prompt keeps zero logits.
        """
        logits = torch.zeros(len(prompts), self.config.vocab_size, dtype=torch.float64)
        for position in range(max(map(len, prompts), default=0)):
            ids = torch.tensor([prompt[position] if position < len(prompt) else -1 for prompt in prompts])
            logits = torch.where((ids >= 0)[:, None], self.step(ids, state, kda), logits)
        return logits

    def step(self, ids: Tensor, state: State, kda: KdaHalfLayer | None = None) -> Tensor:
        """One decode step.

        Parameters
        ----------
        ids : [rows] int, the next token of each row; -1 for a row that sits out: none of its state changes.
        state : updated in place.
        kda : what computes the KDA half layers; the reference itself when None.

        Returns
        -------
        logits : [rows, vocab] float64; those of a row that sits out mean nothing.

        Raises
        ------
        LayoutError
            When a row is full, or `ids` has another number of rows than the state.
        """
        state.advance(ids >= 0)
        x = self.embed(ids.clamp(min=0))
        for layer in range(self.config.num_hidden_layers):
            x = self.layer(layer, x, state, kda)
        return self.logits(x)

    def embed(self, ids: Tensor) -> Tensor:
        """Token ids [T] -> residual streams [T, streams, hidden]."""
        return embed(self._embedding, ids, self.config.hc_mult)

    def layer(self, layer: int, x: Tensor, state: State, kda: KdaHalfLayer | None = None) -> Tensor:
        """One decoder layer: streams [T, streams, hidden] in and out."""
        y, post, comb = mhc_read(self._mhc[layer]["attn"], x, self.rounding)
        x = mhc_write(x, self._attention(layer, y, state, kda), post, comb, self.rounding)
        y, post, comb = mhc_read(self._mhc[layer]["ffn"], x, self.rounding)
        return mhc_write(x, self._feed_forward(layer, y), post, comb, self.rounding)

    def kda_weights(self, layer: int) -> KdaWeights:
        """What the reference computes KDA layer `layer` with."""
        return self._kda[layer]

    def logits(self, x: Tensor) -> Tensor:
        """Streams [T, streams, hidden] after the last layer -> logits [T, vocab]."""
        return head(x, self._final_norm, self._lm_head, self.config.rms_norm_eps, self.rounding)

    def _attention(self, layer: int, y: Tensor, state: State, kda: KdaHalfLayer | None) -> Tensor:
        if layer in self._mla:
            mla_layer = self.config.mla_layers.index(layer)
            return mla_half_layer(self._mla[layer], self._indexer[layer], y, state, mla_layer, self.rounding)
        if kda is not None:
            return kda(layer, y, state)
        pool = self.config.kda_layers.index(layer)
        return kda_half_layer(self._kda[layer], y, state.slots, state.conv[pool], state.temporal[pool], self.rounding)

    def _feed_forward(self, layer: int, y: Tensor) -> Tensor:
        if layer in self._moe:
            return moe_half_layer(self._moe[layer], y, self.rounding)
        return dense_half_layer(self._dense[layer], y, self.rounding)
