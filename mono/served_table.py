"""What serves the layers of a model, as a table for a terminal."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

from rich.table import Table


def served_table(served: Sequence[tuple[str, str]], title: str) -> Table:
    """One row a range of layers whose attention half and feed-forward half are served alike."""
    table = Table("layers", "attention half", "feed-forward half", title=title, title_justify="left")
    for halves, group in itertools.groupby(enumerate(served), key=lambda layer: layer[1]):
        numbers = [number for number, _ in group]
        span = str(numbers[0]) if len(numbers) == 1 else f"{numbers[0]}-{numbers[-1]}"
        table.add_row(span, *halves)
    return table
