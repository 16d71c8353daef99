"""The class of a value, where the source says it: an annotation, or a constructor call."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from sgl_amd_mono.check.facts import Function
from sgl_amd_mono.check.members import Member
from sgl_amd_mono.check.names import At, ClassAt, Names

_WRAPPERS = frozenset({"Optional", "Union", "Final", "ClassVar"})


def given_classes(names: Names, found: Member | At) -> list[ClassAt]:
    """The classes that reading, or calling, `found` can give; empty where the source does not say."""
    if isinstance(found, At):
        function = found.definition
        return _annotated(names, found, function.returns) if isinstance(function, Function) else []
    if function_ := found.function:
        return _annotated(names, found.at, function_.returns)
    return _annotated(names, found.at, found.annotation) or _constructed(names, found)


def _annotated(names: Names, at: At, annotation: str) -> list[ClassAt]:
    """The classes that the annotation names; none where one of its parts is no class of the tree."""
    found: list[ClassAt] = []
    for name in _parts(annotation):
        classes = [target for target in names.in_scope(at, name, typing=True) if isinstance(target, ClassAt)]
        local = at.definition.imports if isinstance(at.definition, Function) else ()
        classes += [
            cls
            for imported in local
            if imported.name == name and (cls := names.class_at(f"{imported.module}:{imported.attribute}"))
        ]
        if not classes:
            return []
        found += classes
    return found


def _parts(annotation: str) -> Iterator[str]:
    """The dotted names in a type expression, without None and without `Optional` and its like."""
    try:
        node = ast.parse(annotation, mode="eval").body if annotation else None
    except SyntaxError:
        return
    match node:
        case ast.Constant(value=str(quoted)):
            yield from _parts(quoted)
        case ast.BinOp(op=ast.BitOr(), left=left, right=right):
            yield from _parts(ast.unparse(left))
            yield from _parts(ast.unparse(right))
        case ast.Subscript(value=wrapper, slice=inner) if ast.unparse(wrapper).rpartition(".")[2] in _WRAPPERS:
            for item in inner.elts if isinstance(inner, ast.Tuple) else [inner]:
                yield from _parts(ast.unparse(item))
        case ast.Name() | ast.Attribute() | ast.Subscript():
            yield ast.unparse(node)


def _constructed(names: Names, member: Member) -> list[ClassAt]:
    """The class of `self.x = Class(...)`, or of the parameter in `self.x = parameter`."""
    try:
        value = ast.parse(member.value, mode="eval").body
    except SyntaxError:
        return []
    match value:
        case ast.Call(func=called):
            # a plain function's name finds no class here, so its result stays unsaid
            return _annotated(names, member.at, ast.unparse(called))
        case ast.Name(id=name) if isinstance(member.at.definition, Function):
            annotations = [p.annotation for p in member.at.definition.parameters if p.name == name]
            return _annotated(names, member.at, annotations[0]) if annotations else []
    return []
