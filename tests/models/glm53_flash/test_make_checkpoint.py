"""Made checkpoints: real names and formats, reproducible, and numerically like a trained model's."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

from sgl_amd_mono.errors import CheckpointError
from sgl_amd_mono.models.glm53_flash.checkpoint import SINGLE_FILE, Checkpoint
from sgl_amd_mono.models.glm53_flash.checkpoint_tensors import Storage, expected_tensors
from sgl_amd_mono.models.glm53_flash.layout import load_kda
from sgl_amd_mono.models.glm53_flash.make_checkpoint import Format, Sizes, make_checkpoint
from sgl_amd_mono.models.glm53_flash.reference.model import ReferenceModel
from sgl_amd_mono.models.glm53_flash.reference.rounding import Rounding
from sgl_amd_mono.models.glm53_flash.tokenizer import load_tokenizer

STEPS = 16


@pytest.fixture(scope="module")
def default(tmp_path_factory: pytest.TempPathFactory) -> Checkpoint:
    directory = tmp_path_factory.mktemp("default")
    make_checkpoint(directory)
    return Checkpoint.open(directory)


@pytest.mark.parametrize("format", Format)
def test_same_seed_same_bytes(tmp_path: Path, small_sizes: Sizes, format: Format) -> None:
    for name, seed in (("a", 0), ("b", 0), ("c", 1)):
        make_checkpoint(tmp_path / name, small_sizes, seed=seed, format=format)
    for file in ("config.json", SINGLE_FILE, "tokenizer.json"):
        assert (tmp_path / "a" / file).read_bytes() == (tmp_path / "b" / file).read_bytes()
    assert (tmp_path / "a" / SINGLE_FILE).read_bytes() != (tmp_path / "c" / SINGLE_FILE).read_bytes()


def test_formats_hold_the_same_values(bf16: Checkpoint, mxfp4: Checkpoint) -> None:
    """Up to the steps of the format: e2m1 has two significand bits, e4m3 four, in groups scaled to their largest."""
    assert mxfp4.config == bf16.config
    worst = {Storage.FP8_BLOCK: 2**-5, Storage.MXFP4: 2**-2}
    for spec in expected_tensors(bf16.config):
        if spec.storage in worst:
            linear = mxfp4.linear(spec.name)
            assert linear.storage is spec.storage
            values = bf16.tensor(spec.name).double()
            error = (linear.dequantize() - values).square().mean().sqrt() / values.square().mean().sqrt()
            assert 0 < error < worst[spec.storage], spec.name
        else:
            assert torch.equal(mxfp4.tensor(spec.name), bf16.tensor(spec.name)), spec.name


def test_quantization_config_names_every_linear_once(mxfp4: Checkpoint) -> None:
    """As SGLang resolves it: excluded is unquantised, an own entry is block FP8, the rest is MXFP4."""
    quantization = json.loads((mxfp4.directory / "config.json").read_text())["quantization_config"]
    assert quantization["quant_method"] == "quark"
    assert quantization["global_quant_config"]["weight"]["dtype"] == "fp4"
    excluded, own = set(quantization["exclude"]), quantization["layer_quant_config"]
    assert not excluded & own.keys()
    for entry in own.values():
        assert entry["weight"]["qscheme"] == "per_block"
        assert entry["weight"]["block_size"] == [128, 128]
    for spec in expected_tensors(mxfp4.config):
        name = spec.name.removesuffix(".weight")
        if len(spec.shape) == 2 and name != spec.name and "embed_tokens" not in name:
            stored = mxfp4.linear(spec.name).storage
            resolved = Storage.BF16 if name in excluded else Storage.FP8_BLOCK if name in own else Storage.MXFP4
            assert stored is resolved, spec.name


def test_unquantised_config_has_no_quantization_config(bf16: Checkpoint) -> None:
    assert "quantization_config" not in json.loads((bf16.directory / "config.json").read_text())


@pytest.mark.parametrize(
    ("sizes", "message"),
    [
        (Sizes(moe_intermediate=80), "down_proj.weight would have 80 columns; MXFP4 groups 32"),
        (Sizes(hidden=320), "would have 320 columns; block FP8 groups 128"),
    ],
)
def test_sizes_that_mxfp4_cannot_have(tmp_path: Path, sizes: Sizes, message: str) -> None:
    with pytest.raises(CheckpointError, match=message):
        make_checkpoint(tmp_path, sizes)


def test_default_is_small_with_real_head_sizes(default: Checkpoint) -> None:
    config = default.config
    assert (default.directory / SINGLE_FILE).stat().st_size < 300e6
    assert (config.num_hidden_layers, config.linear_head_dim, config.kv_lora_rank) == (8, 128, 512)
    assert (config.q_lora_rank, config.qk_nope_head_dim, config.v_head_dim) == (1536, 256, 256)
    assert (config.index_head_dim, config.index_n_heads, config.index_kpool, config.index_topk) == (128, 32, 4, 2048)


def test_decays_remember_and_forget(default: Checkpoint) -> None:
    """Without input, most channels keep more than nine tenths of their state in a step, and some less than a half."""
    for layer in default.config.kda_layers:
        w = load_kda(default, layer)
        g = w.lower_bound * torch.sigmoid(w.A_log.exp()[:, None] * w.dt_bias.view(w.heads, w.head_dim))
        low, middle, high = g.exp().quantile(torch.tensor([0.05, 0.5, 0.95])).tolist()
        assert 0.1 < low < 0.7
        assert 0.9 < middle < 0.99
        assert 0.99 < high < 1


def test_default_decodes_varied_tokens_with_sane_activations(default: Checkpoint) -> None:
    model = ReferenceModel(default, Rounding.STANDARD)
    tokenizer = load_tokenizer(default.directory)
    state = model.new_state(2, 40)
    logits = model.prefill([tokenizer.encode(text).ids for text in ("Hello, world", "One decode step")], state)
    tokens = []
    for _ in range(STEPS):
        tokens.append(logits.argmax(1))
        logits = model.step(tokens[-1], state)
        assert (logits.std(1) > 0.5).all()
        assert (logits.std(1) < 2).all()
    generated = torch.stack(tokens, 1)
    for row in generated:
        assert len(row.unique()) >= STEPS - 1
    assert not torch.equal(generated[0], generated[1])
    assert (state.temporal.abs().amax((2, 3, 4))[:, 1:] < 10).all()
    assert (state.temporal.abs().amax((2, 3, 4))[:, 1:] > 0.1).all()
