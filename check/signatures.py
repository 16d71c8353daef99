"""Whether a call still fits a signature."""

from __future__ import annotations

import inspect

from sgl_amd_mono.check.facts import Function, Parameter
from sgl_amd_mono.check.kinds import Kind
from sgl_amd_mono.check.rows import Call


def signature(parameters: tuple[Parameter, ...]) -> inspect.Signature:
    """The parameters as Python's own signature, which knows how to bind a call."""
    return inspect.Signature(
        [
            inspect.Parameter(
                parameter.name,
                getattr(inspect.Parameter, parameter.kind),
                default=_Text(parameter.default) if parameter.default else inspect.Parameter.empty,
            )
            for parameter in parameters
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
