"""Triton's interpreter on SGLang's kernels: nothing is tuned, and a builtin works under another name."""

from __future__ import annotations

import functools
import sys
from typing import Any

from triton.runtime import interpreter
from triton.runtime.autotuner import Autotuner


def install() -> None:
    """Patch the autotuner and the interpreter of this process."""
    _tune_nothing()
    _patch_aliases()


def _tune_nothing() -> None:
    """Keep the first configuration of each tuned kernel: timing them needs a driver."""
    stock = Autotuner.__init__

    @functools.wraps(stock)
    def keep_first(self: Autotuner, *args: Any, **kwargs: Any) -> None:
        stock(self, *args, **kwargs)
        self.configs = self.configs[:1]

    Autotuner.__init__ = keep_first


def _patch_aliases() -> None:
    """Interpret builtins under a kernel module's own names too (`exp = tl.exp`); the interpreter knows tl's alone."""
    stock = interpreter._patch_lang

    def patch_lang(fn: Any) -> Any:
        scope = stock(fn)
        interpreter._patch_builtin(sys.modules[fn.__module__], interpreter.interpreter_builder, scope)
        return scope

    interpreter._patch_lang = patch_lang
