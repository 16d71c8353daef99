"""Each gate is proved by a mutant: `kernels/clean.hip` with one place broken is caught by that gate."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from sgl_amd_mono.build.codeobject import read_kernels
from sgl_amd_mono.build.compile import build, kernels
from sgl_amd_mono.build.gates import LDS_BYTES, instructions, resource_violations, violations

pytestmark = pytest.mark.compile

SOURCES = Path(__file__).parent
CLEAN = (SOURCES / "kernels" / "clean.hip").read_text()

ATTRIBUTE = "amdgpu_flat_work_group_size(256, 256)"
LOAD = "__builtin_nontemporal_load(weights + thread)"
STORE = "tile[thread] = weight.x + weight.w;"

INDEXED_ARRAY = """
  float held[64];
  for (int i = 0; i < 64; ++i) held[i] = args.out[i * 256 + thread];
  tile[thread] = held[args.index];
"""
STACK_SIZED_AT_RUN_TIME = """
  float* held = (float*)__builtin_alloca(args.index);
  held[thread] = weight.x;
  tile[thread] = held[args.index];
"""
MORE_VECTOR_REGISTERS_THAN_A_LANE_HAS = """
  using f32x16 = float __attribute__((ext_vector_type(16)));
  f32x16 held[36];
  for (int i = 0; i < 36; ++i) held[i] = args.out[i * 256 + thread];
  for (int i = 0; i < 36; ++i) asm volatile("" : "+v"(held[i]));
  for (int i = 0; i < 36; ++i) asm volatile("" ::"v"(held[i]));
"""
MORE_SCALAR_REGISTERS_THAN_A_WAVE_HAS = """
  int held[120];
  for (int i = 0; i < 120; ++i) held[i] = __builtin_amdgcn_readfirstlane(((int*)args.out)[i * 256 + thread]);
  for (int i = 0; i < 120; ++i) asm volatile("" : "+s"(held[i]));
  for (int i = 0; i < 120; ++i) asm volatile("" ::"s"(held[i]));
"""

SCRATCH = {"no scratch memory", "no scratch access"}
WIDE = {"streaming loads are 16 bytes wide"}
SCOPE = {"cache maintenance names its scope"}
MUTANTS = {
    "array indexed at run time": (STORE, INDEXED_ARRAY, SCRATCH),
    "stack sized at run time": (STORE, STACK_SIZED_AT_RUN_TIME, SCRATCH | {"no dynamic stack"}),
    "too many vector registers": (STORE, MORE_VECTOR_REGISTERS_THAN_A_LANE_HAS, SCRATCH | {"no spilled registers"}),
    # scalar registers spill into lanes of a vector register, so their own count alone shows it.
    "too many scalar registers": (STORE, MORE_SCALAR_REGISTERS_THAN_A_WAVE_HAS, {"no spilled registers"}),
    "generic pointer": ("(Global<const f32x4>)", "(const f32x4*)", {"no flat access"}),
    "narrow streaming load": (LOAD, "__builtin_nontemporal_load((Global<const f32x2>)weights + thread).xyxy", WIDE),
    "bare invalidate": ("buffer_inv sc1", "buffer_inv", SCOPE),
    "bare write-back": ("buffer_wbl2 sc1", "buffer_wbl2", SCOPE),
}


def test_product_kernels_pass() -> None:
    assert kernels()
    for kernel in kernels():
        artifact = build(kernel, "gfx950")
        assert violations(artifact) == ()
        # else the gate on streaming loads has nothing to judge
        assert artifact.assembly is not None
        assert any("nt" in instruction.operands for instruction in instructions(artifact.assembly.read_text()))


def test_clean_kernel_passes() -> None:
    assert violations(build("clean", "gfx950", sources=SOURCES)) == ()


@pytest.mark.parametrize(("old", "new", "gates"), MUTANTS.values(), ids=MUTANTS)
def test_mutant_breaks_its_gate(tmp_path: Path, old: str, new: str, gates: set[str]) -> None:
    assert CLEAN.count(old) == 1
    (tmp_path / "kernels").mkdir()
    (tmp_path / "kernels" / "mutant.hip").write_text(CLEAN.replace(old, new))
    broken = violations(build("mutant", "gfx950", sources=tmp_path))
    assert {violation.gate for violation in broken} == gates
    assert {violation.kernel for violation in broken} == {"clean"}


@pytest.mark.parametrize("arch", LDS_BYTES)
def test_lds_gate_is_the_size_of_the_compute_unit(arch: str) -> None:
    """The compiler itself refuses static LDS above the limit, so the gate is tried on the record that it reads."""
    (kernel,) = read_kernels(build("clean", arch, sources=SOURCES).binary)
    full = msgspec.structs.replace(kernel, lds=LDS_BYTES[arch])
    over = msgspec.structs.replace(kernel, lds=LDS_BYTES[arch] + 1)
    assert list(resource_violations(full, arch)) == []
    assert [violation.gate for violation in resource_violations(over, arch)] == [f"LDS within {LDS_BYTES[arch]} bytes"]
