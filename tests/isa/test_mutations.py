"""The interpreter sees what it is there to see: each test runs a kernel that is wrong in one way, and the right one."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import numpy.typing as npt
import pytest

from .gfx950 import CodeObjectError, Launch, Memory, MemoryAccessError, UnknownInstructionError, load, run
from .gfx950.decode import decode
from .gfx950.machine import bind
from .harness import hip_module, run_kernel

pytestmark = pytest.mark.isa

Array = npt.NDArray[Any]

THREADS = 256
E8M0_BIAS = 127


def test_a_store_past_the_end_is_caught() -> None:
    size = 300
    x, y = np.arange(size, dtype=np.uint32), np.zeros(size, np.uint32)
    run_kernel(hip_module("memory"), "copy", x, y, size, grid=(2, 1, 1))
    np.testing.assert_array_equal(y, x)
    who = r"global_store_dword at 0x[0-9a-f]+: .*\(rank 0 \(copy\), workgroup 1, wave 0, lane 44\)"
    with pytest.raises(MemoryAccessError, match=rf"{who}: .*argument 1 \+ 0x4b0 \(size 0x4b0\)"):
        run_kernel(hip_module("memory", "ONE_TOO_FAR"), "copy", x, y, size, grid=(2, 1, 1))


def test_a_32_bit_slot_offset_is_caught() -> None:
    memory, slot, row_words = Memory(), 5 << 20, 1024
    pool, x, y = 0x7E00_0000_0000, np.arange(row_words, dtype=np.uint32), np.zeros(THREADS, np.uint32)
    memory.add(pool + 4 * row_words * slot, x, "row")
    module = hip_module("memory", "OFFSET_32_BITS")
    kernarg = module.kernels["pool_row"].kernarg(pool, memory.place(y), slot, row_words)
    with pytest.raises(MemoryAccessError, match=r"pool_row.* are not in the buffer"):
        run([Launch(module, "pool_row", kernarg, 1, THREADS)], memory)


def test_a_store_to_read_only_memory_is_caught() -> None:
    module, memory = hip_module("memory"), Memory()
    x, y = np.arange(THREADS, dtype=np.uint32), np.zeros(THREADS, np.uint32)
    kernarg = module.kernels["copy"].kernarg(memory.place(x), memory.place(y, "weights", writable=False), THREADS)
    with pytest.raises(MemoryAccessError, match="store to read-only weights"):
        run([Launch(module, "copy", kernarg, 1, THREADS)], memory)


@pytest.mark.parametrize("kernel", ["tree_sum", "reverse"])
def test_a_missing_lds_barrier_changes_the_result(rng: np.random.Generator, kernel: str) -> None:
    dtype = np.float32 if kernel == "tree_sum" else np.uint32
    x = rng.integers(0, 1000, THREADS).astype(dtype)
    right = np.array([x.sum()], dtype) if kernel == "tree_sum" else x[::-1]

    def wrong_seeds(*defines: str) -> int:
        wrong = 0
        for seed in range(20):
            out = np.zeros_like(right)
            run_kernel(hip_module("lds", *defines), kernel, x, out, seed=seed)
            wrong += not np.array_equal(out, right)
        return wrong

    assert wrong_seeds() == 0
    assert wrong_seeds("WITHOUT_BARRIER") > 0


def test_a_wrong_operand_layout_is_seen(rng: np.random.Generator) -> None:
    a, b = (rng.integers(-8, 9, (16, 32)).astype(ml_dtypes.bfloat16) for _ in "ab")
    right = a.astype(np.float32) @ b.astype(np.float32).T

    def product(*defines: str) -> Array:
        c = np.zeros((16, 16), np.float32)
        run_kernel(hip_module("matrix", *defines), "bf16_product", a, b, c, block=64)
        return c

    np.testing.assert_array_equal(product(), right)
    assert not np.array_equal(product("SWAPPED_LAYOUT"), right)


def test_a_scale_of_the_next_block_is_seen(rng: np.random.Generator) -> None:
    codes = [rng.integers(0, 16, (16, 128), np.uint8) for _ in "ab"]
    scales = [rng.integers(E8M0_BIAS - 3, E8M0_BIAS + 4, (16, 4), np.uint8) for _ in "ab"]
    values = [
        c.view(ml_dtypes.float4_e2m1fn).astype(np.float64) * np.repeat(np.ldexp(1.0, s.astype(int) - E8M0_BIAS), 32, 1)
        for c, s in zip(codes, scales, strict=True)
    ]
    a, b = (np.ascontiguousarray(c[:, 0::2] | c[:, 1::2] << 4) for c in codes)

    def product(*defines: str) -> Array:
        c = np.zeros((16, 16), np.float32)
        run_kernel(hip_module("matrix", *defines), "fp4_product", a, scales[0], b, scales[1], c, block=64)
        return c

    # 128 products of few bits: exact in float32
    np.testing.assert_array_equal(product(), values[0] @ values[1].T)
    assert not np.array_equal(product("SCALE_OF_THE_NEXT_BLOCK"), values[0] @ values[1].T)


def test_an_unknown_instruction_is_named() -> None:
    # s_rfe_b64 s[0:1], which returns from a trap handler, and a word that is no instruction at all
    with pytest.raises(UnknownInstructionError, match=r"unknown instruction: s_rfe_b64 at 0x40: "):
        bind(decode(bytes.fromhex("001f80be00000000"), 0x40))
    with pytest.raises(UnknownInstructionError, match=r"no instruction at 0x80: ffffffff"):
        decode(bytes.fromhex("ffffffffffffffff"), 0x80)


def test_what_is_not_a_gfx950_code_object_is_refused() -> None:
    with pytest.raises(CodeObjectError, match="not an ELF file"):
        load(b"__CLANG_OFFLOAD_BUNDLE__")
    module = hip_module("memory")
    with pytest.raises(CodeObjectError, match="takes 3 arguments, not 1"):
        module.kernels["copy"].kernarg(0)
    with pytest.raises(CodeObjectError, match="no kernel missing"):
        run([Launch(module, "missing", b"", 1, THREADS)], Memory())
