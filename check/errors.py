"""The one error of the checker."""

from __future__ import annotations


class TreeError(Exception):
    """A tree that cannot be checked: not found, not SGLang, or a file that this Python cannot parse."""
