"""Empty modules for two packages that SGLang and transformers import and that text on a CPU never calls.

The real torchvision would replace this torch by a CUDA build, and the real vllm brings its own.
"""

from __future__ import annotations

import enum
import sys
from collections.abc import Callable, Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType

_MODULES = {
    "torchvision",
    "torchvision.io",
    "torchvision.transforms",
    "torchvision.transforms.functional",
    "torchvision.transforms.v2",
    "torchvision.transforms.v2.functional",
    "vllm",
    "vllm._custom_ops",
}


class InterpolationMode(enum.Enum):
    """torchvision's: transformers makes a table of these when it is imported."""

    NEAREST = "nearest"
    NEAREST_EXACT = "nearest-exact"
    BILINEAR = "bilinear"
    BICUBIC = "bicubic"
    BOX = "box"
    HAMMING = "hamming"
    LANCZOS = "lanczos"


def install() -> None:
    """Serve the stubs, behind every real package."""
    sys.meta_path.append(_StubFinder())


class _StubFinder(MetaPathFinder, Loader):
    def find_spec(self, name: str, path: Sequence[str] | None, target: ModuleType | None = None) -> ModuleSpec | None:
        return ModuleSpec(name, self, is_package=True) if name in _MODULES else None

    def exec_module(self, module: ModuleType) -> None:
        module.__dict__.update(__version__="0.0.0", __getattr__=_attributes_of(module.__name__))


def _attributes_of(module: str) -> Callable[[str], object]:
    def attribute(name: str) -> object:
        if name == "InterpolationMode":
            return InterpolationMode
        if name.startswith("__"):
            raise AttributeError(name)
        if name[0].isupper():
            return type(name, (), {"__module__": module})

        def refuse(*_: object, **__: object) -> None:
            raise NotImplementedError(f"{module}.{name} is a stub: text on a CPU was not expected to call it")

        return refuse

    return attribute
