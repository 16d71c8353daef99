"""Facts of one module from its source."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence

from sgl_amd_mono.check.body import Body
from sgl_amd_mono.check.facts import Class, Definition, Function, Guards, Import, Module, Parameter, Value
from sgl_amd_mono.check.syntax import branches, dotted, text


def extract(name: str, path: str, source: bytes) -> Module:
    """The facts of the module `name` at `path`.

    Raises
    ------
    SyntaxError
        The source is not valid for this Python.
    """
    package = name if path.endswith("/__init__.py") else name.rpartition(".")[0]
    return Module(name, path, tuple(_definitions(ast.parse(source).body, package, (), in_class=False)))


def _definitions(block: Sequence[ast.stmt], package: str, guards: Guards, *, in_class: bool) -> Iterator[Definition]:
    for statement in block:
        match statement:
            case ast.FunctionDef() | ast.AsyncFunctionDef():
                yield _function(statement, package, guards, in_class=in_class)
            case ast.ClassDef():
                yield Class(
                    statement.name,
                    statement.lineno,
                    statement.end_lineno or statement.lineno,
                    guards,
                    tuple(map(text, statement.decorator_list)),
                    tuple(map(text, statement.bases)),
                    tuple(f"{keyword.arg}={text(keyword.value)}" for keyword in statement.keywords),
                    tuple(_definitions(statement.body, package, (), in_class=True)),
                )
            case ast.Import() | ast.ImportFrom():
                yield from imports(statement, package, guards)
            case ast.Assign():
                for target in statement.targets:
                    yield from _values(target, statement, text(statement.value), guards)
            case ast.AnnAssign(target=ast.Name(id=name)):
                value = text(statement.value) if statement.value else ""
                yield Value(name, statement.lineno, guards, value, text(statement.annotation))
            case ast.Expr(
                value=ast.Call(func=ast.Name(id="setattr"), args=[owner, ast.Constant(value=str(name)), value])
            ):
                yield Value(f"{text(owner)}.{name}", statement.lineno, guards, text(value), "")
            case _:
                for inner, guard in branches(statement):
                    yield from _definitions(inner, package, guards + guard, in_class=in_class)


def _values(target: ast.expr, statement: ast.stmt, value: str, guards: Guards) -> Iterator[Value]:
    """The names that one assignment target binds; `Class.name = value` is bound as `Class.name`."""
    if isinstance(target, ast.Tuple | ast.List):
        for item in target.elts:
            yield from _values(item, statement, f"an item of {value}", guards)
    elif name := dotted(target):
        yield Value(name, statement.lineno, guards, value, "")


def imports(statement: ast.Import | ast.ImportFrom, package: str, guards: Guards) -> Iterator[Import]:
    """The names that an import statement inside `package` binds."""
    if isinstance(statement, ast.Import):
        for alias in statement.names:
            # `import a.b` binds a, `import a.b as c` binds c to a.b
            module = alias.name if alias.asname else alias.name.partition(".")[0]
            yield Import(alias.asname or module, statement.lineno, guards, module, "")
        return
    module = statement.module or ""
    if statement.level:
        base = package.split(".")[: len(package.split(".")) - statement.level + 1]
        module = ".".join([*base, module] if module else base)
    for alias in statement.names:
        yield Import(alias.asname or alias.name, statement.lineno, guards, module, alias.name)


def _function(
    node: ast.FunctionDef | ast.AsyncFunctionDef, package: str, guards: Guards, *, in_class: bool
) -> Function:
    header = (
        node.name,
        node.lineno,
        node.end_lineno or node.lineno,
        guards,
        tuple(map(text, node.decorator_list)),
        tuple(_parameters(node.args)),
        text(node.returns) if node.returns else "",
    )
    arguments = node.args.posonlyargs + node.args.args
    if not in_class or not arguments or "staticmethod" in header[4]:
        return Function(*header)
    body = Body(arguments[0].arg)
    body.read(node.body)
    return Function(
        *header,
        assigns=tuple(body.assigns),
        deletes=tuple(body.deletes),
        invokes=tuple(body.invokes),
        ends=tuple(body.ends),
        imports=tuple(found for statement in body.imports for found in imports(statement, package, ())),
    )


def _parameters(arguments: ast.arguments) -> Iterator[Parameter]:
    def parameter(argument: ast.arg, kind: str, default: ast.expr | None = None) -> Parameter:
        annotation = text(argument.annotation) if argument.annotation else ""
        return Parameter(argument.arg, kind, text(default) if default else "", annotation)

    positional = [(a, "POSITIONAL_ONLY") for a in arguments.posonlyargs]
    positional += [(a, "POSITIONAL_OR_KEYWORD") for a in arguments.args]
    required = len(positional) - len(arguments.defaults)
    for index, (argument, kind) in enumerate(positional):
        yield parameter(argument, kind, arguments.defaults[index - required] if index >= required else None)
    if arguments.vararg:
        yield parameter(arguments.vararg, "VAR_POSITIONAL")
    for argument, default in zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True):
        yield parameter(argument, "KEYWORD_ONLY", default)
    if arguments.kwarg:
        yield parameter(arguments.kwarg, "VAR_KEYWORD")
