"""Follows SGLang values through one of our source files and reports each name that is read from them."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeAlias

from sgl_amd_mono.check.rows import Call, Row
from sgl_amd_mono.check.syntax import dotted, text
from sgl_amd_mono.check.tree import PACKAGE

# the classes a value can have, as paths; empty for a value that is not SGLang's
Owners: TypeAlias = frozenset[str]

_PLAIN: Owners = frozenset()
# a parameter that could be anything, so also something of SGLang's
_UNSAID: Owners = frozenset({"?"})
_READERS_BY_NAME = frozenset({"getattr", "hasattr", "setattr", "delattr"})
_VARIABLE_PREFIX = "SGLANG_"
_OWN_PREFIX = "SGLANG_AMD_MONO_"


@dataclass(frozen=True, slots=True)
class Use:
    """One touch of an SGLang name: `row` is its row, or None with the `problem`; `call` is how it is called there."""

    name: str
    line: int
    function: str
    row: Row | None
    problem: str = ""
    call: Call | None = None


def uses_in(tree: ast.Module, rows: Sequence[Row]) -> list[Use]:
    """Every use of an SGLang name in one file, in order."""
    flow = _Flow(rows)
    # what our own objects hold is known after one pass, and used in the second
    for _ in range(2):
        flow.uses.clear()
        flow.block(tree.body, _Scope("module", {}, {}))
    return sorted(flow.uses, key=lambda use: use.line)


@dataclass
class _Scope:
    """The SGLang values by variable and the imported names by path, as far as one function has come."""

    function: str
    values: dict[str, Owners]
    imported: dict[str, str] = field(default_factory=dict)

    def inner(self, function: str) -> _Scope:
        return _Scope(function, dict(self.values), dict(self.imported))


class _Flow:
    def __init__(self, rows: Sequence[Row]) -> None:
        self.uses: list[Use] = []
        # the SGLang values in attributes of our own objects, and what our own methods return, by name
        self._held: dict[str, Owners] = {}
        self._rows: dict[str, Row] = {}
        for row in rows:
            known = self._rows.get(row.path)
            # what two models read on one name may be of different classes
            self._rows[row.path] = replace(known, gives=_joined(known.gives, row.gives)) if known else row

    def block(self, statements: Sequence[ast.stmt], scope: _Scope) -> None:
        for statement in statements:
            self._statement(statement, scope)

    def _statement(self, statement: ast.stmt, scope: _Scope) -> None:
        match statement:
            case ast.ImportFrom(module=str(module), names=names) if module.partition(".")[0] == PACKAGE:
                for alias in names:
                    self._import(statement, module, alias, scope)
            case ast.Import(names=names):
                for alias in names:
                    if alias.name.partition(".")[0] == PACKAGE:
                        problem = "is imported as a module: import the name itself, so that a row can name it"
                        self._add(alias.name, statement, scope, None, problem)
            case ast.FunctionDef() | ast.AsyncFunctionDef():
                self._function(statement, scope)
            case ast.ClassDef():
                for base in statement.bases:
                    self._value(base, scope)
                inner = scope.inner(statement.name)
                self.block(statement.body, inner)
                for name in inner.values.keys() - scope.values.keys():
                    self._hold(name, inner.values[name])
            case ast.Assign(targets=targets, value=value):
                owners = self._value(value, scope)
                for target in targets:
                    self._bind(target, owners, scope)
            case ast.AnnAssign(target=target, annotation=annotation, value=value):
                assigned = self._value(value, scope) if value else _PLAIN
                self._bind(target, self._annotated(annotation, scope) or assigned, scope)
            case ast.For(target=target, iter=iterated, body=body, orelse=orelse):
                self._bind(target, self._value(iterated, scope), scope)
                self.block([*body, *orelse], scope)
            case ast.If(test=test, body=body, orelse=orelse):
                self._value(test, scope)
                narrowed = scope.inner(scope.function)
                self._narrow(test, narrowed)
                self.block(body, narrowed)
                self.block(orelse, scope)
                scope.values |= {name: owners for name, owners in narrowed.values.items() if name not in scope.values}
                scope.imported |= narrowed.imported
            case _:
                self._others(statement, scope)

    def _others(self, statement: ast.stmt, scope: _Scope) -> None:
        for child in ast.iter_child_nodes(statement):
            match child:
                case ast.expr():
                    self._value(child, scope)
                case ast.stmt():
                    self._statement(child, scope)
                case ast.withitem(context_expr=expression, optional_vars=target):
                    owners = self._value(expression, scope)
                    if target:
                        self._bind(target, owners, scope)
                case ast.ExceptHandler(body=body) | ast.match_case(body=body):
                    self.block(body, scope)

    def _import(self, statement: ast.stmt, module: str, alias: ast.alias, scope: _Scope) -> None:
        path = f"{module}:{alias.name}"
        scope.imported[alias.asname or alias.name] = path
        if path in self._rows:
            self._add(alias.name, statement, scope, self._rows[path])
        elif not any(row.owner == path or row.owner.startswith(f"{path}.") for row in self._rows.values()):
            self._add(path, statement, scope, None, "is imported but has no row")

    def _function(self, function: ast.FunctionDef | ast.AsyncFunctionDef, scope: _Scope) -> None:
        # calling it gives what it says it returns
        scope.values[function.name] = self._annotated(function.returns, scope) if function.returns else _PLAIN
        inner = scope.inner(function.name)
        arguments = function.args
        for argument in [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs]:
            inner.values[argument.arg] = self._parameter(argument, inner)
        for default in [*arguments.defaults, *filter(None, arguments.kw_defaults), *function.decorator_list]:
            self._value(default, scope)
        self.block(function.body, inner)

    def _parameter(self, argument: ast.arg, scope: _Scope) -> Owners:
        if argument.arg in {"self", "cls"}:
            return _PLAIN
        if argument.annotation is None or text(argument.annotation) in {"Any", "typing.Any"}:
            return _UNSAID
        return self._annotated(argument.annotation, scope)

    def _annotated(self, annotation: ast.expr, scope: _Scope) -> Owners:
        """The SGLang classes that a type expression names."""
        node = annotation
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            node = ast.parse(node.value, mode="eval").body
        names = {dotted(inner) for inner in ast.walk(node) if isinstance(inner, ast.Name | ast.Attribute)}
        return frozenset(
            scope.imported[head] + (f".{rest}" if rest else "")
            for head, _, rest in (name.partition(".") for name in _longest(names))
            if head in scope.imported
        )

    def _narrow(self, test: ast.expr, scope: _Scope) -> None:
        match test:
            case ast.Call(func=ast.Name(id="isinstance"), args=[ast.Name(id=name), cls]):
                if owners := self._annotated(cls, scope):
                    scope.values[name] = owners

    def _bind(self, target: ast.expr, owners: Owners, scope: _Scope) -> None:
        match target:
            case ast.Name(id=name):
                scope.values[name] = owners
            case ast.Tuple(elts=items) | ast.List(elts=items):
                for item in items:
                    self._bind(item, owners, scope)
            case ast.Attribute(value=value, attr=name):
                # writing an attribute needs it as much as reading it does
                holder = self._value(value, scope)
                self._read(name, holder, target, scope)
                if not holder:
                    self._hold(name, owners)
            case _:
                self._value(target, scope)

    def _value(self, node: ast.expr, scope: _Scope, call: Call | None = None) -> Owners:
        """The SGLang classes that the expression can have, noting every name it reads on the way."""
        match node:
            case ast.Name(id=name):
                if name in scope.imported:
                    return self._imported(name, node, scope, call)
                return scope.values.get(name, _PLAIN)
            case ast.Attribute(value=value, attr=name):
                return self._read(name, self._value(value, scope), node, scope, call)
            case ast.Call(func=function, args=arguments, keywords=keywords):
                return self._call(node, function, arguments, keywords, scope)
            case ast.Subscript(value=value, slice=index):
                self._value(index, scope)
                return self._value(value, scope)
            case ast.IfExp(test=test, body=body, orelse=orelse):
                self._value(test, scope)
                return self._value(body, scope) | self._value(orelse, scope)
            case ast.BoolOp(values=values):
                return frozenset().union(*(self._value(value, scope) for value in values))
            case ast.NamedExpr(target=target, value=value):
                owners = self._value(value, scope)
                self._bind(target, owners, scope)
                return owners
            case ast.ListComp() | ast.SetComp() | ast.GeneratorExp() | ast.DictComp():
                return self._comprehension(node, scope)
            case ast.Constant(value=str(literal)):
                self._variable(literal, node, scope)
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.expr):
                self._value(child, scope)
        return _PLAIN

    def _comprehension(
        self, node: ast.ListComp | ast.SetComp | ast.GeneratorExp | ast.DictComp, scope: _Scope
    ) -> Owners:
        inner = scope.inner(scope.function)
        for generator in node.generators:
            self._bind(generator.target, self._value(generator.iter, inner), inner)
            for condition in generator.ifs:
                self._value(condition, inner)
        if isinstance(node, ast.DictComp):
            self._value(node.key, inner)
            return self._value(node.value, inner)
        return self._value(node.elt, inner)

    def _call(
        self,
        node: ast.Call,
        function: ast.expr,
        arguments: Sequence[ast.expr],
        keywords: Sequence[ast.keyword],
        scope: _Scope,
    ) -> Owners:
        passed = [self._value(argument, scope) for argument in arguments]
        for keyword in keywords:
            self._value(keyword.value, scope)
        match function, arguments:
            case ast.Name(id=reader), [_, ast.Constant(value=str(name)), *_] if reader in _READERS_BY_NAME:
                return self._read(name, passed[0], node, scope)
            case ast.Name(id="type" | "iter" | "list" | "tuple" | "reversed" | "enumerate" | "zip"), [_, *_]:
                return frozenset().union(*passed)
        call = Call(len(arguments), tuple(keyword.arg for keyword in keywords if keyword.arg))
        return self._value(function, scope, call)

    def _imported(self, name: str, node: ast.expr, scope: _Scope, call: Call | None) -> Owners:
        path = scope.imported[name]
        row = self._rows.get(path)
        if call and row:
            self._add(name, node, scope, row, call=call)
        # reading on from a class reads the class; calling it, or a function, gives what the row says
        return frozenset(row.gives) if row and row.gives else frozenset({path}) if self._is_owner(path) else _PLAIN

    def _read(self, name: str, owners: Owners, node: ast.expr, scope: _Scope, call: Call | None = None) -> Owners:
        """The classes of `owner.name`, with the use noted."""
        if not owners:
            return self._held.get(name, _PLAIN)
        if owners == _UNSAID:
            self._add(name, node, scope, None, "is read from a parameter whose class is not declared: annotate it")
            return _PLAIN
        found = [row for owner in sorted(owners) if (row := self._rows.get(f"{owner}.{name}"))]
        if not found:
            on = " or ".join(sorted(owner.rpartition(":")[2] for owner in owners))
            elsewhere = sorted({row.label for row in self._rows.values() if row.name == name})
            hint = f" (there is one for {', '.join(elsewhere)})" if elsewhere else ""
            self._add(f"{on}.{name}", node, scope, None, f"is read but has no row{hint}")
            return _PLAIN
        for row in found:
            self._add(name, node, scope, row, call=call)
        return frozenset(owner for row in found for owner in row.gives)

    def _hold(self, name: str, owners: Owners) -> None:
        if owners and owners != _UNSAID:
            self._held[name] = self._held.get(name, _PLAIN) | owners

    def _variable(self, literal: str, node: ast.expr, scope: _Scope) -> None:
        """An environment variable named in a literal needs a row, of the variable or of a function that reads it."""
        if not literal.startswith(_VARIABLE_PREFIX) or literal.startswith(_OWN_PREFIX) or " " in literal:
            return
        rows = [row for row in self._rows.values() if literal == row.name or literal in row.steps]
        problem = "" if rows else "is an SGLang variable without a row"
        self._add(literal, node, scope, rows[0] if rows else None, problem)

    def _is_owner(self, path: str) -> bool:
        return any(row.owner == path or row.owner.startswith(f"{path}.") for row in self._rows.values())

    def _add(
        self,
        name: str,
        node: ast.expr | ast.stmt,
        scope: _Scope,
        row: Row | None,
        problem: str = "",
        call: Call | None = None,
    ) -> None:
        self.uses.append(Use(name, node.lineno, scope.function, row, problem, call))


def _joined(first: Sequence[str], second: Sequence[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys((*first, *second)))


def _longest(names: set[str]) -> Iterator[str]:
    """The dotted names that are no prefix of another of them."""
    return (name for name in names if name and not any(other.startswith(f"{name}.") for other in names))
