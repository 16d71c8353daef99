"""One drift of upstream: rows, a change of the small tree, and what the checker must say of it."""

from __future__ import annotations

from dataclasses import dataclass

from sgl_amd_mono.check.findings import Verdict
from sgl_amd_mono.check.rows import Call, Row, class_, method, on

PLUGIN = "sglang.kernels.plugin_kernels.amd.spec"
POOL = "sglang.srt.pool"
TABLE = f"{POOL}:Table"
OUTPUT = "sglang.srt.output:Output"
RUNNER = "sglang.srt.runner:ModelRunner"
ATTENTION = "sglang.srt.model:Attention"


@dataclass(frozen=True)
class Drift:
    """One kind of drift.

    Attributes
    ----------
    number: of the catalogue of kinds (1 to 33; several drifts can be of one kind)
    rows: judged before and after
    edits: (file, old text, new text), each text found once
    verdict: what must be among the findings afterwards; `OK` for a blind spot or a change that harms nobody
    says: a text that must be in a finding or one of its hints
    pinned: the rows carry the fingerprint of the body as the unchanged tree has it
    """

    number: int
    what: str
    rows: tuple[Row, ...]
    edits: tuple[tuple[str, str, str], ...]
    verdict: Verdict
    says: str = ""
    pinned: bool = False


def edit(old: str, new: str, file: str = "srt/pool.py") -> tuple[tuple[str, str, str], ...]:
    return ((file, old, new),)


LAYER_CACHE = on(TABLE, method("layer_cache", call=Call(1), references=("layer_map",)))
LAYER_CACHE_SOURCE = """    def layer_cache(self, layer_id):
        return self.state_pool.layer_cache(self.layer_map[layer_id])

"""
OUTPUT_ROW = on(OUTPUT, class_(fields=("logits", "hidden_states="), call=Call(keywords=("logits", "hidden_states"))))
