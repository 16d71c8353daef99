"""Opening: what is accepted, and that everything missing or wrong is named in one error."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from sgl_amd_mono.errors import CheckpointError
from sgl_amd_mono.models.glm53_flash.checkpoint import INDEX_FILE, SINGLE_FILE, Checkpoint
from sgl_amd_mono.models.glm53_flash.checkpoint_tensors import Storage
from sgl_amd_mono.quant import dequantize_fp8_block, dequantize_mxfp4

PREFIX = "model.language_model.layers"
KDA = f"{PREFIX}.0.self_attn.q_proj.weight"
FP8 = f"{PREFIX}.0.mlp.gate_proj.weight"
FP4 = f"{PREFIX}.1.mlp.experts.3.down_proj.weight"


@pytest.fixture
def copy(mxfp4: Checkpoint, tmp_path: Path) -> Path:
    shutil.copytree(mxfp4.directory, tmp_path, dirs_exist_ok=True)
    return tmp_path


def edit(directory: Path, change: Callable[[dict[str, Tensor]], Any]) -> None:
    tensors = load_file(directory / SINGLE_FILE)
    change(tensors)
    save_file(tensors, directory / SINGLE_FILE)


def shard(directory: Path) -> dict[str, str]:
    """Split the single file into two and write an index; returns its weight map."""
    tensors = load_file(directory / SINGLE_FILE)
    names = sorted(tensors)
    weight_map = {name: f"model-0000{1 + i % 2}-of-00002.safetensors" for i, name in enumerate(names)}
    for file in set(weight_map.values()):
        save_file({name: tensors[name] for name in names if weight_map[name] == file}, directory / file)
    (directory / SINGLE_FILE).unlink()
    (directory / INDEX_FILE).write_text(json.dumps({"weight_map": weight_map}))
    return weight_map


def test_linears_are_what_is_stored(mxfp4: Checkpoint) -> None:
    stored = load_file(mxfp4.directory / SINGLE_FILE)
    kda, fp8, fp4 = (mxfp4.linear(name) for name in (KDA, FP8, FP4))
    assert [linear.storage for linear in (kda, fp8, fp4)] == [Storage.BF16, Storage.FP8_BLOCK, Storage.MXFP4]
    assert torch.equal(kda.dequantize(), stored[KDA].double())
    assert torch.equal(fp8.dequantize(), dequantize_fp8_block(stored[FP8], stored[f"{FP8}_scale"]))
    assert torch.equal(fp4.dequantize(), dequantize_mxfp4(stored[FP4], stored[f"{FP4}_scale"]))
    assert fp4.dequantize().shape == (mxfp4.config.hidden_size, mxfp4.config.moe_intermediate_size)


def test_shards_open_as_one(mxfp4: Checkpoint, copy: Path) -> None:
    shard(copy)
    sharded = Checkpoint.open(copy)
    for name in (KDA, FP8, FP4):
        assert torch.equal(sharded.linear(name).dequantize(), mxfp4.linear(name).dequantize())


def test_scales_named_as_block_fp8_names_them(copy: Path, mxfp4: Checkpoint) -> None:
    edit(copy, lambda tensors: tensors.update({f"{FP8}_scale_inv": tensors.pop(f"{FP8}_scale")}))
    assert torch.equal(Checkpoint.open(copy).linear(FP8).dequantize(), mxfp4.linear(FP8).dequantize())


def test_other_tensors_are_left_alone(copy: Path) -> None:
    """The vision tower and the MTP layer come in the released checkpoint."""
    edit(copy, lambda tensors: tensors.update({"model.visual.x": torch.ones(1), f"{PREFIX}.45.x": torch.ones(1)}))
    Checkpoint.open(copy)


def test_everything_wrong_is_in_one_error(copy: Path) -> None:
    def damage(tensors: dict[str, Tensor]) -> None:
        del tensors[KDA]
        tensors[FP8] = tensors[FP8][:-1]
        tensors[FP4] = tensors[FP4].view(torch.int8)
        tensors["lm_head.weight"] = tensors["lm_head.weight"].half()

    edit(copy, damage)
    with pytest.raises(CheckpointError) as refusal:
        Checkpoint.open(copy)
    message = str(refusal.value)
    assert f"{KDA}: missing" in message
    assert f"{FP8}: F8_E4M3 [255, 256], expected F8_E4M3 [256, 256]" in message
    assert f"{FP4}: dtype I8 is not supported here, only BF16, F32, U8" in message
    assert "lm_head.weight: dtype F16 is not supported here, only BF16, F32" in message


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda t: t.pop(f"{FP4}_scale"), f"{FP4}_scale: missing, and {FP4} is U8"),
        (lambda t: t.pop(f"{FP8}_scale"), f"{FP8}_scale: missing, and {FP8} is F8_E4M3"),
        (lambda t: t.update({f"{FP8}_scale": t[f"{FP8}_scale"].bfloat16()}), f"{FP8}_scale: BF16 .*expected F32"),
        (lambda t: t.update({f"{FP4}_scale": t[f"{FP4}_scale"][1:]}), r"U8 \[255, 2\], expected U8 \[256, 2\]"),
        (lambda t: t.update({f"{KDA}_scale": torch.ones(1)}), f"{KDA}_scale: a scale for {KDA}, which is unquantised"),
        (lambda t: t.update({KDA: t[KDA].to(torch.float8_e4m3fn)}), "dtype F8_E4M3 is not supported here"),
        (lambda t: t.update({FP8: t[FP8].float().bfloat16()}), "which is unquantised BF16"),
        (lambda t: t.update({KDA: t[KDA].T.contiguous()}), r"BF16 \[256, 128\], expected BF16 \[128, 256\]"),
    ],
)
def test_each_mismatch_is_named(copy: Path, change: Callable[[dict[str, Tensor]], Any], message: str) -> None:
    edit(copy, change)
    with pytest.raises(CheckpointError, match=message):
        Checkpoint.open(copy)


def test_long_lists_are_cut(copy: Path) -> None:
    edit(copy, lambda tensors: [tensors.pop(name) for name in list(tensors) if "experts" in name])
    with pytest.raises(CheckpointError, match=r"and \d+ more$"):
        Checkpoint.open(copy)


def test_nan_scale_is_refused_when_read(copy: Path) -> None:
    edit(copy, lambda tensors: tensors[f"{FP4}_scale"].fill_(255))
    with pytest.raises(CheckpointError, match=r"e8m0 255 \(NaN\)"):
        Checkpoint.open(copy).linear(FP4)


def test_unknown_name(mxfp4: Checkpoint) -> None:
    with pytest.raises(CheckpointError, match="no tensor nope"):
        mxfp4.tensor("nope")


def test_files_that_are_missing_or_damaged(copy: Path, tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="no such directory"):
        Checkpoint.open(tmp_path / "nowhere")
    whole = (copy / SINGLE_FILE).read_bytes()
    for size in (len(whole) - 1, 4000, 4, 0):
        (copy / SINGLE_FILE).write_bytes(whole[:size])
        with pytest.raises(CheckpointError, match="truncated or damaged"):
            Checkpoint.open(copy)
    (copy / SINGLE_FILE).unlink()
    with pytest.raises(CheckpointError, match=r"model\.safetensors: missing"):
        Checkpoint.open(copy)


def test_index_that_is_damaged(copy: Path) -> None:
    weight_map = shard(copy)
    index = copy / INDEX_FILE
    index.write_text(json.dumps({"weight_map": {**weight_map, "extra": weight_map[KDA]}}))
    with pytest.raises(CheckpointError, match="1 tensors are not in the file it names, first extra"):
        Checkpoint.open(copy)
    for damaged in ("{", "{}", "[]", '{"weight_map": []}', '{"weight_map": {"a": 1}}'):
        index.write_text(damaged)
        with pytest.raises(CheckpointError, match="not a safetensors index"):
            Checkpoint.open(copy)
    index.write_text(json.dumps({"weight_map": weight_map}))
    (copy / weight_map[KDA]).unlink()
    with pytest.raises(CheckpointError, match=f"{weight_map[KDA]}: missing; the checkpoint is incomplete"):
        Checkpoint.open(copy)
