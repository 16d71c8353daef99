"""The interpreter's programs at once give what they give one by one, whatever steers them."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import triton
import triton.language as tl
from torch import Tensor

from tests.sglang_cpu import interpreter_programs

PROGRAMS, COLUMNS = 6, 8


@triton.jit  # type: ignore[untyped-decorator]
def steered_kernel(x: Any, steps: Any, out: Any, count: Any, COLUMNS: tl.constexpr) -> None:
    """Adds up as many rows of x as the program's steps say; the even ones scan the total, every one counts itself."""
    program = tl.program_id(0)
    columns = tl.arange(0, COLUMNS)
    # a store before programs part: undone, and made again
    tl.store(out + program * COLUMNS + columns, tl.load(out + program * COLUMNS + columns) + 1.0)
    total = tl.zeros((COLUMNS,), dtype=tl.float32)
    for step in range(tl.load(steps + program)):
        row = tl.load(x + step * COLUMNS + columns, mask=columns != program, other=2.0)
        total += row * row + row.to(tl.float32)
    if program % 2 == 0:
        total = tl.cumsum(total, axis=0)
    before = tl.load(out + program * COLUMNS + columns)
    tl.store(out + program * COLUMNS + columns, before + total + tl.max(total, axis=0))
    tl.atomic_add(count, 1)


def launch(most_programs: int, monkeypatch: pytest.MonkeyPatch) -> tuple[Tensor, int]:
    monkeypatch.setattr(interpreter_programs, "_MOST_PROGRAMS", most_programs)
    x = torch.randn(4, COLUMNS, generator=torch.Generator().manual_seed(0)).bfloat16()
    out, count = torch.zeros(PROGRAMS, COLUMNS), torch.zeros(1, dtype=torch.int32)
    steered_kernel[(PROGRAMS,)](x, torch.tensor([3, 0, 4, 4, 1, 2], dtype=torch.int32), out, count, COLUMNS=COLUMNS)
    return out, int(count)


def expected() -> Tensor:
    x = torch.randn(4, COLUMNS, generator=torch.Generator().manual_seed(0)).bfloat16()
    rows = []
    for program, steps in enumerate([3, 0, 4, 4, 1, 2]):
        row = x[:steps].clone()
        row[:, program] = 2
        # the product rounds to bf16, the sum with a float32 does not
        total = ((row * row).float() + row.float()).sum(0)
        total = total.cumsum(0) if program % 2 == 0 else total
        rows.append(1 + total + total.max())
    return torch.stack(rows)


def test_programs_at_once_are_programs_one_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    at_once, counted = launch(512, monkeypatch)
    one_by_one, counted_singly = launch(1, monkeypatch)
    assert torch.equal(at_once, one_by_one)
    assert counted == counted_singly == PROGRAMS
    torch.testing.assert_close(at_once, expected())


def test_stores_of_programs_that_part_have_to_be_undone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(interpreter_programs._undo, "undo", interpreter_programs._undo.forget)
    assert not torch.equal(launch(512, monkeypatch)[0], launch(1, monkeypatch)[0])
