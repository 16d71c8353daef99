"""Conditions round a definition: which can be true on ROCm, and what several of them amount to together."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Sequence
from functools import cache
from typing import Protocol, TypeVar

from sgl_amd_mono.check.facts import Guards
from sgl_amd_mono.check.syntax import dotted, negated

_TRUE_ON_ROCM = frozenset({"is_hip", "is_cuda_alike", "is_rocm"})
_FALSE_ON_ROCM = frozenset(
    {"is_cuda", "is_npu", "is_cpu", "is_xpu", "is_hpu", "is_musa", "is_mps", "is_host_cpu_arm64", "TYPE_CHECKING"}
)


class Guarded(Protocol):
    """Anything that carries guards."""

    @property
    def guards(self) -> Guards: ...


G = TypeVar("G", bound=Guarded)


def on_rocm(guards: Guards) -> bool | None:
    """Whether all `guards` hold on ROCm: True, False, or None where that is not known from the source."""
    verdicts = [_holds(guard) for guard in guards]
    if False in verdicts:
        return False
    return None if None in verdicts else True


def effective(definitions: Sequence[G]) -> list[G]:
    """The definitions of one name that can be the one in force on ROCm.

    They are the last certain one and any uncertain one after it. A definition in an `except` branch counts only where
    nothing else defines the name.
    """
    possible = [d for d in definitions if on_rocm(d.guards) is not False]
    ordinary = [d for d in possible if not _is_fallback(d.guards)]
    possible = ordinary or possible
    certain = [index for index, d in enumerate(possible) if on_rocm(d.guards) is True]
    return possible[certain[-1] :] if certain else possible


def alternatives(paths: Iterable[Guards], ends: Iterable[Guards] = ()) -> str:
    """The condition under which one of `paths` is taken, as text; empty where one is always taken.

    `ends` are the paths that end in an exception: whatever lives has taken none of them.
    """
    ended = {simplified for path in ends if (simplified := _simplified(path)) is not None}
    open_paths = {simplified for path in paths if (simplified := _simplified(path)) is not None} | ended
    while (joined := _join(open_paths)) is not None:
        open_paths = joined
    if any(not path for path in open_paths):
        return ""
    return " or ".join(sorted(" and ".join(path) for path in open_paths - ended)) or "False"


def _simplified(path: Guards) -> Guards | None:
    """The path without what always holds on ROCm; None where it cannot be taken."""
    if on_rocm(path) is False:
        return None
    return tuple(guard for guard in path if _holds(guard) is not True)


def _join(paths: set[Guards]) -> set[Guards] | None:
    """The paths with one condition or one path fewer, or None where nothing can go.

    A condition goes where another path covers its opposite, a path where another covers it whole.
    """
    for path in paths:
        for index, guard in enumerate(path):
            rest = (*path[:index], *path[index + 1 :])
            if any(other != path and set(other) <= {*rest, negated(guard)} for other in paths):
                return (paths - {path}) | {rest}
        if any(other != path and set(other) <= set(path) for other in paths):
            return paths - {path}
    return None


def _is_fallback(guards: Guards) -> bool:
    return any(guard.startswith("except ") for guard in guards)


@cache
def _holds(guard: str) -> bool | None:
    try:
        return _value(ast.parse(guard, mode="eval").body)
    except SyntaxError:
        # not an expression: an except clause, a case, a nested function
        return None


def _value(node: ast.expr) -> bool | None:
    match node:
        case ast.Constant(value=bool(value)):
            return value
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            inner = _value(operand)
            return None if inner is None else not inner
        case ast.BoolOp(op=op, values=operands):
            values = [_value(operand) for operand in operands]
            decisive = isinstance(op, ast.Or)
            return decisive if decisive in values else None if None in values else not decisive
        case ast.Call(func=function, args=[], keywords=[]):
            return _value(function)
        case ast.Name() | ast.Attribute():
            name = dotted(node).rpartition(".")[2].lstrip("_")
            return True if name in _TRUE_ON_ROCM else False if name in _FALSE_ON_ROCM else None
    return None
