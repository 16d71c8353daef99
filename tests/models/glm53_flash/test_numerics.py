from __future__ import annotations

import math

import pytest
import torch

from sgl_amd_mono.metrics import Measured
from sgl_amd_mono.models.glm53_flash import numerics
from sgl_amd_mono.models.glm53_flash.numerics import BOUNDS, compare


def test_metrics_are_what_they_say(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(numerics, "BOUNDS", {"l.o.max_abs": 1.0, "l.o.rel": 0.2, "l.o.rms": 0.5, "l.other.rel": 0.0})
    reference = torch.tensor([3.0, -4.0, 0.0, 0.0])
    actual = torch.tensor([3.0, -3.0, 0.0, 0.0])
    measured = compare("l", "o", actual, reference)
    # by hand: the error is 1 of at most 4; root mean squares are 1/2 and 5/2
    assert measured[:2] == [Measured("l.o.max_abs", 1.0, 1.0), Measured("l.o.rel", 0.25, 0.2)]
    assert measured[2].name == "l.o.rms"
    assert measured[2].value == pytest.approx(0.2)
    assert [m.ok for m in measured] == [True, False, True]


@pytest.mark.parametrize("name", BOUNDS)
def test_nothing_that_is_not_a_number_passes(name: str) -> None:
    launch, output, _ = name.split(".")
    reference = torch.ones(4)
    for wrong in (math.nan, math.inf, -math.inf):
        actual = torch.tensor([1.0, wrong, 1.0, 1.0])
        assert not any(measured.ok for measured in compare(launch, output, actual, reference))
    assert all(measured.ok for measured in compare(launch, output, reference, reference))


def test_a_reference_of_zeros_allows_only_zeros() -> None:
    zeros = torch.zeros(3)
    assert all(measured.ok for measured in compare("kda_output", "partial", zeros, zeros))
    tiny = torch.tensor([0.0, 1e-30, 0.0])
    assert not any(measured.ok for measured in compare("kda_output", "partial", tiny, zeros))


def test_what_cannot_be_compared_is_an_error() -> None:
    with pytest.raises(KeyError, match=r"no bound for kda_project\.nothing"):
        compare("kda_project", "nothing", torch.ones(1), torch.ones(1))
    with pytest.raises(ValueError, match=r"shape \[2\] against \[1\]"):
        compare("kda_project", "projected", torch.ones(2), torch.ones(1))
