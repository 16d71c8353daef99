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
CHECK = Variable(
    "SGLANG_AMD_MONO_CHECK",
    "Compare routed steps with the standard path: `1` (each, a breach stops the server), `log` (each, a breach is "
    "logged), `every=N` (each Nth). Unset: no step.",
)
CHECK_REPORT = Variable(
    "SGLANG_AMD_MONO_CHECK_REPORT",
    "File that the check appends its JSON lines to, one a compared step; each rank adds `.rank<N>`. Unset: none.",
)
FAULT_INJECT = Variable(
    "MONO_FAULT_INJECT",
    "Tests only: a fault to put into routed steps, `corrupt:REGION@LAYER`, `stall@LAYER` or `skip@LAYER`. Unset: none.",
)
SGLANG_PLUGINS = Variable(
    "SGLANG_PLUGINS",
    "Names of the plugins that SGLang loads, with commas between; this one is sgl-amd-mono. Unset: all.",
)

VARIABLES = (COMPILER, CACHE, ROCM_PATH, XDG_CACHE_HOME, CHECK, CHECK_REPORT, FAULT_INJECT, SGLANG_PLUGINS)
