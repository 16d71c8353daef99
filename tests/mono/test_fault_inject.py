"""MONO_FAULT_INJECT: what it may say, what it is refused for, and when a fault happens."""

from __future__ import annotations

import pytest

from sgl_amd_mono.errors import MonoError
from sgl_amd_mono.fault_inject import FaultInjection, FaultInjectionKind, injected_fault

REGIONS, LAYERS = ("state", "partial"), (0, 2)


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        (None, None),
        ("skip@2", FaultInjection(kind=FaultInjectionKind.SKIP, layer=2)),
        ("stall@0+3/1", FaultInjection(kind=FaultInjectionKind.STALL, layer=0, after=3, rank=1)),
        ("corrupt:state@2/0", FaultInjection(kind=FaultInjectionKind.CORRUPT, layer=2, region="state", rank=0)),
    ],
)
def test_faults(monkeypatch: pytest.MonkeyPatch, text: str | None, fault: FaultInjection | None) -> None:
    monkeypatch.delenv("MONO_FAULT_INJECT", raising=False)
    if text is not None:
        monkeypatch.setenv("MONO_FAULT_INJECT", text)
    assert injected_fault(REGIONS, LAYERS) == fault


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("explode@0", "the kind one of"),
        ("skip", "expected kind"),
        ("skip@-1", "expected kind"),
        ("skip@1", r"layer 1 is not fused; \[0, 2\] are"),
        ("corrupt@0", "names one of state, partial"),
        ("corrupt:logits@0", "names one of state, partial"),
        ("skip:state@0", "and nothing else"),
    ],
)
def test_others_are_refused(monkeypatch: pytest.MonkeyPatch, text: str, said: str) -> None:
    monkeypatch.setenv("MONO_FAULT_INJECT", text)
    with pytest.raises(MonoError, match=said):
        injected_fault(REGIONS, LAYERS)


def test_when_it_happens() -> None:
    fault = FaultInjection(kind=FaultInjectionKind.SKIP, layer=0, after=2, rank=1)
    assert [fault.hits(step, 1) for step in range(4)] == [False, False, True, True]
    assert not fault.hits(3, 0)
    assert FaultInjection(kind=FaultInjectionKind.SKIP, layer=0).hits(0, 5)
