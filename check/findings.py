"""What the checker says about one row in one tree."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from sgl_amd_mono.check.rows import Row


class Level(str, Enum):
    """What a verdict means for us."""

    OK = "ok"
    INFO = "info"
    REVIEW = "review"
    BREACH = "breach"


class Verdict(Enum):
    """The outcome for one row; the second value is its level."""

    OK = ("ok", Level.OK)
    MOVED = ("moved", Level.INFO)
    TWICE = ("defined twice", Level.INFO)
    BODY = ("body changed", Level.REVIEW)
    SUBCLASS = ("new subclass", Level.REVIEW)
    CONDITION = ("condition changed", Level.REVIEW)
    MISSING = ("missing", Level.BREACH)
    KIND = ("kind changed", Level.BREACH)
    WHEN = ("when changed", Level.BREACH)
    SIGNATURE = ("signature changed", Level.BREACH)
    VALUE = ("value changed", Level.BREACH)
    CALLS = ("calls changed", Level.BREACH)
    UNKNOWN = ("unknown", Level.BREACH)

    def __init__(self, text: str, level: Level) -> None:
        self.text = text
        self.level = level


@dataclass(frozen=True, slots=True)
class Finding:
    """One statement about one row.

    Attributes
    ----------
    on: the runtime class that was judged, or the owner
    text: what was found and what was expected
    place: upstream file:line, empty where the name is nowhere
    hints: where else the name is, what replaced it, what is near
    """

    row: Row
    verdict: Verdict
    on: str
    text: str = ""
    place: str = ""
    hints: tuple[str, ...] = ()

    @property
    def label(self) -> str:
        """The name as the reader meets it: on the runtime class."""
        qualname = self.on.rpartition(":")[2]
        return f"{qualname}.{self.row.name}" if self.row.name else qualname
