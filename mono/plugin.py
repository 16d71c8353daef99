"""The entry point that SGLang calls once in every process, the launcher included: cheap, and never touches a GPU.

SGLang is imported by the call alone: other commands ask here which architectures are served.
"""

from __future__ import annotations

SPECS = {"Glm5NextForConditionalGeneration": "sgl_amd_mono.models.glm53_flash.spec:SPEC"}
"""By architecture, where SGLang finds the spec; it imports the module when a server runs that architecture."""


def register_specs() -> None:
    """Tell SGLang which architectures this package serves.

    Raises
    ------
    ImportError
        On an SGLang older than 0.5.23, which has no plugin contract; SGLang logs it and runs without us.
    """
    from sglang.kernels.plugin_kernels.amd.spec import BACKEND, register

    for architecture, path in SPECS.items():
        register(backend=BACKEND, architecture=architecture, path=path)
