"""Check mode: routed steps are run by the standard path too, and every region that they write is compared.

`SGLANG_AMD_MONO_CHECK` chooses which steps and what a breach does; each model says what its regions are.
"""

from __future__ import annotations

import atexit
import logging
import re
from collections.abc import Mapping
from pathlib import Path

import msgspec
import torch
from rich.console import Console
from rich.table import Table
from torch import Tensor

from sgl_amd_mono import metrics
from sgl_amd_mono.env import CHECK, CHECK_REPORT
from sgl_amd_mono.errors import CheckError, MonoError
from sgl_amd_mono.metrics import Measured
from sgl_amd_mono.upstream import TensorParallel

logger = logging.getLogger(__name__)

_REPORT_WIDTH = 110


class CheckPolicy(msgspec.Struct, frozen=True):
    """Which routed steps are checked, and whether a breach stops the server."""

    every: int
    raises: bool


def check_policy() -> CheckPolicy | None:
    """What SGLANG_AMD_MONO_CHECK asks for; None when it is unset.

    Raises
    ------
    MonoError
        When it is set to something else than `1`, `log` or `every=N`.
    """
    text = CHECK.get()
    if text is None:
        return None
    if text == "1":
        return CheckPolicy(1, True)
    if text == "log":
        return CheckPolicy(1, False)
    if match := re.fullmatch(r"every=([1-9]\d*)", text):
        return CheckPolicy(int(match[1]), True)
    raise MonoError(f"{CHECK.name}={text}: expected 1, log, or every=N with N from 1.")


class Breach(msgspec.Struct, frozen=True, kw_only=True):
    """One measurement past its limit, and the element that is farthest from the standard path's."""

    step: int
    rank: int
    layer: int
    """-1 for what no layer owns: the step's outputs."""
    launch: str
    region: str
    metric: str
    value: float
    limit: float
    row: int
    element: tuple[int, ...]
    """Within the row."""
    fused: float
    standard: float

    def __str__(self) -> str:
        layer = f"layer {self.layer}, " if self.layer >= 0 else ""
        return (
            f"step {self.step}, rank {self.rank}, {layer}{self.launch}, region {self.region}, row {self.row}: "
            f"{self.metric} {self.value:.3g} against {self.limit:.3g}; worst element {list(self.element)}: "
            f"fused {self.fused:.6g}, standard {self.standard:.6g}"
        )


class _StepRecord(msgspec.Struct, kw_only=True):
    step: int
    rank: int
    regions: int
    worst: dict[str, float]
    breaches: list[Breach]


class StepCheck:
    """Compares, counts, reports, and makes all ranks take the same verdict.

    Attributes
    ----------
    steps, regions : how many steps were compared, and how many regions in them.
    worst : by bound, the measurement that used up most of its limit.
    """

    def __init__(self, policy: CheckPolicy, bounds: Mapping[str, float], ranks: TensorParallel) -> None:
        self.policy = policy
        self.steps = 0
        self.regions = 0
        self.worst: dict[str, Measured] = {}
        self.comparisons: dict[str, int] = {}
        self._bounds = bounds
        self._ranks = ranks
        self._seen = 0
        self._current: _StepRecord | None = None
        report = CHECK_REPORT.get()
        self._report = Path(f"{report}.rank{ranks.rank}") if report else None
        atexit.register(self._say_at_exit)

    def is_due(self) -> bool:
        """Whether the routed step that begins now is checked; every rank counts alike."""
        self._seen += 1
        return (self._seen - 1) % self.policy.every == 0

    def begin(self) -> None:
        """A checked step begins."""
        self._current = _StepRecord(step=self._seen - 1, rank=self._ranks.rank, regions=0, worst={}, breaches=[])

    def note(self, launch: str, layer: int, region: str, fused: Tensor, standard: Tensor) -> None:
        """Compare one region [rows, ...] of the step."""
        current = self._of_step()
        current.regions += 1
        for measured in metrics.compare(launch, region, fused, standard, self._bounds):
            self.comparisons[measured.name] = self.comparisons.get(measured.name, 0) + 1
            current.worst[measured.name] = measured.value
            known = self.worst.get(measured.name)
            if known is None or measured.strain > known.strain:
                self.worst[measured.name] = measured
            if not measured.ok:
                current.breaches.append(self._breach(current, launch, layer, region, measured, fused, standard))

    def finish(self) -> None:
        """The checked step ends; all ranks learn of any rank's breach.

        Raises
        ------
        CheckError
            On every rank, when one of them found a breach and the policy says so.
        """
        current = self._of_step()
        self._current = None
        self.steps += 1
        self.regions += current.regions
        if self._report is not None:
            with self._report.open("ab") as file:
                file.write(msgspec.json.encode(current) + b"\n")
        found = [str(breach) for breaches in self._ranks.gather(current.breaches[:1]) for breach in breaches]
        if not found:
            return
        for line in map(str, current.breaches):
            logger.error("monokernel check: breach: %s", line)
        if self.policy.raises:
            raise CheckError(f"The fused step differs from the standard path: {'; '.join(found)}")

    def table(self) -> str:
        """What was compared so far, as text."""
        table = Table(box=None, header_style="bold")
        for name, justify in (
            ("bound", "left"),
            ("compared", "right"),
            ("worst", "right"),
            ("limit", "right"),
            ("", "left"),
        ):
            table.add_column(name, justify=justify)  # type: ignore[arg-type]
        for name, measured in sorted(self.worst.items()):
            verdict = "ok" if measured.ok else "BREACH"
            table.add_row(name, str(self.comparisons[name]), f"{measured.value:.6g}", f"{measured.limit:.6g}", verdict)
        console = Console(width=_REPORT_WIDTH, color_system=None, force_terminal=False)
        with console.capture() as captured:
            console.print(table)
        return f"{self.summary()}\n{captured.get()}"

    def summary(self) -> str:
        """One line."""
        broken = sum(not measured.ok for measured in self.worst.values())
        return (
            f"monokernel check, rank {self._ranks.rank}: {self.steps} of {self._seen} routed steps compared, "
            f"{self.regions} regions, {broken} bounds breached"
        )

    def _of_step(self) -> _StepRecord:
        if self._current is None:
            raise CheckError("No checked step has begun.")
        return self._current

    def _breach(
        self,
        current: _StepRecord,
        launch: str,
        layer: int,
        region: str,
        measured: Measured,
        fused: Tensor,
        standard: Tensor,
    ) -> Breach:
        distance = (fused.double() - standard.double()).abs()
        # what is not a number is farther than any
        worst = int(torch.nan_to_num(distance, nan=torch.inf).flatten().argmax())
        place = [int(index) for index in torch.unravel_index(torch.tensor(worst), fused.shape)]
        return Breach(
            step=current.step,
            rank=current.rank,
            layer=layer,
            launch=launch,
            region=region,
            metric=measured.name.rpartition(".")[2],
            value=measured.value,
            limit=measured.limit,
            row=place[0],
            element=tuple(place[1:]),
            fused=float(fused.flatten()[worst]),
            standard=float(standard.flatten()[worst]),
        )

    def _say_at_exit(self) -> None:
        if self.steps == 0:
            logger.error("%s: nothing was compared, so nothing was proved", self.summary())
        else:
            logger.info("%s", self.table())
