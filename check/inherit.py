"""Method resolution order of a class, followed through imports and mixins."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

from sgl_amd_mono.check.errors import TreeError
from sgl_amd_mono.check.names import ClassAt, External, Names

Ancestor: TypeAlias = "ClassAt | External"

# outside classes that bring no attribute of SGLang's; any other one makes an absent name unknown instead of missing
_EMPTY_BASES = frozenset(
    {
        "abc.ABC",
        "enum.Enum",
        "enum.Flag",
        "enum.IntEnum",
        "enum.IntFlag",
        "enum.StrEnum",
        "msgspec.Struct",
        "object",
        "str",
        "int",
        "Exception",
        "torch.nn.Module",
        "typing.Generic",
        "typing.NamedTuple",
        "typing.Protocol",
        "typing_extensions.Protocol",
    }
)
_ENUMS = frozenset(label for label in _EMPTY_BASES if label.startswith("enum."))


class Inheritance:
    """Linearizes the classes of one tree."""

    def __init__(self, names: Names) -> None:
        self._names = names
        self._orders: dict[ClassAt, list[Ancestor]] = {}

    def bases(self, cls: ClassAt) -> list[Ancestor]:
        """The direct bases; one that the tree does not define is external."""
        found: list[Ancestor] = []
        for base in cls.definition.bases:
            expression = base.partition("[")[0]
            targets = self._names.in_scope(cls, expression)
            known = [target for target in targets if isinstance(target, ClassAt | External)]
            found.append(known[-1] if known else External(expression))
        return found

    def order(self, cls: ClassAt) -> list[Ancestor]:
        """The class, then its ancestors in the order in which Python searches them (C3).

        Raises
        ------
        TreeError
            The bases have no consistent order: Python would refuse the class.
        """
        if cls not in self._orders:
            # a class that inherits from itself meets this entry instead of recursing for ever
            self._orders[cls] = [cls]
            bases = self.bases(cls)
            orders = [self.order(base) if isinstance(base, ClassAt) else [base] for base in bases]
            merged = _merge([*orders, bases])
            if merged is None:
                raise TreeError(f"{cls.place}: the bases of {cls.qualname} have no consistent method resolution order")
            self._orders[cls] = [cls, *merged]
        return self._orders[cls]

    def classes(self, cls: ClassAt) -> list[ClassAt]:
        """The part of the order that the tree defines."""
        return [ancestor for ancestor in self.order(cls) if isinstance(ancestor, ClassAt)]

    def foreign(self, cls: ClassAt) -> list[str]:
        """The ancestors outside the tree that may define attributes of their own."""
        labels = [ancestor.label for ancestor in self.order(cls) if isinstance(ancestor, External)]
        return [label for label in labels if label not in _EMPTY_BASES]

    def is_enum(self, cls: ClassAt) -> bool:
        """Whether the class attributes are enum members."""
        return any(isinstance(ancestor, External) and ancestor.label in _ENUMS for ancestor in self.order(cls))

    def related(self, one: ClassAt, other: ClassAt) -> bool:
        """Whether one of the two is the other's ancestor, or they are the same."""
        return one in self.order(other) or other in self.order(one)


def _merge(sequences: Sequence[Sequence[Ancestor]]) -> list[Ancestor] | None:
    """The C3 merge: repeatedly take the first head that no sequence still has behind its head."""
    pending = [list(sequence) for sequence in sequences if sequence]
    merged: list[Ancestor] = []
    while pending:
        heads = (sequence[0] for sequence in pending)
        head = next((h for h in heads if not any(h in sequence[1:] for sequence in pending)), None)
        if head is None:
            return None
        merged.append(head)
        pending = [rest for sequence in pending if (rest := [item for item in sequence if item != head])]
    return merged
