"""Bodies for libdevice functions, which return None in Triton's interpreter."""

from __future__ import annotations

from typing import Any

import numpy as np
import triton.language as tl
from triton.language.extra import libdevice
from triton.runtime.interpreter import TensorHandle

_NAMES = ("exp", "exp2", "log", "log2", "log1p", "expm1", "sqrt", "tanh", "sin", "cos")


def install() -> None:
    """Give the elementwise functions that numpy has under the same name its bodies."""
    for name in _NAMES:
        setattr(libdevice, name, _elementwise(getattr(np, name)))


def _elementwise(function: np.ufunc) -> Any:
    def body(x: tl.tensor) -> tl.tensor:
        data = x.handle.data
        # a GPU gives inf and nan without a word
        with np.errstate(all="ignore"):
            return tl.core.tensor(TensorHandle(function(data).astype(data.dtype), x.handle.dtype), x.type)

    return body
