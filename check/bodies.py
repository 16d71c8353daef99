"""What a function's body says, read on demand from its source: names, literals, calls in order, fingerprint."""

from __future__ import annotations

import ast
from dataclasses import dataclass
from functools import cached_property

from sgl_amd_mono.check.facts import Guards
from sgl_amd_mono.check.guards import on_rocm
from sgl_amd_mono.check.names import At
from sgl_amd_mono.check.syntax import calls, dotted, fingerprint, statements
from sgl_amd_mono.check.tree import Tree


@dataclass(frozen=True, slots=True)
class CallSite:
    """One call by dotted name and first argument, with the conditions round it."""

    name: str
    argument: str
    line: int
    guards: Guards

    def is_of(self, name: str) -> bool:
        """Whether the call is of `name`, alone or at the end of a chain; `f(x)` asks for the argument too."""
        function, _, argument = name.rstrip(")").partition("(")
        named = self.name == function or self.name.endswith(f".{function}")
        return named and argument in {"", self.argument}


class FunctionBody:
    """The syntax tree of one function of a tree."""

    def __init__(self, tree: Tree, at: At, end_line: int) -> None:
        lines = tree.read(at.module.path).decode().splitlines()[at.definition.line - 1 : end_line]
        # under an `if`, any indentation parses, whatever the multi-line strings inside look like
        head = ["if True:"] if lines[0][:1].isspace() else []
        (block,) = ast.parse("\n".join([*head, *lines])).body
        node = block.body[0] if isinstance(block, ast.If) else block
        assert isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        self._node = node
        self._first_line = at.definition.line - 1 - (isinstance(block, ast.If))

    @cached_property
    def fingerprint(self) -> str:
        """A hash that changes with what the body does."""
        return fingerprint(self._node)

    @cached_property
    def names(self) -> frozenset[str]:
        """Every variable and attribute name in the body."""
        found = set()
        for node in ast.walk(self._node):
            if isinstance(node, ast.Name):
                found.add(node.id)
            elif isinstance(node, ast.Attribute):
                found.add(node.attr)
        return frozenset(found)

    @cached_property
    def literals(self) -> frozenset[str]:
        """Every string literal in the body."""
        constants = (node.value for node in ast.walk(self._node) if isinstance(node, ast.Constant))
        return frozenset(value for value in constants if isinstance(value, str))

    @cached_property
    def calls(self) -> list[CallSite]:
        """The calls that ROCm can reach, in source order."""
        found = [
            CallSite(name, dotted(call.args[0]) if call.args else "", self._first_line + call.lineno, guards)
            for statement, guards in statements(self._node.body)
            for call in calls(statement)
            if (name := dotted(call.func)) and on_rocm(guards) is not False
        ]
        return sorted(found, key=lambda site: site.line)
