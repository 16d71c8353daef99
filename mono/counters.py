"""What a monokernel has served, readable while it runs."""

from __future__ import annotations

from collections import Counter

import msgspec


class StepCounters(msgspec.Struct):
    """Counts since the model was loaded; a step that a graph replays passes Python only when it is captured."""

    fused: Counter[int] = msgspec.field(default_factory=Counter)
    """Routed steps that the kernels ran, by rows."""
    declined: Counter[str] = msgspec.field(default_factory=Counter)
    """Routed steps that the standard path ran, by reason."""
    checked: int = 0
    """Of the fused steps, those that were compared with the standard path."""

    def as_json(self) -> str:
        """One line of JSON."""
        return msgspec.json.encode(
            {
                "fused": {str(rows): count for rows, count in sorted(self.fused.items())},
                "declined": dict(self.declined),
                "checked": self.checked,
            }
        ).decode()
