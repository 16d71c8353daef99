"""What the monokernels of this process have served, readable while they run: `live_counters()`."""

from __future__ import annotations

from collections import Counter

import msgspec

_LIVE: list[StepCounters] = []


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


def new_counters() -> StepCounters:
    """Counters that `live_counters` finds from now on."""
    _LIVE.append(StepCounters())
    return _LIVE[-1]


def live_counters() -> tuple[StepCounters, ...]:
    """Counters of every monokernel that was built in this process, oldest first."""
    return tuple(_LIVE)
