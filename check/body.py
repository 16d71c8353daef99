"""What a method does to `self`: assigns, deletes, passes on, and under which conditions."""

from __future__ import annotations

import ast
from collections.abc import Sequence

from sgl_amd_mono.check.facts import Assign, Guards, Invoke
from sgl_amd_mono.check.syntax import calls, dotted, statements, text

# calls that set an attribute under a literal name: function -> position of the name among the arguments
_SETTERS_OF_ARGUMENT = {"setattr": 1, "object.__setattr__": 1}
_SETTERS_OF_SELF = frozenset({"register_buffer", "register_parameter", "register_module", "add_module", "__setattr__"})


class Body:
    """Collects the effects of one method on its first parameter, here called `self` whatever its name is."""

    def __init__(self, self_name: str) -> None:
        self.assigns: list[Assign] = []
        self.deletes: list[str] = []
        self.invokes: list[Invoke] = []
        self.ends: list[Guards] = []
        self.imports: list[ast.Import | ast.ImportFrom] = []
        self._self = self_name

    def read(self, block: Sequence[ast.stmt]) -> None:
        """Collect from the statements of the method."""
        for statement, guards in statements(block):
            self._statement(statement, guards)

    def _statement(self, statement: ast.stmt, guards: Guards) -> None:
        match statement:
            case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
                return
            case ast.Import() | ast.ImportFrom():
                self.imports.append(statement)
            case ast.Raise():
                self.ends.append(guards)
            case ast.Assign():
                for target in statement.targets:
                    self._target(target, guards, text(statement.value), "")
            case ast.AugAssign():
                self._target(statement.target, guards, text(statement.value), "")
            case ast.AnnAssign():
                value = text(statement.value) if statement.value else ""
                self._target(statement.target, guards, value, text(statement.annotation))
            case ast.For() | ast.AsyncFor():
                self._target(statement.target, guards, f"an item of {text(statement.iter)}", "")
            case ast.With() | ast.AsyncWith():
                for item in statement.items:
                    if item.optional_vars:
                        self._target(item.optional_vars, guards, text(item.context_expr), "")
            case ast.Delete():
                self.deletes += [name for target in statement.targets if (name := self._attribute(target))]
        for call in calls(statement):
            self._call(call, guards)

    def _attribute(self, node: ast.expr) -> str:
        match node:
            case ast.Attribute(value=ast.Name(id=owner), attr=name) if owner == self._self:
                return name
        return ""

    def _target(self, target: ast.expr, guards: Guards, value: str, annotation: str) -> None:
        if isinstance(target, ast.Tuple | ast.List):
            for item in target.elts:
                self._target(item, guards, f"an item of {value}", "")
        elif isinstance(target, ast.Starred):
            self._target(target.value, guards, value, annotation)
        elif name := self._attribute(target):
            self.assigns.append(Assign(name, target.lineno, guards, value, annotation))

    def _call(self, call: ast.Call, guards: Guards) -> None:
        function, arguments = call.func, call.args
        takes_self = bool(arguments) and isinstance(arguments[0], ast.Name) and arguments[0].id == self._self
        position = _SETTERS_OF_ARGUMENT.get(dotted(function)) if takes_self else None
        match function:
            case ast.Attribute(value=ast.Name(id=owner), attr=method) if owner == self._self:
                if method in _SETTERS_OF_SELF:
                    position = 0
                self.invokes.append(Invoke("self", method, guards))
            case ast.Attribute(value=ast.Call(func=ast.Name(id="super"), args=of), attr=method):
                target = f"super:{text(of[0])}" if of else "super"
                self.invokes.append(Invoke(target, method, guards))
            case ast.Attribute(value=owner_node, attr=method) if takes_self and dotted(owner_node):
                self.invokes.append(Invoke(dotted(owner_node), method, guards))
        if position is not None and len(arguments) > position:
            match arguments[position]:
                case ast.Constant(value=str(name)):
                    value = text(arguments[position + 1]) if len(arguments) > position + 1 else "..."
                    self.assigns.append(Assign(name, call.lineno, guards, value, ""))
