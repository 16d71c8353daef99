"""SGLang 0.5.23 changed the way PR #46980 is described: recurrent state moves behind the backend and a layer router.

No release contains the pull request, so its code is not known. This is its description made into source on a copy:

- the request table loses `mamba2_layer_cache`, `mamba2_layer_index`, the short-conv accessors and its transfer counter;
- `MambaPool` keeps a method called `mamba2_layer_cache`, whose argument is a pool index;
- the linear-attention base class gains `state_layer_cache(layer_id)` and `state_pool`;
- the KV pool gains `layer_router`, whose `read(layer_id, part)` gives the state of a layer, and `part_view` what
  writes go through;
- the callers inside SGLang follow, so that the changed tree still serves, without the HiCache host tier.

`apply` makes all of that, `remove` only the losses, which is what a plugin bound to the old names meets.
"""

from __future__ import annotations

import ast
from pathlib import Path

from tests.check.trees import replace_once, rewrite

REMOVED_METHODS = (
    "mamba2_layer_cache",
    "mamba2_layer_index",
    "short_conv_layer_cache",
    "short_conv_layer_intermediate_cache",
    "register_layer_transfer_counter",
)
"""Methods that the request table loses."""

_POOL = "srt/mem_cache/memory_pool.py"
_ROUTER = "srt/mem_cache/kv_layer_router.py"
_HYBRID = "srt/layers/attention/hybrid_linear_attn_backend.py"
_LINEAR = "srt/layers/attention/linear"

_ROUTER_SOURCE = '''"""Routes a layer's state, by part, to the pool that owns it."""


class KVLayerRouter:
    """Named parts of state, each read by the model's layer id."""

    def __init__(self):
        self._readers = {}

    def bind(self, part, reader):
        self._readers[part] = reader

    def read(self, layer_id, part):
        return self._readers[part](layer_id)

    def part_view(self, part):
        return self._readers[part]
'''

_BIND_PARTS = """
        router = getattr(self.token_to_kv_pool, "layer_router", None)
        if router is not None:
            table, state = self.req_to_token_pool, self.state_pool
            router.bind("recurrent", lambda i: state.mamba2_layer_cache(table.mamba_map[i]))
            router.bind("short_conv", lambda i: table.short_conv_pool.layer_cache(i))
            router.bind(
                "short_conv_intermediate",
                lambda i: table.short_conv_pool.layer_intermediate_cache(i),
            )
"""

_STATE_LAYER_CACHE = """    def state_layer_cache(self, layer_id: int) -> "MambaPool.State":
        return self.token_to_kv_pool.layer_router.read(layer_id, "recurrent")

"""

_OLD_READ = "self.req_to_token_pool.mamba2_layer_cache("
_NEW_READ = "self.state_layer_cache("


def remove(tree: Path) -> None:
    """Take away what the pull request takes away, and add nothing."""
    package = tree / "sglang"
    pool = package / _POOL
    for name in REMOVED_METHODS:
        _delete_method(pool, "HybridReqToTokenPool", name)
    replace_once(
        pool,
        "        self.layer_transfer_counter = None\n        self.ple_window_cache = None\n",
        "        self.ple_window_cache = None\n",
    )
    for name in ("get_ngram_context", "copy_mamba_state"):
        _delete_first_if_on(pool, "HybridReqToTokenPool", name, "layer_transfer_counter")
    replace_once(package / "srt/disaggregation/decode.py", "        self.layer_transfer_counter = None\n", "")


def apply(tree: Path) -> None:
    """Make the whole change."""
    remove(tree)
    package = tree / "sglang"
    rewrite(package / _ROUTER, _ROUTER_SOURCE)
    _add_router(package / _POOL)
    _add_state_access(package / _HYBRID)
    _move_callers(package)


def _add_router(pool: Path) -> None:
    counter, heads = "        self.layer_transfer_counter = None\n", "        self.head_num = head_num\n"
    replace_once(pool, counter + heads, f"{counter}        self.layer_router = KVLayerRouter()\n{heads}")
    anchor = "class HybridLinearKVPool(KVCache):"
    replace_once(pool, anchor, f"from sglang.srt.mem_cache.kv_layer_router import KVLayerRouter\n\n\n{anchor}")


