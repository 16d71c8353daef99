"""All programs of a Triton launch at once in Triton's interpreter, which by itself runs one after the other.

An array of the interpreter has the shape of a block. Here it has the programs in front: as many as there are, or 1
where all of them have the same. Where programs part, at a branch or a loop bound, what they stored is undone, and each
party starts over on its own.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import triton.language as tl
from triton.runtime import interpreter
from triton.runtime.interpreter import GridExecutor, InterpreterBuilder, ReduceOps, ScanOps, TensorHandle

from tests.sglang_cpu.interpreter_bf16 import masked_load, masked_store

Array = npt.NDArray[Any]

_MOST_PROGRAMS = 512
"""Of a party: bounds the memory that its blocks take."""


class Parting(BaseException):
    """Programs disagree about a value that steers them; no Exception, for the interpreter rewrites those.

    Parameters
    ----------
    values : [programs], what each one has.
    """

    def __init__(self, values: Array) -> None:
        super().__init__("programs part")
        self.values = values


class _Undo:
    """What the memory held where the running party stored."""

    def __init__(self) -> None:
        self._log: list[tuple[Any, TensorHandle, TensorHandle, TensorHandle]] = []

    def record(self, builder: Any, pointers: TensorHandle, mask: TensorHandle) -> None:
        self._log.append((builder, pointers, masked_load(builder, pointers, mask, None), mask))

    def forget(self) -> None:
        self._log.clear()

    def undo(self) -> None:
        while self._log:
            builder, *stored = self._log.pop()
            masked_store(builder, *stored)


_undo = _Undo()


def install() -> None:
    """Patch the interpreter of this process."""
    builder = InterpreterBuilder
    GridExecutor.__call__ = _launch
    interpreter._patch_lang_tensor = _patch_tensor
    builder.create_get_program_id = lambda self, axis: TensorHandle(self.party[axis], tl.int32)
    builder.create_masked_load = _load
    builder.create_masked_store = _store
    builder.create_atomic_rmw = _atomic(builder.create_atomic_rmw)
    builder.create_make_range = lambda self, _, start, stop: _handle(
        np.arange(start, stop, dtype=np.int32)[None], tl.int32
    )
    builder.create_splat = lambda self, block, value: _splat(value, block.shape)
    builder.create_unsplat = lambda self, block: _handle(block.data.reshape(len(block.data), -1)[:, 0], block.dtype)
    builder.create_expand_dims = lambda self, block, axis: _handle(np.expand_dims(block.data, axis + 1), block.dtype)
    builder.create_broadcast = lambda self, block, shape: _broadcast(block, shape)
    builder.create_reshape = lambda self, block, shape, _: _handle(block.data.reshape(-1, *shape), block.dtype)
    builder.create_trans = lambda self, block, order: _handle(
        np.transpose(block.data, (0, *(axis + 1 for axis in order))), block.dtype
    )
    builder.create_join = lambda self, a, b: _handle(np.stack(np.broadcast_arrays(a.data, b.data), axis=-1), a.dtype)
    builder.create_cat = lambda self, a, b: _handle(np.concatenate(_same_programs(a.data, b.data), axis=1), a.dtype)
    builder.create_gather = lambda self, block, index, axis: _gather(block, index, axis + 1)
    for operation in (ReduceOps, ScanOps):
        operation.apply = _apply
        operation.to_tensor = _to_tensor
    ReduceOps.generic_reduce = _reduce
    ScanOps.generic_scan = _scan


def _launch(self: Any, *args: Any, **kwargs: Any) -> None:
    """Run a kernel over its grid; tensors are on the CPU and used in place."""
    names = inspect.getfullargspec(self.fn).args
    arguments = inspect.getcallargs(self.fn, *args, **{name: kwargs[name] for name in names if name in kwargs})
    for hook in self.pre_run_hooks:
        hook(**arguments)
    scope = interpreter._patch_lang(self.fn)
    try:
        values = {
            name: value if name in self.constexprs else interpreter._implicit_cvt(value)
            for name, value in arguments.items()
        }
        grid = self.grid(values) if callable(self.grid) else self.grid
        # what overflows is inf or nan without a word, as on a GPU
        with np.errstate(all="ignore"):
            _run(lambda: self.fn(**values), (*grid, *(1,) * (3 - len(grid))))
    finally:
        scope.restore()


def _run(kernel: Callable[[], None], grid: Sequence[int]) -> None:
    builder = interpreter.interpreter_builder
    builder.set_grid_dim(*grid)
    count = int(np.prod(grid))
    programs = np.stack(np.unravel_index(np.arange(count), grid)).astype(np.int32)
    parties = [programs[:, first : first + _MOST_PROGRAMS] for first in range(0, count, _MOST_PROGRAMS)]
    while parties:
        builder.party = party = parties.pop()
        _undo.forget()
        try:
            kernel()
        except Parting as parting:
            _undo.undo()
            parties += [party[:, parting.values == value] for value in np.unique(parting.values)]
    _undo.forget()


def _agreed(data: Array) -> Any:
    """The value that all programs have of a scalar; raises Parting."""
    values = data.reshape(-1)
    if (values != values[0]).any():
        raise Parting(values)
    return values[0]


def _patch_tensor(tensor: Any, scope: Any) -> None:
    def truth(self: Any) -> bool:
        # the interpreter's: a block is true unless it has a single element
        return bool(_agreed(self.handle.data)) if self.numel.value == 1 else True

    def transposed(self: Any) -> Any:
        *rows, m, n = self.type.shape
        handle = _handle(np.swapaxes(self.handle.data, -1, -2), self.dtype)
        return tl.core.tensor(handle, tl.core.block_type(self.dtype, [*rows, n, m]))

    scope.set_attr(tensor, "__index__", lambda self: int(_agreed(self.handle.data)))
    scope.set_attr(tensor, "__bool__", truth)
    scope.set_attr(tensor, "__repr__", lambda self: repr(self.handle.data))
    scope.set_attr(tensor, "__str__", lambda self: str(self.handle.data))
    scope.set_attr(tensor, "T", property(transposed))


def _handle(data: Array, dtype: tl.dtype) -> TensorHandle:
    return TensorHandle(data, dtype.scalar)


def _load(self: Any, pointers: TensorHandle, mask: TensorHandle, other: TensorHandle | None, *_: Any) -> Any:
    if other is None:
        return masked_load(self, *_same_shape(pointers, mask), None)
    return masked_load(self, *_same_shape(pointers, mask, other))


def _store(self: Any, pointers: TensorHandle, value: TensorHandle, mask: TensorHandle, *_: Any) -> None:
    pointers, value, mask = _same_shape(pointers, value, mask)
    _undo.record(self, pointers, mask)
    masked_store(self, pointers, value, mask)


def _atomic(stock: Any) -> Any:
    def atomic(
        self: Any, operation: Any, pointers: TensorHandle, value: TensorHandle, mask: TensorHandle, *rest: Any
    ) -> Any:
        # every program does it once, also where all of them do the same
        programs = _handle(np.zeros((self.party.shape[1], *(1,) * (pointers.data.ndim - 1)), bool), tl.int1)
        pointers, value, mask, _ = _same_shape(pointers, value, mask, programs)
        _undo.record(self, pointers, mask)
        return stock(self, operation, pointers, value, mask, *rest)

    return atomic


def _same_shape(*handles: TensorHandle) -> list[TensorHandle]:
    arrays = np.broadcast_arrays(*(handle.data for handle in handles))
    return [
        TensorHandle(np.ascontiguousarray(array), handle.dtype) for array, handle in zip(arrays, handles, strict=True)
    ]


def _same_programs(*arrays: Array) -> list[Array]:
    programs = max(len(array) for array in arrays)
    return [np.broadcast_to(array, (programs, *array.shape[1:])) for array in arrays]


def _splat(value: TensorHandle, shape: Sequence[int]) -> TensorHandle:
    # a scalar, or a block of one element
    data = value.data.reshape(len(value.data), *(1,) * len(shape))
    return _handle(np.broadcast_to(data, (len(data), *shape)), value.dtype)


def _broadcast(block: TensorHandle, shape: Sequence[int]) -> TensorHandle:
    return _handle(np.broadcast_to(block.data, (len(block.data), *shape)), block.dtype)


def _gather(block: TensorHandle, index: TensorHandle, axis: int) -> TensorHandle:
    data, indices = _same_programs(block.data, index.data)
    return _handle(np.take_along_axis(data, indices, axis), block.dtype)


def _to_tensor(self: Any, data: Array, dtype: tl.dtype) -> Any:
    data = data.astype(interpreter._get_np_dtype(dtype), copy=False)
    block = tl.block_type(dtype, list(data.shape[1:])) if data.ndim > 1 else dtype
    return tl.core.tensor(_handle(data, dtype), block)


def _apply(self: Any, inputs: Any) -> Any:
    """Reduce or scan along the axis behind the programs' one."""
    if not isinstance(inputs, tuple):
        return _apply(self, (inputs,))[0]
    if self.axis is None:
        if self.keep_dims:
            raise NotImplementedError("reduce a whole block and keep its rank: no kernel did that so far")
        inputs = tuple(self.to_tensor(x.handle.data.reshape(len(x.handle.data), -1), x.dtype) for x in inputs)
        self.axis = 0
    self.axis = self.axis % len(inputs[0].shape) + 1
    outputs = self.apply_impl(inputs)
    return tuple(outputs) if isinstance(outputs, (list, tuple)) else (outputs,)


