"""Every environment variable that the package reads; no other module reads the environment."""

from __future__ import annotations

import os

import msgspec


class Variable(msgspec.Struct, frozen=True):
    """One environment variable; an empty value counts as unset."""

    name: str
    doc: str

    def get(self) -> str | None:
        return os.environ.get(self.name) or None


COMPILER = Variable(
    "SGLANG_AMD_MONO_COMPILER",
    "Compiler of the kernels: a clang++ by name or path, or `ziglang`. Unset: the first one found.",
)
CACHE = Variable(
    "SGLANG_AMD_MONO_CACHE",
    "Folder of the compiled kernels. Unset: sgl-amd-mono in XDG_CACHE_HOME.",
)
ROCM_PATH = Variable("ROCM_PATH", "ROCm installation searched first for amdclang++. Unset: /opt/rocm.")
XDG_CACHE_HOME = Variable("XDG_CACHE_HOME", "Folder of the user's caches. Unset: ~/.cache.")

VARIABLES = (COMPILER, CACHE, ROCM_PATH, XDG_CACHE_HOME)
