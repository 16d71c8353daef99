"""Vector comparisons: a lane mask into VCC, a scalar register pair, or EXEC (v_cmpx)."""

from __future__ import annotations

import operator
import re
from collections.abc import Callable
from typing import Any

import numpy as np

from .decode import EXEC, VCC, Instruction
from .lanes import Step
from .results import store_mask
from .sources import source
from .wave import Wave

# a comparison with a NaN is false, its negation ("n...") true; for integers "ne" is the name of "lg"
_COMPARE: dict[str, Callable[[Any, Any], Any]] = {
    "lt": operator.lt,
    "eq": operator.eq,
    "le": operator.le,
    "gt": operator.gt,
    "lg": lambda a, b: (a < b) | (a > b),
    "ne": operator.ne,
    "ge": operator.ge,
    "o": lambda a, b: ~(np.isnan(a) | np.isnan(b)),
    "u": lambda a, b: np.isnan(a) | np.isnan(b),
    "nge": lambda a, b: ~(a >= b),
    "nlg": lambda a, b: ~((a < b) | (a > b)),
    "ngt": lambda a, b: ~(a > b),
    "nle": lambda a, b: ~(a <= b),
    "neq": operator.ne,
    "nlt": lambda a, b: ~(a < b),
}
_NAME = re.compile(r"v_cmp(x?)_(\w+)_([fiu]\d+)")


def _class(x: Any, wanted: Any) -> Any:
    """Whether `x` is of one of the classes whose bits are set in `wanted` (signalling NaNs count as quiet ones)."""
    tiny = np.finfo(x.dtype).tiny
    negative, magnitude = np.signbit(x), np.abs(x)
    bit = np.select(
        [np.isnan(x), np.isinf(x), magnitude >= tiny, x != 0],
        [np.full(x.shape, 1), np.where(negative, 2, 9), np.where(negative, 3, 8), np.where(negative, 4, 7)],
        np.where(negative, 5, 6),
    )
    return wanted.astype(np.int64) >> bit & 1 != 0


def bind(insn: Instruction) -> Step | None:
    """The step of a comparison, or None for any other instruction."""
    name = _NAME.fullmatch(insn.mnemonic)
    if name is None:
        return None
    compare = _class if name[2] == "class" else _COMPARE.get(name[2])
    if compare is None:
        return None
    if insn.dpp:
        raise insn.unknown("comparison with DPP")
    first, second = source(insn, 0), source(insn, 1)
    target = insn.operands.get("vdst") or insn.operands.get("sdst")
    explicit = target is not None and (not insn.sdwa or insn.fields["sd"])
    put = store_mask(target.index if explicit and target else VCC)
    if not name[1]:
        return lambda wave: put(wave, compare(first(wave), second(wave)))
    put_exec = store_mask(EXEC)

    def step(wave: Wave) -> None:
        mask = compare(first(wave), second(wave))
        put(wave, mask)
        put_exec(wave, mask)

    return step