def _slices(self: Any, inputs: Sequence[Any]) -> Any:
    """Along the axis: a tuple of tensors, one of each input."""
    arrays = _same_programs(*(x.handle.data for x in inputs))
    for index in range(arrays[0].shape[self.axis]):
        yield tuple(
            self.to_tensor(array.take(index, self.axis), x.dtype) for array, x in zip(arrays, inputs, strict=True)
        )


def _combine(self: Any, total: tuple[Any, ...], values: tuple[Any, ...]) -> tuple[Any, ...]:
    combined = self.combine_fn.fn(*total, *values)
    return combined if isinstance(combined, tuple) else (combined,)


def _reduce(self: Any, inputs: Sequence[Any]) -> list[Any]:
    slices = _slices(self, inputs)
    total = next(slices)
    for values in slices:
        total = _combine(self, total, values)
    if self.keep_dims:
        total = tuple(self.to_tensor(np.expand_dims(x.handle.data, self.axis), x.dtype) for x in total)
    return list(total)


def _scan(self: Any, inputs: Sequence[Any]) -> list[Any]:
    slices = _slices(self, inputs)
    totals = [next(slices)]
    for values in slices:
        totals.append(_combine(self, totals[-1], values))
    return [
        self.to_tensor(np.stack(_same_programs(*(x.handle.data for x in column)), axis=self.axis), column[0].dtype)
        for column in zip(*totals, strict=True)
    ]
