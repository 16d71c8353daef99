"""Small checkpoints, upstream oracles (transformers' glm5_next, fla's naive KDA) and source mutation."""

from __future__ import annotations

import ast
import importlib.metadata
import importlib.util
import inspect
import json
import sys
from collections.abc import Callable
from pathlib import Path
from types import CodeType, FunctionType, ModuleType, SimpleNamespace
from typing import Any

import pytest
import torch
from safetensors.torch import save_file

from sgl_amd_mono.models.glm53_flash.checkpoint import SINGLE_FILE, Checkpoint
from sgl_amd_mono.models.glm53_flash.checkpoint_tensors import expected_tensors
from sgl_amd_mono.models.glm53_flash.make_checkpoint import Format, Sizes, make_checkpoint

# the matrices are tiny: more threads would only wait for each other
torch.set_num_threads(1)

# every kind of layer, more pools than the indexer chooses within 40 tokens
SMALL = Sizes(
    layers=4,
    dense_layers=1,
    hidden=256,
    vocab=320,
    intermediate=256,
    moe_intermediate=64,
    experts=8,
    experts_per_token=2,
    kda_heads=4,
    kda_head_dim=32,
    mla_heads=4,
    q_lora_rank=128,
    kv_lora_rank=128,
    qk_head_dim=64,
    v_head_dim=32,
    index_heads=4,
    index_topk=16,
)


@pytest.fixture(scope="session")
def small_sizes() -> Sizes:
    return SMALL


@pytest.fixture(scope="session")
def bf16(tmp_path_factory: pytest.TempPathFactory) -> Checkpoint:
    directory = tmp_path_factory.mktemp("bf16")
    make_checkpoint(directory, SMALL, format=Format.BF16)
    return Checkpoint.open(directory)


@pytest.fixture(scope="session")
def mxfp4(tmp_path_factory: pytest.TempPathFactory) -> Checkpoint:
    directory = tmp_path_factory.mktemp("mxfp4")
    make_checkpoint(directory, SMALL, format=Format.MXFP4)
    return Checkpoint.open(directory)


@pytest.fixture(scope="session")
def transformers() -> ModuleType:
    """transformers with its own torch KDA: an installed fla would take over with Triton kernels."""
    sys.modules["fla"] = None  # type: ignore[assignment]
    return importlib.import_module("transformers")


@pytest.fixture(scope="session")
def load_upstream(transformers: ModuleType) -> Callable[[Path], Any]:
    """Loads an unquantised checkpoint directory into transformers' model, in float32."""

    def load(directory: Path) -> Any:
        model = transformers.Glm5NextForConditionalGeneration.from_pretrained(
            directory, dtype=torch.float32, attn_implementation="eager"
        )
        return model.eval()

    return load


@pytest.fixture(scope="session")
def upstream_bf16(load_upstream: Callable[[Path], Any], bf16: Checkpoint) -> Any:
    return load_upstream(bf16.directory)


@pytest.fixture(scope="session")
def upstream_mxfp4(
    load_upstream: Callable[[Path], Any], mxfp4: Checkpoint, tmp_path_factory: pytest.TempPathFactory
) -> Any:
    """transformers' model with the MXFP4 checkpoint's weights, dequantised."""
    directory = tmp_path_factory.mktemp("dequantised")
    config = json.loads((mxfp4.directory / "config.json").read_text())
    del config["quantization_config"]
    (directory / "config.json").write_text(json.dumps(config))
    tensors = {}
    for spec in expected_tensors(mxfp4.config):
        values = mxfp4.tensor(spec.name)
        if values.dtype in (torch.uint8, torch.float8_e4m3fn):
            values = mxfp4.linear(spec.name).dequantize().float()
        tensors[spec.name] = values
    save_file(tensors, directory / SINGLE_FILE, metadata={"format": "pt"})
    return load_upstream(directory)


@pytest.fixture(scope="session")
def fla() -> SimpleNamespace:
    """naive_recurrent_kda, naive_chunk_kda and naive_kda_lowerbound_gate of fla.

    They are plain torch, but importing their package needs Triton: naive.py is loaded by its path, and of gate.py the
    one function is compiled.
    """
    folder = Path(str(importlib.metadata.distribution("fla-core").locate_file("fla/ops/kda")))
    spec = importlib.util.spec_from_file_location("fla_naive_kda", folder / "naive.py")
    assert spec is not None
    assert spec.loader is not None
    naive = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(naive)
    tree = ast.parse((folder / "gate.py").read_text())
    gate = next(node for node in tree.body if getattr(node, "name", "") == "naive_kda_lowerbound_gate")
    names = {"torch": torch, "F": torch.nn.functional}
    exec(compile(ast.Module([gate], []), "gate.py", "exec"), names)
    return SimpleNamespace(
        recurrent_kda=naive.naive_recurrent_kda,
        chunk_kda=naive.naive_chunk_kda,
        lowerbound_gate=names["naive_kda_lowerbound_gate"],
    )


Mutate = Callable[[ModuleType, str, str], None]


@pytest.fixture
def mutate(monkeypatch: pytest.MonkeyPatch) -> Mutate:
    """mutate(module, old, new): for the test, the module's functions behave as if `old` in its source read `new`."""

    def apply(module: ModuleType, old: str, new: str) -> None:
        source = inspect.getsource(module)
        assert source.count(old) == 1, f"{old!r} occurs {source.count(old)} times in {module.__name__}"
        compiled = compile(source.replace(old, new), module.__file__ or "", "exec")
        codes = {const.co_name: const for const in compiled.co_consts if isinstance(const, CodeType)}
        for name, function in vars(module).items():
            # importers hold the function itself, so its code is swapped
            if isinstance(function, FunctionType) and function.__module__ == module.__name__:
                monkeypatch.setattr(function, "__code__", codes[name])

    return apply
