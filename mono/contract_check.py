"""The contract checker at the start of a server: is every name that the model reads there, in the SGLang that runs?"""

from __future__ import annotations

import importlib.util
from collections.abc import Collection
from pathlib import Path

from sgl_amd_mono.build.cache import folder
from sgl_amd_mono.check.rows import Contract
from sgl_amd_mono.check.startup import refusal_reasons
from sgl_amd_mono.check.store import Store
from sgl_amd_mono.check.tree import PACKAGE, Tree, open_tree
from sgl_amd_mono.env import CHECK

SERVED_PARTS = frozenset({"start-up", "weights", "decode", "hidden states", "prefix cache"})
"""What a routed decode step needs; verify steps are not routed yet."""
CHECKED_PART = "check mode"


def store() -> Store:
    """Where the checker keeps what it read of a tree, beside the compiled kernels."""
    return Store(folder() / "contract")


def contract_refusals(contract: Contract) -> list[str]:
    """Why the SGLang of this process breaks `contract`, one reason a name; empty where it holds.

    The tree is the one that Python imports, whatever is installed beside it.
    """
    tree = imported_tree()
    if tree is None:
        return [f"{PACKAGE} is not importable in this process, so the contract cannot be checked"]
    return refusal_reasons(contract, tree, store(), served_parts())


def imported_tree() -> Tree | None:
    """The SGLang that Python imports here, found without importing it."""
    spec = importlib.util.find_spec(PACKAGE)
    locations = list(spec.submodule_search_locations or ()) if spec else []
    return open_tree(Path(locations[0])) if locations else None


def served_parts() -> Collection[str]:
    """The parts of the product that a server of this environment uses."""
    return SERVED_PARTS | {CHECKED_PART} if CHECK.get() else SERVED_PARTS
