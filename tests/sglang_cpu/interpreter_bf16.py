"""bfloat16 and float8 arithmetic for Triton's interpreter, which computes on their bits as if they were integers.

Their values are held in ml_dtypes' numpy types: every operation then rounds to nearest even, as on a GPU.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import numpy.typing as npt
import triton.language as tl
from triton._C.libtriton import interpreter as memory
from triton._C.libtriton import ir
from triton.runtime import interpreter
from triton.runtime.interpreter import InterpreterBuilder, TensorHandle

Array = npt.NDArray[Any]

_NARROW: dict[Any, np.dtype[Any]] = {
    tl.bfloat16: np.dtype(ml_dtypes.bfloat16),
    tl.float8e4nv: np.dtype(ml_dtypes.float8_e4m3fn),
    tl.float8e4b8: np.dtype(ml_dtypes.float8_e4m3fnuz),
    tl.float8e5: np.dtype(ml_dtypes.float8_e5m2),
    tl.float8e5b16: np.dtype(ml_dtypes.float8_e5m2fnuz),
}
_BITS = {dtype: np.dtype(f"uint{8 * dtype.itemsize}") for dtype in _NARROW.values()}
_BFLOAT16_SHIFT = 16
_stock_np_dtype: Callable[[Any], np.dtype[Any]] = interpreter._get_np_dtype


def install() -> None:
    """Patch the interpreter of this process."""
    interpreter._get_np_dtype = _np_dtype
    builder = InterpreterBuilder
    builder.create_masked_load = masked_load
    builder.create_masked_store = masked_store
    builder.cast_impl = _cast
    builder.create_fp_to_fp = _convert
    builder.create_dot = _dot
    builder.create_fma = _fma
    builder.get_bf16 = _bf16_constant


def _np_dtype(dtype: tl.dtype) -> np.dtype[Any]:
    element = dtype.element_ty if isinstance(dtype, tl.block_type) else dtype
    # a pointer is an address, whatever it points to; and it has no hash
    if isinstance(element, tl.pointer_type) or element not in _NARROW:
        return _stock_np_dtype(dtype)
    return _NARROW[element]


def _bits(values: Array) -> Array:
    return values.view(_BITS[values.dtype]) if values.dtype in _BITS else values


def _wide(values: Array) -> Array:
    return values.astype(np.float32) if values.dtype in _BITS else values


def masked_load(self: Any, pointers: TensorHandle, mask: TensorHandle, other: TensorHandle | None, *_: Any) -> Any:
    """InterpreterBuilder.create_masked_load."""
    element = pointers.get_element_ty()
    dtype = _np_dtype(element)
    otherwise = np.zeros_like(pointers.data, dtype=dtype) if other is None else other.data
    bits = memory.load(pointers.data, mask.data, _bits(otherwise), _BITS.get(dtype, dtype))
    return TensorHandle(bits.view(dtype), element)


def masked_store(self: Any, pointers: TensorHandle, value: TensorHandle, mask: TensorHandle, *_: Any) -> Any:
    """InterpreterBuilder.create_masked_store."""
    return memory.store(pointers.data, _bits(value.data), mask.data)


def _cast(self: Any, source: TensorHandle, target: tl.dtype) -> TensorHandle:
    # what overflows is inf or nan, without a word, as on a GPU
    with np.errstate(all="ignore"):
        return TensorHandle(source.data.astype(_np_dtype(target)), target.scalar)


def _convert(self: Any, source: TensorHandle, target: tl.dtype, rounding: Any) -> TensorHandle:
    if rounding == ir.ROUNDING_MODE.RTZ and target.scalar == tl.bfloat16:
        cut = source.data.astype(np.float32).view(np.uint32) >> _BFLOAT16_SHIFT
        return TensorHandle(cut.astype(np.uint16).view(_NARROW[tl.bfloat16]), tl.bfloat16)
    return _cast(self, source, target)


def _dot(self: Any, a: TensorHandle, b: TensorHandle, accumulator: TensorHandle, *_: Any) -> TensorHandle:
    product = np.matmul(_wide(a.data), _wide(b.data), dtype=accumulator.data.dtype)
    return TensorHandle(product + accumulator.data, accumulator.dtype.scalar)


def _fma(self: Any, x: TensorHandle, y: TensorHandle, z: TensorHandle) -> TensorHandle:
    total = _wide(x.data) * _wide(y.data) + _wide(z.data)
    return TensorHandle(total.astype(z.data.dtype), z.dtype.scalar)


def _bf16_constant(self: Any, value: float) -> TensorHandle:
    return TensorHandle(np.array([value], dtype=_NARROW[tl.bfloat16]), tl.bfloat16)
