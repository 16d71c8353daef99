"""Errors that a user meets; each message says what was wrong, what was expected and what to do."""

from __future__ import annotations


class MonoError(Exception):
    """Base of every error that the command line turns into one message and exit status 2."""


class BuildError(MonoError):
    """No usable compiler, or a kernel that does not compile; carries the compiler's whole output."""


class CheckpointError(MonoError):
    """A checkpoint that is missing, damaged, or not the model or format that was asked for."""


class ContractError(MonoError):
    """An SGLang tree that could not be checked: not found, not SGLang, or not readable by this Python."""


class LayoutError(MonoError):
    """A tensor whose dtype, shape or strides the kernels do not read."""


class LaunchError(MonoError):
    """A launch that the device refused or that failed while it ran."""


class BindError(MonoError):
    """An SGLang object that a step cannot be bound to."""


class CheckError(MonoError):
    """A checked step that differs from the standard path by more than the bounds allow, or a check of nothing."""
