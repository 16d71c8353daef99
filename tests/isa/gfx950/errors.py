"""What can go wrong while gfx950 machine code is loaded and executed.

The errors do not derive from the product's own: the interpreter is a second opinion and imports nothing of the
package that it judges.
"""

from __future__ import annotations


class IsaError(Exception):
    """Base of every error of the interpreter."""


class CodeObjectError(IsaError):
    """A file that is not a gfx950 code object, or one that asks for something that is not modelled."""


class UnknownInstructionError(IsaError):
    """An instruction, or a use of one, whose semantics are not in the tables."""


class MemoryAccessError(IsaError):
    """An access outside every buffer, or a store to a read-only one.

    Attributes
    ----------
    position : int or None
        Index of the offending access among those of the instruction's active lanes; None for a scalar one.
    """

    def __init__(self, message: str, position: int | None = None) -> None:
        super().__init__(message)
        self.position = position


class BudgetError(IsaError):
    """The launches did not end within the instruction budget: a wait that nobody satisfies, or too small a budget."""


class TrapError(IsaError):
    """The program executed s_trap."""


class SharingError(IsaError):
    """A load of what another workgroup or rank stored in a way that the load may miss (see sharing.py)."""


class BarrierError(IsaError):
    """The waves of a workgroup ended after different numbers of barriers: one left before a barrier of the others."""
