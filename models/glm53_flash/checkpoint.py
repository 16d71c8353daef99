"""A checkpoint directory: config.json and safetensors, verified on opening, read lazily."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from sgl_amd_mono.errors import CheckpointError
from sgl_amd_mono.models.glm53_flash.checkpoint_tensors import Storage, TensorSpec, expected_tensors
from sgl_amd_mono.models.glm53_flash.config import Config
from sgl_amd_mono.quant import FP8_BLOCK, MX_GROUP, dequantize_fp8_block, dequantize_mxfp4

SINGLE_FILE = "model.safetensors"
INDEX_FILE = "model.safetensors.index.json"
# Quark leaves out block FP8's "_inv"; both names hold the factor that dequantises
SCALE_SUFFIXES = ("_scale", "_scale_inv")

_PLAIN_DTYPES = ("BF16", "F32")
_REPORTED_PROBLEMS = 20


class Linear(msgspec.Struct, frozen=True):
    """Weight [N, K] of a linear layer as it is stored."""

    storage: Storage
    weight: Tensor
    """bf16 [N, K], float8_e4m3fn [N, K], or packed e2m1 uint8 [N, K/2]."""
    scales: Tensor | None = None
    """None, float32 [ceil(N/128), ceil(K/128)], or e8m0 uint8 [N, K/32]."""

    def dequantize(self) -> Tensor:
        """Values [N, K] float64, exact."""
        if self.scales is None:
            return self.weight.double()
        if self.storage is Storage.FP8_BLOCK:
            return dequantize_fp8_block(self.weight, self.scales)
        return dequantize_mxfp4(self.weight, self.scales)


class Checkpoint:
    """An opened checkpoint; tensors are mapped from the files when they are asked for."""

    def __init__(self, directory: Path, config: Config, files: dict[str, Any]) -> None:
        self.directory = directory
        self.config = config
        self._files = files

    @classmethod
    def open(cls, directory: Path | str) -> Checkpoint:
        """Open and verify: config, files, and the name, dtype and shape of every tensor that the config requires.

        Raises
        ------
        CheckpointError
            One message with everything that is missing or wrong.
        """
        directory = Path(directory)
        if not directory.is_dir():
            raise CheckpointError(f"{directory}: no such directory; expected a checkpoint directory with config.json")
        checkpoint = cls(directory, Config.load(directory), _open_files(directory))
        checkpoint._verify()
        return checkpoint

    def tensor(self, name: str) -> Tensor:
        """A tensor as stored. Raises CheckpointError when there is none of that name."""
        if name not in self._files:
            raise CheckpointError(f"{self.directory}: no tensor {name}")
        tensor: Tensor = self._files[name].get_tensor(name)
        return tensor

    def linear(self, name: str) -> Linear:
        """The linear weight `name` (ending in .weight) with its scales; an unquantised one as bf16, like SGLang's."""
        weight = self.tensor(name)
        scale_name = self._scale_name(name)
        if scale_name is None:
            return Linear(Storage.BF16, weight.bfloat16())
        scales = self.tensor(scale_name)
        if weight.dtype != torch.uint8:
            return Linear(Storage.FP8_BLOCK, weight, scales)
        if bool((scales == 255).any()):
            raise CheckpointError(f"{self.directory}: {scale_name} holds e8m0 255 (NaN); the checkpoint is damaged")
        return Linear(Storage.MXFP4, weight, scales)

    def _verify(self) -> None:
        problems = [problem for spec in expected_tensors(self.config) if (problem := self._problem(spec))]
        if problems:
            shown = problems[:_REPORTED_PROBLEMS]
            if len(problems) > len(shown):
                shown.append(f"and {len(problems) - len(shown)} more")
            raise CheckpointError(f"{self.directory} does not match its config.json:\n  " + "\n  ".join(shown))

    def _problem(self, spec: TensorSpec) -> str | None:
        """What is wrong with one tensor and its scales, if anything."""
        if spec.name not in self._files:
            return f"{spec.name}: missing"
        stored = self._stored(spec.name)
        scale_name = self._scale_name(spec.name)
        if stored.dtype in _PLAIN_DTYPES:
            if scale_name is not None:
                return f"{scale_name}: a scale for {spec.name}, which is unquantised {stored.dtype}"
            return _mismatch(spec.name, stored, _Form(stored.dtype, spec.shape))
        quantized = _quantized_form(spec)
        if quantized is None or stored.dtype != quantized.weight.dtype:
            allowed = [*_PLAIN_DTYPES, *([quantized.weight.dtype] if quantized else [])]
            return f"{spec.name}: dtype {stored.dtype} is not supported here, only {', '.join(allowed)}"
        if scale_name is None:
            return f"{spec.name}{SCALE_SUFFIXES[0]}: missing, and {spec.name} is {stored.dtype}"
        return _mismatch(spec.name, stored, quantized.weight) or _mismatch(
            scale_name, self._stored(scale_name), quantized.scales
        )

    def _stored(self, name: str) -> _Form:
        view = self._files[name].get_slice(name)
        return _Form(view.get_dtype(), tuple(view.get_shape()))

    def _scale_name(self, name: str) -> str | None:
        return next((name + suffix for suffix in SCALE_SUFFIXES if name + suffix in self._files), None)


