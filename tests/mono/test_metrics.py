"""Metrics against numbers worked out by hand."""

from __future__ import annotations

import math

import pytest
import torch

from sgl_amd_mono.metrics import Measured, compare

BOUNDS = {"l.o.max_abs": 1.0, "l.o.rel": 0.2, "l.o.rms": 0.5, "l.o.cosine": 0.9}


def measured(actual: list[float], reference: list[float]) -> dict[str, float]:
    found = compare("l", "o", torch.tensor(actual), torch.tensor(reference), BOUNDS)
    return {m.name.rpartition(".")[2]: m.value for m in found}


def test_values() -> None:
    found = measured([3.0, 5.0], [4.0, 3.0])
    assert found["max_abs"] == 2
    assert found["rel"] == 0.5
    # sqrt((1 + 4) / 2) / sqrt((16 + 9) / 2), and (12 + 15) / (sqrt(34) * 5)
    assert found["rms"] == pytest.approx(math.sqrt(5 / 25))
    assert found["cosine"] == pytest.approx(27 / (5 * math.sqrt(34)))


def test_zeros_and_nothing_are_equal_to_themselves_alone() -> None:
    assert measured([0.0], [0.0]) == {"max_abs": 0, "rel": 0, "rms": 0, "cosine": 1}
    assert measured([], []) == {"max_abs": 0, "rel": 0, "rms": 0, "cosine": 1}
    assert measured([1.0], [0.0]) == {"max_abs": 1, "rel": math.inf, "rms": math.inf, "cosine": 0}


@pytest.mark.parametrize(
    ("name", "value", "limit", "ok", "strain"),
    [
        ("l.o.rel", 0.1, 0.2, True, 0.5),
        ("l.o.rel", 0.4, 0.2, False, 2.0),
        ("l.o.max_abs", 0.0, 0.0, True, 0.0),
        ("l.o.max_abs", 0.1, 0.0, False, math.inf),
        # a cosine may not be smaller
        ("l.o.cosine", 0.95, 0.9, True, 0.5),
        ("l.o.cosine", 0.8, 0.9, False, 2.0),
        ("l.o.cosine", math.nan, 0.9, False, math.inf),
        ("l.o.rel", math.nan, 0.2, False, math.inf),
    ],
)
def test_limits(name: str, value: float, limit: float, ok: bool, strain: float) -> None:
    found = Measured(name, value, limit)
    assert found.ok is ok
    assert found.strain == pytest.approx(strain)