def _add_state_access(hybrid: Path) -> None:
    bound = "        self.token_to_kv_pool = model_runner.token_to_kv_pool\n        self.enable_unified_memory"
    state_pool = '        self.state_pool = getattr(self.req_to_token_pool, "mamba_pool", None)'
    head, tail = bound.rsplit("\n", 1)
    replace_once(hybrid, bound, f"{head}\n{state_pool}{_BIND_PARTS}{tail}")
    method = '    def supports_prefill_graph_extend(self) -> bool:\n        """Whether breakable'
    replace_once(hybrid, method, _STATE_LAYER_CACHE + method)
    replace_once(
        hybrid,
        "        req_pool = self.linear_attn_backend.req_to_token_pool\n"
        "        mamba_caches = req_pool.get_speculative_mamba2_params_all_layers()\n",
        "        req_pool = self.linear_attn_backend.req_to_token_pool\n"
        "        mamba_caches = self.linear_attn_backend.state_pool.get_speculative_mamba2_params_all_layers()\n",
    )
    replace_once(hybrid, _OLD_READ, _NEW_READ)


def _move_callers(package: Path) -> None:
    for file, times in (
        ("gdn_backend.py", 2),
        ("kda_backend.py", 4),
        ("lightning_backend.py", 2),
        ("short_conv_backend.py", 1),
    ):
        replace_once(package / _LINEAR / file, _OLD_READ, _NEW_READ, times)
    replace_once(
        package / "srt/models/jet_nemotron.py",
        "linear_attn_backend.req_to_token_pool.mamba2_layer_cache(",
        "linear_attn_backend.state_layer_cache(",
    )
    replace_once(
        package / _LINEAR / "inkling_sconv_backend.py",
        "self.req_to_token_pool.mamba2_layer_index(layer_id)",
        "self.req_to_token_pool.mamba_map[layer_id]",
        2,
    )
    model = package / "srt/models/qwen4_exp.py"
    replace_once(model, "    get_req_to_token_pool,\n", "    get_req_to_token_pool,\n    get_token_to_kv_pool,\n")
    for old, part in (
        ("short_conv_layer_cache", "short_conv"),
        ("short_conv_layer_intermediate_cache", "short_conv_intermediate"),
    ):
        new = f'get_token_to_kv_pool().layer_router.read(self.layer_id, "{part}")'
        replace_once(model, f"pool.{old}(self.layer_id)", new, 2)
    for method in ("mamba2", "kda", "lightning", "gdn"):
        kit = package / f"test/kits/attention_unittest/attention_methods/{method}_attention.py"
        pool = "fixture.runner.req_to_token_pool"
        old = f"{pool}.mamba2_layer_cache(0)"
        replace_once(
            kit, old, f"{pool}.mamba_pool.mamba2_layer_cache({pool}.mamba_map[0])", 1 if method == "lightning" else 2
        )


def _method(text: str, cls: str, name: str) -> ast.FunctionDef:
    (owner,) = [node for node in ast.parse(text).body if isinstance(node, ast.ClassDef) and node.name == cls]
    (method,) = [node for node in owner.body if isinstance(node, ast.FunctionDef) and node.name == name]
    return method


def _without_lines(text: str, node: ast.stmt) -> str:
    lines = text.splitlines(keepends=True)
    assert node.end_lineno is not None
    return "".join(lines[: node.lineno - 1] + lines[node.end_lineno :])


def _delete_method(file: Path, cls: str, name: str) -> None:
    text = file.read_text()
    rewrite(file, _without_lines(text, _method(text, cls, name)))


def _delete_first_if_on(file: Path, cls: str, name: str, attribute: str) -> None:
    """Delete the `if` in a method that tests `self.<attribute>`, with what it guards."""
    text = file.read_text()
    conditions = (node for node in ast.walk(_method(text, cls, name)) if isinstance(node, ast.If))
    found = next(node for node in conditions if f"self.{attribute}" in ast.unparse(node.test))
    rewrite(file, _without_lines(text, found))