class _Form(NamedTuple):
    """How a tensor is stored; dtype as safetensors spells it."""

    dtype: str
    shape: tuple[int, ...]

    def __str__(self) -> str:
        return f"{self.dtype} {list(self.shape)}"


class _QuantizedForm(NamedTuple):
    weight: _Form
    scales: _Form


def _quantized_form(spec: TensorSpec) -> _QuantizedForm | None:
    """How the tensor is stored when it is quantised; None if it never is."""
    if spec.storage is Storage.FP8_BLOCK:
        n, k = spec.shape
        return _QuantizedForm(_Form("F8_E4M3", (n, k)), _Form("F32", (-(-n // FP8_BLOCK), -(-k // FP8_BLOCK))))
    if spec.storage is Storage.MXFP4:
        n, k = spec.shape
        return _QuantizedForm(_Form("U8", (n, k // 2)), _Form("U8", (n, k // MX_GROUP)))
    return None


def _mismatch(name: str, found: _Form, expected: _Form) -> str | None:
    return None if found == expected else f"{name}: {found}, expected {expected}"


class _Index(msgspec.Struct):
    weight_map: dict[str, str]
    """File name by tensor name."""


def _open_files(directory: Path) -> dict[str, Any]:
    """Handle of the file that holds each tensor, by tensor name."""
    index_path = directory / INDEX_FILE
    if not index_path.exists():
        handle = _open_file(directory / SINGLE_FILE)
        return dict.fromkeys(handle.keys(), handle)
    try:
        weight_map = msgspec.json.decode(index_path.read_bytes(), type=_Index).weight_map
    except msgspec.DecodeError as error:
        raise CheckpointError(f"{index_path}: not a safetensors index ({error})") from error
    handles = {file: _open_file(directory / file) for file in sorted(set(weight_map.values()))}
    stored = {file: set(handle.keys()) for file, handle in handles.items()}
    absent = [name for name, file in weight_map.items() if name not in stored[file]]
    if absent:
        raise CheckpointError(f"{index_path}: {len(absent)} tensors are not in the file it names, first {absent[0]}")
    return {name: handles[file] for name, file in weight_map.items()}


def _open_file(path: Path) -> Any:
    # safetensors has no type stubs; the handle offers keys, get_slice and get_tensor
    try:
        return safe_open(path, framework="pt")
    except FileNotFoundError as error:
        raise CheckpointError(f"{path}: missing; the checkpoint is incomplete") from error
    except (OSError, SafetensorError) as error:
        raise CheckpointError(f"{path}: truncated or damaged ({error}); copy or make it again") from error
