"""Random programs give the same bits on the interpreter and on this machine: its arithmetic against a processor's."""

from __future__ import annotations

import ctypes

import numpy as np
import pytest

from .build import compile_hip, compile_host
from .gfx950 import Launch, Memory, load, run
from .random_program import INPUTS, PRELUDE, Writer

pytestmark = pytest.mark.isa

PROGRAMS = 40
STATEMENTS = 90
THREADS = 128

_UNIFORMS = ", ".join(f"u32 uniform{i}" for i in range(INPUTS))
_ARGUMENTS = ", ".join(f"uniform{i}" for i in range(INPUTS))
_WRITERS = [Writer(seed) for seed in range(PROGRAMS)]
_FUNCTIONS = "".join(writer.function(f"program{i}", STATEMENTS) for i, writer in enumerate(_WRITERS))

_DEVICE = (
    "#define FN __attribute__((device)) inline\n"
    + PRELUDE
    + _FUNCTIONS
    + "".join(
        f"""
extern "C" __attribute__((global)) void kernel{i}(const u32* in, u64* out, {_UNIFORMS}) {{
  const u32 thread = __builtin_amdgcn_workitem_id_x();
  program{i}(in + {INPUTS} * thread, out + {len(_WRITERS[i].lines)} * thread, {_ARGUMENTS});
}}"""
        for i in range(PROGRAMS)
    )
)
_HOST = "#define FN inline\n" + PRELUDE + _FUNCTIONS + "".join(
    f"""
extern "C" void kernel{i}(const u32* in, u64* out, u32 threads, {_UNIFORMS}) {{
  for (u32 thread = 0; thread < threads; ++thread)
    program{i}(in + {INPUTS} * thread, out + {len(_WRITERS[i].lines)} * thread, {_ARGUMENTS});
}}"""
    for i in range(PROGRAMS)
)  # fmt: skip


def inputs(rng: np.random.Generator) -> np.ndarray:
    """Bit patterns [THREADS, INPUTS]: random integers, ordinary floats, and values at which arithmetic is special."""
    integers = rng.integers(0, 2**32, (THREADS, INPUTS), np.uint32) >> rng.integers(0, 32, (THREADS, INPUTS), np.uint32)
    floats = (rng.normal(size=(THREADS, INPUTS)) * np.ldexp(1.0, rng.integers(-40, 40, (THREADS, INPUTS)))).astype(
        np.float32
    )
    special = np.array(
        [
            0,
            1,
            0x7FFFFFFF,
            0x80000000,
            0xFFFFFFFF,
            0x3F800000,
            0xBF800000,
            0x7F800000,
            0xFF800000,
            0x7FC00000,
            0x00400000,
            0x7F7FFFFF,
        ],
        np.uint32,
    )
    kind = rng.random((THREADS, INPUTS))
    return np.where(
        kind < 0.45, integers, np.where(kind < 0.9, floats.view(np.uint32), rng.choice(special, (THREADS, INPUTS)))
    )


@pytest.mark.parametrize("program", range(PROGRAMS))
def test_same_bits_as_this_machine(program: int) -> None:
    rng = np.random.default_rng(program)
    values, uniforms = inputs(rng), [int(u) for u in inputs(rng)[0]]
    lines = _WRITERS[program].lines
    expected, found = (np.zeros((THREADS, len(lines)), np.uint64) for _ in range(2))
    host = getattr(compile_host(_HOST), f"kernel{program}")
    host(
        ctypes.c_void_p(values.ctypes.data),
        ctypes.c_void_p(expected.ctypes.data),
        THREADS,
        *map(ctypes.c_uint32, uniforms),
    )
    module, memory = load(compile_hip(_DEVICE)), Memory()
    kernarg = module.kernels[f"kernel{program}"].kernarg(memory.place(values), memory.place(found), *uniforms)
    run([Launch(module, f"kernel{program}", kernarg, 1, THREADS)], memory)
    wrong = [
        f"{line}  // thread {thread}: {found[thread, i]:#x} instead of {expected[thread, i]:#x}"
        for i, line in enumerate(lines)
        for thread in np.flatnonzero(found[:, i] != expected[:, i])[:1]
    ]
    assert not wrong, "\n".join(wrong)
