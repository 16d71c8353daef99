"""The ways in which upstream can drift, each as rows, a change of the small tree, and what the checker must say."""

from __future__ import annotations

from dataclasses import dataclass

from sgl_amd_mono.check.findings import Verdict
from sgl_amd_mono.check.rows import (
    Call,
    Row,
    attribute,
    calls,
    class_,
    class_attribute,
    constant,
    enum_member,
    field_,
    function,
    method,
    null_attribute,
    on,
    property_,
    strings,
)
from tests.check.small_tree import PLUGIN_FILE

PLUGIN = "sglang.kernels.plugin_kernels.amd.spec"
POOL = "sglang.srt.pool"
TABLE = f"{POOL}:Table"


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


_LAYER_CACHE = on(TABLE, method("layer_cache", call=Call(1), references=("layer_map",)))
_LAYER_CACHE_SOURCE = """    def layer_cache(self, layer_id):
        return self.state_pool.layer_cache(self.layer_map[layer_id])

"""
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
_OUTPUT = "sglang.srt.output:Output"
_OUTPUT_ROW = on(_OUTPUT, class_(fields=("logits", "hidden_states="), call=Call(keywords=("logits", "hidden_states"))))
_PLAN = "sglang.srt.output:Plan"
_RUNNER = "sglang.srt.runner:ModelRunner"
_LOAD = on(_RUNNER, calls("load_model", steps=("post_load", "install", "scales")))
_ATTENTION = "sglang.srt.model:Attention"

