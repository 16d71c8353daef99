"""Change a module right after its import, whoever imports it."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable, Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType

Change = Callable[[ModuleType], None]


def after_import(name: str, change: Change) -> None:
    """Call change(module) when module `name` has been imported; now, if it has been."""
    if (module := sys.modules.get(name)) is not None:
        change(module)
    else:
        sys.meta_path.insert(0, _ChangingFinder(name, change))


class _ChangingFinder(MetaPathFinder):
    def __init__(self, name: str, change: Change) -> None:
        self._name, self._change = name, change

    def find_spec(self, name: str, path: Sequence[str] | None, target: ModuleType | None = None) -> ModuleSpec | None:
        if name != self._name:
            return None
        # once: the search below must not come back here
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(name)
        if spec is not None and spec.loader is not None:
            spec.loader = _ChangingLoader(spec.loader, self._change)
        return spec


class _ChangingLoader(Loader):
    def __init__(self, loader: Loader, change: Change) -> None:
        self._loader, self._change = loader, change

    def __getattr__(self, name: str) -> object:
        return getattr(self._loader, name)

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        return self._loader.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        self._loader.exec_module(module)
        self._change(module)
