"""Judges rows in one tree: finds what a row names and compares it with what the row says."""

from __future__ import annotations

import difflib
from collections.abc import Iterator
from typing import TypeAlias

from sgl_amd_mono.check.compare import Comparison
from sgl_amd_mono.check.findings import Finding, Verdict
from sgl_amd_mono.check.index import Index
from sgl_amd_mono.check.kinds import Kind
from sgl_amd_mono.check.members import Member, Members
from sgl_amd_mono.check.names import At, ClassAt, External, Names
from sgl_amd_mono.check.rows import ANYWHERE, Row
from sgl_amd_mono.check.store import Store
from sgl_amd_mono.check.tree import Tree

Found: TypeAlias = "Member | At"

_MOST_HINTS = 4


class Judge:
    """Everything that the checker knows of one tree."""

    def __init__(self, tree: Tree, store: Store) -> None:
        self.tree = tree
        self.names = Names(tree, store)
        self.members = Members(self.names)
        self.index = Index(self.names, self.members.inheritance, store)
        self._comparison = Comparison(self.names, self.members)

    def findings(self, row: Row) -> list[Finding]:
        """What there is to say about `row`; one `ok` finding where everything is as the row says."""
        said = list(self._unseen_subclasses(row))
        for on in row.holds_for or (row.owner,):
            found = self.find(row, on)
            if not found:
                said.append(self._absent(row, on))
            for candidate in found:
                said += self._comparison.findings(row, on, candidate)
        worst = [finding for finding in said if finding.verdict is not Verdict.OK]
        return worst or said[:1]

    def find(self, row: Row, on: str) -> list[Found]:
        """What `row` names on the class or module `on`; more than one where the source does not settle which."""
        module, _, qualname = on.partition(":")
        owner = self._anywhere(qualname) if module == ANYWHERE else self.names.class_at(on) if qualname else None
        if owner is None:
            if qualname:
                return []
            return [t for t in self.names.find(row.path) if isinstance(t, At)]
        return list(self.members.find(owner, row.name)) if row.name else [owner]

    def _anywhere(self, name: str) -> ClassAt | None:
        found = self.index.named(name)
        return found[0] if len(found) == 1 else None

    def _absent(self, row: Row, on: str) -> Finding:
        """The finding for a name that `on` does not have."""
        module, _, qualname = on.partition(":")
        owner = None if module == ANYWHERE else self.names.class_at(on) if qualname else None
        if qualname and owner is None:
            return self._no_owner(row, on)
        if owner is None:
            source = self.names.module(module)
            if source is None:
                return self._no_owner(row, on)
            outside = [t.label for t in self.names.find(row.path) if isinstance(t, External)]
            if outside or self.names.is_dynamic(source):
                reason = f"{module} takes it from {outside[0]}" if outside else f"{module} defines __getattr__"
                return Finding(row, Verdict.UNKNOWN, on, f"cannot be judged: {reason}", source.path)
            near = [definition.name for definition in source.body]
            return Finding(row, Verdict.MISSING, on, f"{module} does not define it", "", self._hints(row, near))
        if reason := self.members.unknowable(owner):
            return Finding(row, Verdict.UNKNOWN, on, f"not declared, but {reason}", owner.place)
        near = self.members.nearest(owner)
        if not row.name:
            return Finding(row, Verdict.MISSING, on, "is not defined", "", self._hints(row, near))
        return Finding(
            row, Verdict.MISSING, on, f"{owner.qualname} has no {row.name}", owner.place, self._hints(row, near)
        )

    def _no_owner(self, row: Row, on: str) -> Finding:
        module, _, qualname = on.partition(":")
        last = (qualname or module).rpartition(".")[2]
        elsewhere = [f"{cls.qualname} is now at {cls.place}" for cls in self.index.named(last)] if qualname else []
        text = f"there is no {qualname} in {module}" if qualname else f"there is no module {module}"
        if module == ANYWHERE:
            text = f"there is not exactly one class {qualname} in the tree"
        return Finding(row, Verdict.MISSING, on, text, "", (*elsewhere[:_MOST_HINTS], *self._replacement(row)))

    def _hints(self, row: Row, near: list[str]) -> tuple[str, ...]:
        name = row.name or row.owner.rpartition(":")[2]
        holders = sorted(self.index.holders(name), key=lambda h: _distance(h.place, row.owner))
        hints = [f"{holder.owner} still has it ({holder.place})" for holder in holders[:_MOST_HINTS]]
        if len(holders) > _MOST_HINTS:
            hints.append(f"so have {len(holders) - _MOST_HINTS} more, see --explain {name}")
        if close := difflib.get_close_matches(name, near, n=3):
            hints.append(f"nearest names: {', '.join(close)}")
        return (*hints, *self._replacement(row))

    def _replacement(self, row: Row) -> tuple[str, ...]:
        return (f"replaced by {row.replaced_by}",) if row.replaced_by else ()

    def _unseen_subclasses(self, row: Row) -> Iterator[Finding]:
        """A subclass of the owner that nobody has decided about, once an owner: on its class row."""
        if row.kind is not Kind.CLASS or not (row.holds_for or row.not_served):
            return
        owner = self.names.class_at(row.owner)
        known = {row.owner, *row.holds_for, *row.not_served}
        for subclass in self.index.subclasses(owner) if owner else ():
            if subclass.label not in known:
                text = f"{subclass.qualname} inherits from {row.label}: decide whether its objects are served"
                yield Finding(row, Verdict.SUBCLASS, subclass.label, text, subclass.place)


def _distance(place: str, owner: str) -> tuple[int, str]:
    """How far a file is from the owner's: the same file, the same package, anywhere."""
    path = owner.partition(":")[0].replace(".", "/")
    file = place.partition(":")[0]
    if file in {f"{path}.py", f"{path}/__init__.py"}:
        return 0, place
    return (1 if file.startswith(path.rpartition("/")[0]) else 2), place
