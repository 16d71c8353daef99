"""Judges rows in one tree: finds what a row names and compares it with what the row says."""

from __future__ import annotations

import difflib
from collections.abc import Iterator

from sgl_amd_mono.check.compare import Comparison, Found
from sgl_amd_mono.check.facts import Module
from sgl_amd_mono.check.findings import Finding, Verdict
from sgl_amd_mono.check.index import Index
from sgl_amd_mono.check.kinds import Kind
from sgl_amd_mono.check.members import Members
from sgl_amd_mono.check.names import At, ClassAt, External, Names, Target
from sgl_amd_mono.check.rows import ANYWHERE, Row
from sgl_amd_mono.check.store import Store
from sgl_amd_mono.check.tree import Tree

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
            owners = self._owners(on)
            said += [self._no_owner(row, on)] if not owners else []
            for owner in owners:
                found = self._on(owner, row.name)
                said += [self._absent(row, on, owner)] if not found else []
                said += [finding for one in found for finding in self._comparison.findings(row, on, one)]
        worst = [finding for finding in said if finding.verdict is not Verdict.OK]
        return worst or said[:1]

    def find(self, row: Row) -> list[Found]:
        """What `row` names on its owner; more than one where the source does not settle which."""
        return [found for owner in self._owners(row.owner) for found in self._on(owner, row.name)]

    def _owners(self, path: str) -> list[Target]:
        """The classes, or the module, that `path` stands for."""
        module, _, name = path.partition(":")
        if module == ANYWHERE:
            found = self.index.named(name)
            return [*found] if len(found) == 1 else []
        return [target for target in self.names.find(path) if isinstance(target, ClassAt | Module | External)]

    def _on(self, owner: Target, name: str) -> list[Found]:
        """What `name` is on `owner`; the owner itself where the name is empty."""
        if isinstance(owner, ClassAt):
            return [*self.members.find(owner, name)] if name else [owner]
        if isinstance(owner, Module):
            return [target for target in self.names.follow(owner, name) if isinstance(target, At)]
        return []

    def _absent(self, row: Row, on: str, owner: Target) -> Finding:
        """The finding for a name that `owner` does not have."""
        if isinstance(owner, External):
            return Finding(row, Verdict.UNKNOWN, on, f"cannot be judged: it comes from {owner.label}")
        if isinstance(owner, ClassAt):
            if reason := self.members.unknowable(owner):
                return Finding(row, Verdict.UNKNOWN, on, f"not declared, but {reason}", owner.place)
            hints = self._hints(row, self.members.nearest(owner))
            return Finding(row, Verdict.MISSING, on, f"{owner.qualname} has no {row.name}", owner.place, hints)
        assert isinstance(owner, Module)
        outside = [t.label for t in self.names.follow(owner, row.name) if isinstance(t, External)]
        if outside or self.names.is_dynamic(owner):
            reason = f"{owner.name} takes it from {outside[0]}" if outside else f"{owner.name} defines __getattr__"
            return Finding(row, Verdict.UNKNOWN, on, f"cannot be judged: {reason}", owner.path)
        hints = self._hints(row, [definition.name for definition in owner.body])
        return Finding(row, Verdict.MISSING, on, f"{owner.name} does not define it", "", hints)

    def _no_owner(self, row: Row, on: str) -> Finding:
        """The finding for an owner that the tree does not have."""
        module, _, qualname = on.partition(":")
        elsewhere = self.index.named(qualname.rpartition(".")[2]) if qualname else []
        text = f"there is no {qualname} in {module}" if qualname else f"there is no module {module}"
        if module == ANYWHERE:
            text = f"the tree has {len(elsewhere)} classes called {qualname}, expected one"
        hints = [f"{cls.qualname} is now at {cls.place}" for cls in elsewhere[:_MOST_HINTS]]
        return Finding(row, Verdict.MISSING, on, text, "", (*hints, *_replacement(row)))

    def _hints(self, row: Row, near: list[str]) -> tuple[str, ...]:
        holders = sorted(self.index.holders(row.name), key=lambda h: _distance(h.place, row.owner))
        hints = [f"{holder.owner} still has it ({holder.place})" for holder in holders[:_MOST_HINTS]]
        if len(holders) > _MOST_HINTS:
            hints.append(f"so have {len(holders) - _MOST_HINTS} more, see --explain {row.name}")
        if close := difflib.get_close_matches(row.name, near, n=3):
            hints.append(f"nearest names: {', '.join(close)}")
        return (*hints, *_replacement(row))

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


def _replacement(row: Row) -> tuple[str, ...]:
    return (f"replaced by {row.replaced_by}",) if row.replaced_by else ()


def _distance(place: str, owner: str) -> tuple[int, str]:
    """How far a file is from the owner's: the same file, the same package, anywhere."""
    path = owner.partition(":")[0].replace(".", "/")
    file = place.partition(":")[0]
    if file in {f"{path}.py", f"{path}/__init__.py"}:
        return 0, place
    return (1 if file.startswith(path.rpartition("/")[0]) else 2), place
