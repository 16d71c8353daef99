"""A small SGLang that has one of everything that can drift."""

from __future__ import annotations

PLUGIN_FILE = "kernels/plugin_kernels/amd/spec.py"

FILES = {
    PLUGIN_FILE: """
MONOKERNEL_API_VERSION = 1
""",
    "srt/counter.py": """
class Counter:
    def wait_until(self, layer):
        return layer
""",
    "srt/pool.py": """
from dataclasses import dataclass

from sglang.srt.counter import Counter
from sglang.srt.platform import _is_cuda, _is_hip
from sgl_kernel import fast_copy

PAD_SLOT_ID = -1


class MambaPool:
    @dataclass(frozen=True, kw_only=True)
    class State:
        conv: list
        temporal: object

    @dataclass(frozen=True, kw_only=True)
    class SpeculativeState(State):
        intermediate_ssm: object

    def __init__(self, size):
        self.size = size

    def layer_cache(self, index):
        return self.state[index]


class BaseTable:
    def __init__(self, size):
        self.size = size
        self.rows = [0] * size


class Table(BaseTable):
    quant_block_size = 128
    backend_name = None

    def __init__(self, size, page_size=64):
        super().__init__(size)
        self.layer_map = {}
        self.state_pool: MambaPool = MambaPool(size)
        self.graph_rows = [0]
        self.context_rows = None
        if page_size > 1:
            self.page_table = [0]
        else:
            self.page_table = [1]
        self._allocate()

    def _allocate(self):
        self.buffer = [0]
        self.counter = Counter()

    def init_graph(self):
        self.context_rows = [0]

    def clear(self):
        self.buffer[0] = 0

    def layer_cache(self, layer_id):
        return self.state_pool.layer_cache(self.layer_map[layer_id])

    def get_context(self, rows, wait=True):
        self.counter.wait_until(rows)
        return self.context_rows

    def set_kv(self, layer, loc, k):
        self.buffer[loc] = k

    @property
    def page_size(self):
        return 64

    def copy_rows(self, source):
        return fast_copy(source)


class DecodeTable(Table):
    def __init__(self, size):
        Table.__init__(self, size)


class KVPool:
    def __init__(self):
        self.keys = [0]


def make_table(size) -> Table:
    return Table(size)
""",
    "srt/platform.py": """
_is_hip = is_hip()
_is_cuda = is_cuda()
""",
    "srt/mode.py": """
from enum import IntEnum


class ForwardMode(IntEnum):
    DECODE = 1
    TARGET_VERIFY = 2
""",
    "srt/output.py": """
from dataclasses import dataclass

import msgspec


@dataclass
class Output:
    logits: object
    hidden_states: object = None


class Plan(msgspec.Struct, frozen=True):
    key: object
    state: dict = {}
""",
    "srt/arguments.py": """
class Kernel:
    enable_monokernel: bool = False


class Memory:
    page_size: int = 64
""",
    "srt/environ.py": """
class Envs:
    SGLANG_MODE = EnvStr("static")


def dispatch():
    return get_bool_env_var("SGLANG_USE_AITER")
""",
    "srt/registry.py": """
def wrap(runner):
    if is_gdn(runner):
        backend = GDNBackend(runner)
    elif is_kda(runner):
        backend = KDABackend(runner)
    return Hybrid(backend)
""",
    "srt/runner.py": """
class ModelRunner:
    def load_model(self):
        self.model = load()
        post_load(self.model)
        install(self.model)
        scales(self.model)

    def shared_read_ends(self, mode):
        return "post replay"
""",
    "srt/model.py": """
import torch


class Attention(torch.nn.Module):
    def __init__(self, config):
        self.q_proj = Linear(config)
        self.register_buffer("multipliers", make(config))
        if config.fused:
            self.fused_proj = Linear(config)
""",
    "srt/hooks.py": """
def canary(table):
    return table
""",
}
