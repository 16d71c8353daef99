"""Small readings of syntax trees that several modules share."""

from __future__ import annotations

import ast
import hashlib
from collections.abc import Iterator, Sequence
from functools import cache

from sgl_amd_mono.check.facts import Guards

_LONGEST_TEXT = 160
_FINGERPRINT_DIGITS = 10


def text(node: ast.expr) -> str:
    """The expression as source text in one spelling, cut where it is long."""
    match node:
        case ast.Name(id=name):
            return name
        case ast.Constant(value=value):
            return repr(value)
        case ast.Attribute(value=ast.Name(id=owner), attr=name):
            return f"{owner}.{name}"
    spelled = ast.unparse(node)
    return spelled if len(spelled) <= _LONGEST_TEXT else f"{spelled[:_LONGEST_TEXT]}..."


def dotted(node: ast.expr) -> str:
    """`a.b.c` for a name or a chain of attributes of a name, else an empty string."""
    match node:
        case ast.Name(id=name):
            return name
        case ast.Attribute(value=value, attr=name):
            owner = dotted(value)
            return f"{owner}.{name}" if owner else ""
    return ""


@cache
def negated(guard: str) -> str:
    """The condition of the other branch."""
    try:
        match ast.parse(guard, mode="eval").body:
            case ast.UnaryOp(op=ast.Not(), operand=condition):
                return ast.unparse(condition)
            case condition:
                return ast.unparse(ast.UnaryOp(ast.Not(), condition))
    except SyntaxError:
        # not an expression: a case, or a text that was cut
        return guard[5:-1] if guard.startswith("not (") else f"not ({guard})"


def branches(statement: ast.stmt) -> Iterator[tuple[Sequence[ast.stmt], Guards]]:
    """The blocks inside a compound statement, each with the guards that the statement adds.

    A loop or `with` body and the body of a `try` add none: they run in the ordinary case.
    """
    match statement:
        case ast.If():
            guard = text(statement.test)
            yield statement.body, (guard,)
            yield statement.orelse, (negated(guard),)
        case ast.Try():
            yield statement.body, ()
            for handler in statement.handlers:
                yield handler.body, (f"except {text(handler.type) if handler.type else 'BaseException'}",)
            yield statement.orelse, ()
            yield statement.finalbody, ()
        case ast.For() | ast.AsyncFor() | ast.While():
            yield statement.body, ()
            yield statement.orelse, ()
        case ast.With() | ast.AsyncWith():
            yield statement.body, ()
        case ast.Match():
            for case in statement.cases:
                yield case.body, (f"match {text(statement.subject)}: case {ast.unparse(case.pattern)}",)


def statements(block: Sequence[ast.stmt], guards: Guards = ()) -> Iterator[tuple[ast.stmt, Guards]]:
    """Every statement in `block`, nested ones after their parent, with the guards round it.

    A branch that returns leaves the rest of the block to the other branch. Classes inside functions are not entered.
    """
    for statement in block:
        yield statement, guards
        if isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef):
            yield from statements(statement.body, (*guards, f"{statement.name}() is called"))
        for inner, guard in branches(statement):
            yield from statements(inner, guards + guard)
        if isinstance(statement, ast.If):
            if isinstance(statement.body[-1], ast.Return):
                guards = (*guards, negated(text(statement.test)))
            elif statement.orelse and isinstance(statement.orelse[-1], ast.Return):
                guards = (*guards, text(statement.test))


def calls(statement: ast.stmt) -> Iterator[ast.Call]:
    """The calls in the statement's own expressions, not in the blocks inside it."""
    for name, value in ast.iter_fields(statement):
        if name not in {"body", "orelse", "finalbody", "handlers", "cases"}:
            for node in value if isinstance(value, list) else [value]:
                if isinstance(node, ast.AST):
                    yield from (inner for inner in ast.walk(node) if isinstance(inner, ast.Call))


def literal(value: str) -> str:
    """The literal text in one spelling, so that 1_000 and 1000 or 'a' and "a" compare equal."""
    try:
        return repr(ast.literal_eval(value))
    except (ValueError, SyntaxError):
        return value


def fingerprint(node: ast.FunctionDef | ast.AsyncFunctionDef) -> str:
    """A hash of a function's body: blind to comments, layout, docstring and signature, the same for every Python."""
    body = node.body
    if (
        isinstance(body[0], ast.Expr)
        and isinstance(body[0].value, ast.Constant)
        and isinstance(body[0].value.value, str)
    ):
        body = body[1:]
    return hashlib.sha256(repr([_plain(statement) for statement in body]).encode()).hexdigest()[:_FINGERPRINT_DIGITS]


def _plain(node: object) -> object:
    if isinstance(node, list):
        return [_plain(item) for item in node]
    if not isinstance(node, ast.AST):
        return node
    # Pythons differ in the empty fields they add; contexts and type comments say nothing
    content = [
        (name, _plain(value)) for name, value in ast.iter_fields(node) if name not in {"ctx", "kind", "type_comment"}
    ]
    return type(node).__name__, [(name, value) for name, value in content if value not in (None, [])]
