"""Write a small GLM-5.3-Flash checkpoint with random weights in the released names, dtypes and layouts."""

from __future__ import annotations

import json
import math
from enum import Enum
from pathlib import Path

import torch
from safetensors.torch import save_file
from torch import Tensor

from sgl_amd_mono.errors import CheckpointError
from sgl_amd_mono.models.glm53_flash.checkpoint import SINGLE_FILE
from sgl_amd_mono.models.glm53_flash.checkpoint_tensors import EMBEDDING, LM_HEAD, Storage, TensorSpec, expected_tensors
from sgl_amd_mono.models.glm53_flash.config import Config
from sgl_amd_mono.models.glm53_flash.make_checkpoint_config import (
    Sizes,
    config_document,
    quantization_config,
    text_config,
)
from sgl_amd_mono.models.glm53_flash.tokenizer import write_tokenizer
from sgl_amd_mono.quant import FP8_BLOCK, MX_GROUP, quantize_fp8_block, quantize_mxfp4

__all__ = ["Format", "Sizes", "make_checkpoint"]

# columns that share an activation scale
_GROUPS = {Storage.FP8_BLOCK: FP8_BLOCK, Storage.MXFP4: MX_GROUP}
# outputs of the half layers stay below the streams they are added to, as in a trained model: quantised activations make
# every layer chaotic, and larger outputs would turn one differently rounded bit into another token
_GAINS = {"o_proj": 0.5, "down_proj": 0.1}
# logit by which each token's successor stands out of a unit-variance crowd: greedy decoding then has a margin
_SUCCESSOR_LOGIT = 6.0
# inverse softplus of time steps between 1e-3 and 1e-1, as KDA is initialised
_DT_BIAS_RANGE = (-6.9, -2.25)
_HC_SCALE = 0.5
_DEVIATIONS = {
    "embed_tokens": 1.0,
    "A_log": 0.3,
    "bias": 0.1,
    "e_score_correction_bias": 0.02,
    "index_kpool_compress_ape": 0.5,
    "q_conv1d": 0.5,
    "k_conv1d": 0.5,
    "v_conv1d": 0.5,
    "hc_attn_base": 0.3,
    "hc_ffn_base": 0.3,
}


class Format(Enum):
    """Stored format: AMD Quark's MXFP4 (experts MXFP4, MLA and dense linears block FP8), or bf16 throughout."""

    MXFP4 = "mxfp4"
    BF16 = "bf16"


def make_checkpoint(
    directory: Path | str, sizes: Sizes | None = None, *, seed: int = 0, format: Format = Format.MXFP4
) -> Config:
    """Write config.json, model.safetensors and a byte-level tokenizer; return the config.

    Weights are random, of scales that keep activations near 1, decays as KDA is initialised, routing spread over the
    experts and greedy decoding varied.

    Parameters
    ----------
    directory : made if absent; files in it of these names are replaced.
    sizes : default Sizes().
    seed : the same seed, sizes and format give the same bytes.
    format : how the linears are stored.

    Raises
    ------
    CheckpointError
        Sizes that the format or the model cannot have.
    """
    directory = Path(directory)
    sizes = sizes or Sizes()
    directory.mkdir(parents=True, exist_ok=True)
    text = text_config(sizes, end_of_text=write_tokenizer(directory, sizes.vocab))
    config = Config.from_text_config(text)
    document = config_document(text)
    if format is Format.MXFP4:
        _require_whole_groups(config)
        document["quantization_config"] = quantization_config(config)
    save_file(_draw_tensors(config, seed, format), directory / SINGLE_FILE, metadata={"format": "pt"})
    (directory / "config.json").write_text(json.dumps(document, indent=2) + "\n")
    return config


def _require_whole_groups(config: Config) -> None:
    for spec in expected_tensors(config):
        group, columns = _GROUPS.get(spec.storage, 1), spec.shape[-1]
        if columns % group:
            raise CheckpointError(
                f"{spec.name} would have {columns} columns; {spec.storage.value} groups {group}: choose a multiple"
            )


def _draw_tensors(config: Config, seed: int, format: Format) -> dict[str, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    tensors: dict[str, Tensor] = {}
    for spec in expected_tensors(config):
        values = _draw(spec, generator)
        if spec.name == LM_HEAD:
            # one cycle through the vocabulary: each token's row points at the embedding of the token before it
            cycle = torch.randperm(config.vocab_size, generator=generator)
            values[cycle] += _SUCCESSOR_LOGIT / config.hidden_size * tensors[EMBEDDING][cycle.roll(1)]
        tensors.update(_stored(spec, values, format))
    return tensors


def _draw(spec: TensorSpec, generator: torch.Generator) -> Tensor:
    """Random float32 values of a tensor, scaled for its place in the model."""
    name = spec.name.removesuffix(".weight").rsplit(".", 1)[-1]
    if name == "dt_bias":
        return torch.empty(spec.shape).uniform_(*_DT_BIAS_RANGE, generator=generator)
    noise = torch.randn(spec.shape, generator=generator)
    if name.endswith("norm"):
        return 1 + 0.1 * noise
    if name in ("hc_attn_scale", "hc_ffn_scale"):
        return _HC_SCALE * (1 + 0.1 * noise)
    # a linear's output has its input's variance, times the gain
    return noise * _DEVIATIONS.get(name, _GAINS.get(name, 1.0) / math.sqrt(spec.shape[-1]))


def _stored(spec: TensorSpec, values: Tensor, format: Format) -> dict[str, Tensor]:
    """The tensors that store `values`, by name."""
    if spec.storage is Storage.F32:
        return {spec.name: values}
    values = values.bfloat16()
    if spec.storage is Storage.BF16 or format is Format.BF16:
        return {spec.name: values}
    quantize = quantize_mxfp4 if spec.storage is Storage.MXFP4 else quantize_fp8_block
    weight, scales = quantize(values)
    return {spec.name: weight, f"{spec.name}_scale": scales}