# what breaks a reader, or is stated as a blind spot
DRIFTS = (
    Drift(
        1,
        "rename",
        on(TABLE, method("set_kv", call=Call(3))),
        edit("def set_kv(", "def set_kv_rows("),
        Verdict.MISSING,
        "set_kv_rows",
    ),
    Drift(
        2,
        "removed, the name stays on another class",
        _LAYER_CACHE,
        edit(_LAYER_CACHE_SOURCE, ""),
        Verdict.MISSING,
        "MambaPool still has it",
    ),
    Drift(
        3,
        "moved to another class",
        on(TABLE, attribute("counter", replaced_by="KVPool.counter")),
        (
            *edit("        self.counter = Counter()\n", ""),
            *edit("        self.keys = [0]", "        self.keys = [0]\n        self.counter = Counter()"),
        ),
        Verdict.MISSING,
        "KVPool still has it",
    ),
    Drift(
        6,
        "keyword renamed",
        on(TABLE, method("get_context", call=Call(1, ("wait",)))),
        edit("rows, wait=True", "rows, block=True"),
        Verdict.SIGNATURE,
        "wait",
    ),
    Drift(
        6,
        "new required argument",
        on(TABLE, method("set_kv", call=Call(3))),
        edit("layer, loc, k)", "layer, loc, k, v)"),
        Verdict.SIGNATURE,
        "v",
    ),
    Drift(
        6,
        "made keyword-only",
        on(TABLE, method("set_kv", call=Call(3))),
        edit("layer, loc, k)", "layer, loc, *, k)"),
        Verdict.SIGNATURE,
    ),
    Drift(
        6,
        "arguments reordered",
        on(TABLE, method("set_kv", call=Call(3, names=("layer", "loc", "k")))),
        edit("layer, loc, k)", "loc, layer, k)"),
        Verdict.SIGNATURE,
        "loc, layer, k",
    ),
    Drift(
        6,
        "default removed",
        on(TABLE, method("get_context", call=Call(1))),
        edit("rows, wait=True", "rows, wait"),
        Verdict.SIGNATURE,
        "wait",
    ),
    Drift(
        7,
        "other semantics under the same name",
        on(TABLE, method("get_context", call=Call(1))),
        edit("        self.counter.wait_until(rows)\n        return", "        return"),
        Verdict.BODY,
        "another body",
        pinned=True,
    ),
    Drift(
        8,
        "the same name takes another argument",
        _LAYER_CACHE,
        edit("self.layer_map[layer_id]", "layer_id"),
        Verdict.BODY,
        "layer_map",
    ),
    Drift(
        8,
        "uses what it must not use",
        on(TABLE, method("set_kv", call=Call(3), avoids=("counter",))),
        edit("        self.buffer[loc] = k", "        self.counter.wait_until(layer)\n        self.buffer[loc] = k"),
        Verdict.BODY,
        "now uses counter",
    ),
    Drift(
        23,
        "a hop's class is gone",
        on(TABLE, attribute("counter", gives=("sglang.srt.counter:Counter",))),
        edit("class Counter", "class Clock", "srt/counter.py"),
        Verdict.MISSING,
        "gives Counter",
    ),
    Drift(
        5,
        "class moved to a module that does not hand it on",
        on("sglang.srt.counter:Counter", method("wait_until", call=Call(1))),
        (
            ("srt/counter.py", "class Counter:", "class Clock:"),
            ("srt/clock.py", "", "class Counter:\n    def wait_until(self, layer):\n        return layer\n"),
        ),
        Verdict.MISSING,
        "Counter is now at sglang/srt/clock.py:1",
    ),
    Drift(
        33,
        "a name comes from outside the tree",
        on(POOL, function("make_table", call=Call(1))),
        edit("def make_table(size) -> Table:\n    return Table(size)", "from sgl_kernel import make_table"),
        Verdict.UNKNOWN,
        "sgl_kernel.make_table",
    ),
    Drift(
        9,
        "set late instead of while constructing",
        on(TABLE, attribute("graph_rows")),
        (
            *edit("        self.graph_rows = [0]\n", ""),
            *edit("    def init_graph(self):\n", "    def init_graph(self):\n        self.graph_rows = [0]\n"),
        ),
        Verdict.WHEN,
        "init_graph",
    ),
    Drift(
        9,
        "the late setter no longer sets it",
        on(TABLE, null_attribute("context_rows", set_by=("init_graph",))),
        edit("        self.context_rows = [0]\n", "        pass\n"),
        Verdict.WHEN,
        "None for ever",
    ),
    Drift(
        10,
        "base constructor no longer called",
        on(TABLE, attribute("rows", declared_on="BaseTable")),
        edit("        super().__init__(size)\n", ""),
        Verdict.WHEN,
        "absent until set later",
    ),
    Drift(
        11,
        "property becomes a method",
        on(TABLE, property_("page_size")),
        edit("    @property\n", ""),
        Verdict.KIND,
        "a method",
    ),
    Drift(
        11,
        "attribute becomes a property",
        on(TABLE, attribute("graph_rows")),
        (
            *edit("        self.graph_rows = [0]\n", ""),
            *edit("    @property\n", "    @property\n    def graph_rows(self):\n        return [0]\n\n    @property\n"),
        ),
        Verdict.KIND,
        "a property",
    ),
    Drift(
        12,
        "annotation only",
        on(TABLE, attribute("graph_rows")),
        edit("self.graph_rows = [0]", "self.graph_rows: list"),
        Verdict.KIND,
        "an annotation only",
    ),
    Drift(
        13,
        "a class default of None hides the missing value",
        on(TABLE, attribute("graph_rows")),
        (
            *edit("        self.graph_rows = [0]\n", ""),
            *edit("    backend_name = None\n", "    backend_name = None\n    graph_rows = None\n"),
        ),
        Verdict.KIND,
        "None for ever",
    ),
    Drift(
        14,
        "deleted later",
        on(TABLE, attribute("buffer")),
        edit("        self.buffer[0] = 0", "        del self.buffer"),
        Verdict.WHEN,
        "deleted by clear",
    ),
    Drift(
        15,
        "field removed",
        _OUTPUT_ROW,
        edit("    hidden_states: object = None\n", "", "srt/output.py"),
        Verdict.MISSING,
        "hidden_states",
    ),
    Drift(
        15,
        "field becomes required",
        _OUTPUT_ROW,
        edit("hidden_states: object = None", "hidden_states: object", "srt/output.py"),
        Verdict.SIGNATURE,
    ),
    Drift(
        15,
        "fields reordered",
        on(_OUTPUT, class_(fields=("logits", "hidden_states="))),
        edit(
            "    logits: object\n    hidden_states: object = None\n",
            "    hidden_states: object = None\n    logits: object = None\n",
            "srt/output.py",
        ),
        Verdict.SIGNATURE,
    ),
    Drift(
        15,
        "no longer frozen",
        on(_PLAN, class_(options=("frozen=True",))),
        edit(", frozen=True):\n    key", "):\n    key", "srt/output.py"),
        Verdict.KIND,
        "frozen",
    ),
    Drift(
        15,
        "keyword-only dropped a positional call",
        on(_OUTPUT, class_(call=Call(1))),
        edit("@dataclass\nclass Output", "@dataclass(kw_only=True)\nclass Output", "srt/output.py"),
        Verdict.SIGNATURE,
    ),
    Drift(
        16,
        "enum member renamed",
        on("sglang.srt.mode:ForwardMode", enum_member("TARGET_VERIFY")),
        edit("TARGET_VERIFY = 2", "VERIFY = 2", "srt/mode.py"),
        Verdict.MISSING,
    ),
    Drift(
        16,
        "enum value changed",
        on("sglang.srt.mode:ForwardMode", enum_member("DECODE", value=("1",))),
        edit("DECODE = 1", "DECODE = 0", "srt/mode.py"),
        Verdict.VALUE,
    ),
    Drift(
        17,
        "constant changed",
        on(POOL, constant("PAD_SLOT_ID", value=("-1",))),
        edit("PAD_SLOT_ID = -1", "PAD_SLOT_ID = 0"),
        Verdict.VALUE,
    ),
    Drift(
        17,
        "class constant changed",
        on(TABLE, class_attribute("quant_block_size", value=("128",))),
        edit("quant_block_size = 128", "quant_block_size = 64"),
        Verdict.VALUE,
    ),
    Drift(
        18,
        "a name set under a literal is gone, and __getattr__ answers",
        on(_ATTENTION, attribute("multipliers")),
        edit(
            '        self.register_buffer("multipliers", make(config))\n',
            "\n    def __getattr__(self, name):\n        return self.table[name]\n\n    def setup(self, config):\n",
            "srt/model.py",
        ),
        Verdict.UNKNOWN,
        "__getattr__",
    ),
    Drift(
        19,
        "defined for another device only",
        on(TABLE, method("set_kv", call=Call(3))),
        edit(
            "    def set_kv(self, layer, loc, k):\n        self.buffer[loc] = k\n",
            "    if _is_cuda:\n        def set_kv(self, layer, loc, k):\n            self.buffer[loc] = k\n",
        ),
        Verdict.MISSING,
    ),
    Drift(
        19,
        "set on a condition",
        on(TABLE, attribute("graph_rows")),
        edit("        self.graph_rows = [0]\n", "        if size > 8:\n            self.graph_rows = [0]\n"),
        Verdict.WHEN,
        "size > 8",
    ),
    Drift(
        19,
        "set unless on ROCm",
        on(TABLE, attribute("graph_rows")),
        edit("        self.graph_rows = [0]\n", "        if not _is_hip:\n            self.graph_rows = [0]\n"),
        Verdict.WHEN,
    ),
    Drift(
        20,
        "nested class loses its base",
        on(f"{POOL}:MambaPool.SpeculativeState", field_("conv", declared_on="MambaPool.State")),
        edit("class SpeculativeState(State)", "class SpeculativeState"),
        Verdict.MISSING,
    ),
    Drift(
        21,
        "defined again",
        on(TABLE, method("set_kv", call=Call(3))),
        edit("    @property\n", "    def set_kv(self, layer, loc, k):\n        return None\n\n    @property\n"),
        Verdict.TWICE,
        "the last definition counts",
    ),
    Drift(
        21,
        "defined again with another signature",
        on(TABLE, method("set_kv", call=Call(3))),
        edit("    @property\n", "    def set_kv(self, layer):\n        return None\n\n    @property\n"),
        Verdict.SIGNATURE,
    ),
    Drift(
        22,
        "another class is constructed",
        on("sglang.srt.registry", calls("wrap", steps=("KDABackend",), only_if="is_kda(runner)")),
        edit("KDABackend(runner)", "LinearBackend(runner)", "srt/registry.py"),
        Verdict.CALLS,
    ),
    Drift(
        22,
        "constructed for another model",
        on("sglang.srt.registry", calls("wrap", steps=("KDABackend",), only_if="is_kda(runner)")),
        edit("is_kda(runner)", "is_mamba(runner)", "srt/registry.py"),
        Verdict.WHEN,
    ),
    Drift(
        23,
        "a hop gives another class",
        on(TABLE, attribute("state_pool", gives=(f"{POOL}:MambaPool",))),
        edit("self.state_pool: MambaPool = MambaPool(size)", "self.state_pool: KVPool = KVPool()"),
        Verdict.KIND,
        "KVPool",
    ),
    Drift(
        23,
        "a function gives another class",
        on(POOL, function("make_table", gives=(TABLE,))),
        edit("-> Table:\n    return Table(size)", "-> KVPool:\n    return KVPool()"),
        Verdict.KIND,
        "KVPool",
    ),
    Drift(
        24,
        "a runtime class lacks the name",
        on(TABLE, attribute("graph_rows", holds_for=(TABLE, f"{POOL}:DecodeTable"))),
        edit("        Table.__init__(self, size)", "        BaseTable.__init__(self, size)"),
        Verdict.WHEN,
    ),
    Drift(
        24,
        "a new subclass",
        on(TABLE, class_(holds_for=(TABLE, f"{POOL}:DecodeTable"))),
        edit("class KVPool:", "class UnifiedTable(Table):\n    pass\n\n\nclass KVPool:"),
        Verdict.SUBCLASS,
        "UnifiedTable",
    ),
    Drift(
        25,
        "a server argument moves to another group",
        on("sglang.srt.arguments:Kernel", class_attribute("enable_monokernel", value=("False",))),
        (
            *edit("    enable_monokernel: bool = False\n", "    pass\n", "srt/arguments.py"),
            *edit(
                "    page_size: int = 64\n",
                "    page_size: int = 64\n    enable_monokernel: bool = False\n",
                "srt/arguments.py",
            ),
        ),
        Verdict.MISSING,
        "Memory still has it",
    ),
    Drift(
        25,
        "a server argument changes its default",
        on("sglang.srt.arguments:Memory", class_attribute("page_size", value=("64",))),
        edit("page_size: int = 64", "page_size: int = 1", "srt/arguments.py"),
        Verdict.VALUE,
    ),
    Drift(
        26,
        "environment variable renamed",
        on("sglang.srt.environ:Envs", class_attribute("SGLANG_MODE")),
        edit("SGLANG_MODE", "SGLANG_RAGGED_MODE", "srt/environ.py"),
        Verdict.MISSING,
    ),
    Drift(
        26,
        "environment variable in a literal renamed",
        on("sglang.srt.environ", strings("dispatch", steps=("SGLANG_USE_AITER",))),
        edit("SGLANG_USE_AITER", "SGLANG_AITER", "srt/environ.py"),
        Verdict.MISSING,
    ),
    Drift(
        27,
        "host calls change places",
        _LOAD,
        (
            *edit("        post_load(self.model)\n", "", "srt/runner.py"),
            *edit(
                "        install(self.model)\n",
                "        install(self.model)\n        post_load(self.model)\n",
                "srt/runner.py",
            ),
        ),
        Verdict.CALLS,
        "install too early",
    ),
    Drift(
        27,
        "host call removed",
        _LOAD,
        edit("        install(self.model)\n", "", "srt/runner.py"),
        Verdict.CALLS,
        "no longer calls install",
    ),
    Drift(
        27,
        "host call put under a condition",
        on(_RUNNER, calls("load_model", steps=("post_load", "install"))),
        edit(
            "        install(self.model)\n", "        if self.fast:\n            install(self.model)\n", "srt/runner.py"
        ),
        Verdict.WHEN,
        "self.fast",
    ),
    Drift(
        28,
        "submodule renamed",
        on(_ATTENTION, attribute("q_proj")),
        edit("self.q_proj", "self.qkv_proj", "srt/model.py"),
        Verdict.MISSING,
        "qkv_proj",
    ),
    Drift(
        28,
        "fused projection exists on another condition",
        on(_ATTENTION, attribute("fused_proj", only_if="config.fused")),
        edit("config.fused", "config.quantized", "srt/model.py"),
        Verdict.CONDITION,
    ),
    Drift(
        29,
        "API version raised",
        on(PLUGIN, constant("MONOKERNEL_API_VERSION", value=("1",))),
        edit("VERSION = 1", "VERSION = 2", PLUGIN_FILE),
        Verdict.VALUE,
    ),
    Drift(
        31,
        "shared reads end elsewhere",
        on(_RUNNER, method("shared_read_ends", call=Call(1))),
        edit("post replay", "in replay", "srt/runner.py"),
        Verdict.BODY,
        pinned=True,
    ),
    Drift(
        32,
        "BLIND: a third party replaces a method at run time",
        on(TABLE, method("set_kv", call=Call(3))),
        edit("    return table\n", "    table.set_kv = None\n    return table\n", "srt/hooks.py"),
        Verdict.OK,
    ),
    Drift(
        33,
        "BLIND: an operator of a C extension is renamed",
        on(TABLE, method("copy_rows", call=Call(1))),
        edit("from sgl_kernel import fast_copy", "from sgl_kernel import copy as fast_copy"),
        Verdict.OK,
    ),
)

# what must not be reported as a breach
HARMLESS = (
    Drift(
        4,
        "method moved to a mixin",
        _LAYER_CACHE,
        (
            *edit(_LAYER_CACHE_SOURCE, ""),
            *edit(
                "class Table(BaseTable):",
                f"class StateMixin:\n{_LAYER_CACHE_SOURCE}\nclass Table(StateMixin, BaseTable):",
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
        on(_OUTPUT, class_(call=Call(keywords=("logits",)))),
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
