"""Which method bodies run while an object is constructed, and so which attributes it is born with."""

from __future__ import annotations

from dataclasses import dataclass

from sgl_amd_mono.check.facts import Assign, Function, Guards, Invoke
from sgl_amd_mono.check.guards import effective
from sgl_amd_mono.check.inherit import Inheritance
from sgl_amd_mono.check.names import ClassAt, Names, named

_CONSTRUCTORS = ("__new__", "__init__", "__post_init__")


@dataclass(frozen=True, slots=True)
class Step:
    """One method body that runs during construction, under `guards`."""

    cls: ClassAt
    function: Function
    guards: Guards

    def same(self, function: Function, guards: Guards) -> bool:
        """Whether the step is this body under these conditions."""
        return self.function is function and self.guards == guards


@dataclass(frozen=True, slots=True)
class Set:
    """One assignment to an attribute of the object, in `function` of `cls`, under `guards`."""

    cls: ClassAt
    function: Function
    assign: Assign
    guards: Guards


class Construction:
    """The construction closure of one runtime class.

    It is what `cls(...)` reaches from the effective `__init__` through `self.m()`, `super().m()` and the borrowed
    `Other.m(self)`. Names are resolved for the runtime class: an override in it replaces the base's method, and a base
    constructor that is not called does not count.
    """

    def __init__(self, cls: ClassAt, names: Names, inheritance: Inheritance) -> None:
        self._names = names
        self._inheritance = inheritance
        self._order = inheritance.classes(cls)
        self.steps: list[Step] = []
        for name in _CONSTRUCTORS:
            self._enter(self._order, name, (), ())

    def sets(self, name: str) -> list[Set]:
        """The assignments of `self.<name>` that construction reaches."""
        return [
            Set(step.cls, step.function, assign, step.guards + assign.guards)
            for step in self.steps
            for assign in step.function.assigns
            if assign.name == name
        ]

    def late_sets(self, name: str) -> list[Set]:
        """The assignments of `self.<name>` that only other methods of the class or its ancestors make."""
        reached = {(step.cls, step.function.name, step.function.line) for step in self.steps}
        return [
            Set(cls, function, assign, assign.guards)
            for cls in self._order
            for function in cls.definition.body
            if isinstance(function, Function) and (cls, function.name, function.line) not in reached
            for assign in function.assigns
            if assign.name == name
        ]

    def most_derived(self, sets: list[Set]) -> Set:
        """The one of `sets` that comes first in the method resolution order."""
        return min(
            sets, key=lambda found: self._order.index(found.cls) if found.cls in self._order else len(self._order)
        )

    @property
    def ends(self) -> list[Guards]:
        """The conditions under which construction raises."""
        return [step.guards + guards for step in self.steps for guards in step.function.ends]

    def _enter(self, order: list[ClassAt], name: str, guards: Guards, running: tuple[Function, ...]) -> None:
        """Add the method `name`, as `order` finds it, and whatever it passes `self` to; `running` are its callers."""
        for cls in order:
            functions = effective([d for d in named(cls.definition.body, name) if isinstance(d, Function)])
            for function in functions:
                step = Step(cls, function, guards)
                if any(function is caller for caller in running) or any(s.same(function, guards) for s in self.steps):
                    continue
                self.steps.append(step)
                for invoke in function.invokes:
                    search = self._order_of(invoke, step)
                    self._enter(search, invoke.method, guards + invoke.guards, (*running, function))
            if functions:
                return

    def _order_of(self, invoke: Invoke, step: Step) -> list[ClassAt]:
        """The classes to search for the method that `invoke` calls from `step`."""
        if invoke.target == "self":
            return self._order
        start = step.cls
        if invoke.target.startswith("super:"):
            named_class = self._class(invoke.target.removeprefix("super:"), step)
            start = named_class or start
        elif invoke.target != "super":
            other = self._class(invoke.target, step)
            return self._inheritance.classes(other) if other else []
        # super() searches the runtime class's order; a borrowed method's class may not be part of it
        order = self._order if start in self._order else self._inheritance.classes(start)
        return order[order.index(start) + 1 :]

    def _class(self, name: str, step: Step) -> ClassAt | None:
        for local in step.function.imports:
            if local.name == name:
                return self._names.class_at(f"{local.module}:{local.attribute}")
        targets = self._names.in_scope(step.cls, name) or self._names.follow(step.cls.module, name)
        found = [target for target in targets if isinstance(target, ClassAt)]
        return found[0] if found else None
