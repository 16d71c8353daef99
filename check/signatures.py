"""Whether a call still fits a signature."""

from __future__ import annotations

import inspect

from sgl_amd_mono.check.facts import Function, Parameter
from sgl_amd_mono.check.kinds import Kind
from sgl_amd_mono.check.rows import Call

_KINDS = {kind.name: kind for kind in inspect._ParameterKind}


def signature(parameters: tuple[Parameter, ...]) -> inspect.Signature:
    """The parameters as Python's own signature, which knows how to bind a call."""
    empty = inspect.Parameter.empty
    return inspect.Signature(
        [
            inspect.Parameter(p.name, _KINDS[p.kind], default=_Text(p.default) if p.default else empty)
            for p in parameters
        ]
    )


def called_as(function: Function, kind: Kind) -> inspect.Signature:
    """The signature as a caller sees it: a method without its first parameter."""
    bound = kind in {Kind.METHOD, Kind.CLASS_METHOD, Kind.ABSTRACT}
    return signature(function.parameters[1:] if bound else function.parameters)


def misfit(found: inspect.Signature, call: Call) -> str:
    """Why `call` does not fit; empty where it does."""
    try:
        found.bind(*[None] * call.positional, **dict.fromkeys(call.keywords))
    except TypeError as error:
        return f"{error}; the signature is now {found}"
    if call.names and tuple(found.parameters)[: len(call.names)] != call.names:
        return f"the first parameters are not {', '.join(call.names)}; the signature is now {found}"
    return ""


class _Text:
    """A default value that shows as its source text."""

    def __init__(self, text: str) -> None:
        self._text = text

    def __repr__(self) -> str:
        return self._text
