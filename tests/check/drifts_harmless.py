"""Changes of the small tree that must not be reported as a breach."""

from __future__ import annotations

from sgl_amd_mono.check.findings import Verdict
from sgl_amd_mono.check.rows import Call, attribute, calls, class_, enum_member, method, on, property_
from tests.check.drift import LAYER_CACHE, LAYER_CACHE_SOURCE, OUTPUT, POOL, TABLE, Drift, edit

_GRAPH_MIXIN = """class GraphMixin(BaseTable):
    def __init__(self, size):
        super().__init__(size)
        self.graph_rows = [0]


class Table(GraphMixin):"""
_WAIT_LAID_OUT_ANEW = '''        """The context."""
        # wait first
        self.counter.wait_until(
            rows,
        )
'''

HARMLESS = (
    Drift(
        4,
        "method moved to a mixin",
        LAYER_CACHE,
        (
            *edit(LAYER_CACHE_SOURCE, ""),
            *edit(
                "class Table(BaseTable):",
                f"class StateMixin:\n{LAYER_CACHE_SOURCE}\nclass Table(StateMixin, BaseTable):",
            ),
        ),
        Verdict.MOVED,
        "now declared on StateMixin",
    ),
    Drift(
        4,
        "attribute set by a mixin's constructor",
        on(TABLE, attribute("graph_rows")),
        (
            *edit("        self.graph_rows = [0]\n", ""),
            *edit(
                "class Table(BaseTable):",
                _GRAPH_MIXIN,
            ),
        ),
        Verdict.MOVED,
    ),
    Drift(
        5,
        "class re-exported from another module",
        on(f"{POOL}:Counter", method("wait_until", call=Call(1))),
        (
            (
                "srt/counter.py",
                "class Counter:\n    def wait_until(self, layer):\n        return layer\n",
                "from sglang.srt.clock import Counter\n",
            ),
            ("srt/clock.py", "", "class Counter:\n    def wait_until(self, layer):\n        return layer\n"),
        ),
        Verdict.OK,
    ),
    Drift(
        11,
        "property becomes a cached property",
        on(TABLE, property_("page_size")),
        edit("    @property\n", "    @functools.cached_property\n"),
        Verdict.OK,
    ),
    Drift(
        6,
        "optional argument added",
        on(TABLE, method("get_context", call=Call(1, ("wait",)))),
        edit("rows, wait=True", "rows, wait=True, stream=None"),
        Verdict.OK,
    ),
    Drift(
        9,
        "assignment moved into a helper of the constructor",
        on(TABLE, attribute("graph_rows")),
        (
            *edit("        self.graph_rows = [0]\n", ""),
            *edit("        self.buffer = [0]\n", "        self.buffer = [0]\n        self.graph_rows = [0]\n"),
        ),
        Verdict.OK,
    ),
    Drift(
        19,
        "set in both branches",
        on(TABLE, attribute("page_table")),
        edit("if page_size > 1:", "if _is_hip and page_size > 1:"),
        Verdict.OK,
    ),
    Drift(
        7,
        "comments, docstring and layout",
        on(TABLE, method("get_context", call=Call(1))),
        edit(
            "        self.counter.wait_until(rows)\n",
            _WAIT_LAID_OUT_ANEW,
        ),
        Verdict.OK,
        pinned=True,
    ),
    Drift(
        15,
        "optional field added",
        on(OUTPUT, class_(call=Call(keywords=("logits",)))),
        edit("hidden_states: object = None", "hidden_states: object = None\n    extra: object = None", "srt/output.py"),
        Verdict.OK,
    ),
    Drift(
        16,
        "enum member added",
        on("sglang.srt.mode:ForwardMode", enum_member("DECODE", value=("1",))),
        edit("TARGET_VERIFY = 2", "TARGET_VERIFY = 2\n    IDLE = 3", "srt/mode.py"),
        Verdict.OK,
    ),
    Drift(
        22,
        "a branch for another model added",
        on("sglang.srt.registry", calls("wrap", steps=("KDABackend",), only_if="is_kda(runner)")),
        edit(
            "    elif is_kda",
            "    elif is_mamba(runner):\n        backend = MambaBackend(runner)\n    elif is_kda",
            "srt/registry.py",
        ),
        Verdict.OK,
    ),
)
