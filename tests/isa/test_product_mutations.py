"""Phases of the product with one mistake: what sees it. The same phases without it are right.

kernels/project.hip holds the phases; the other mistakes are in test_primitives.py (lane exchanges, matrix operands,
scales), test_memory_order.py (memory order) and test_mutations.py (the interpreter itself).
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

from sgl_amd_mono.build.compile import HOST, Artifact, build, kernels
from sgl_amd_mono.device.base import Device
from sgl_amd_mono.device.host import HostDevice
from sgl_amd_mono.device.layout import read_layout
from sgl_amd_mono.errors import BuildError, LaunchError
from sgl_amd_mono.program import Entry, Program, Slicing
from tests.kernel_sources import with_change, with_kernels

from .device import IsaDevice
from .harness import KERNELS

pytestmark = [pytest.mark.isa, pytest.mark.host, pytest.mark.compile]

KERNEL = "project"
LINEAR, CONV, LAYOUT, BASE = (
    "phases/linear.h",
    "phases/kda_conv.h",
    "include/mono/layout.h",
    "include/mono/base.h",
)
BEFORE_THE_SUMS = "  workgroup_barrier();\n  constexpr u32 kPairs"
SEEDS = 4
CACHE_LINE_BYTES = 128
# one whole 128-channel unit of the convolution
ROWS, HIDDEN, COLUMNS = 3, 128, 128

Mutate = Callable[[str, str, str], Path]


@pytest.fixture(scope="module")
def unmutated(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return with_kernels(tmp_path_factory.mktemp("hip"), KERNELS / f"{KERNEL}.hip")


@pytest.fixture
def mutate(tmp_path: Path) -> Mutate:
    return lambda file, old, new: with_change(tmp_path / "hip", file, old, new, KERNELS / f"{KERNEL}.hip")


def isa_device(sources: Path, seed: int = 0) -> IsaDevice:
    return IsaDevice(build(KERNEL, "gfx950", sources=sources), f"{KERNEL}_step", workgroups=2, seed=seed)


def run(device: Device, entry: Entry) -> None:
    program = Program(device, [entry])
    if isinstance(device, IsaDevice):
        device.watch(program)
    program.run(Slicing.STEP)


def project(device: Device) -> tuple[Tensor, Tensor]:
    """A product of small integers on the device, and what it is: integers up to 256, which bf16 holds."""
    generator = torch.Generator().manual_seed(3)
    x, weight = (torch.randint(-1, 2, (n, HIDDEN), generator=generator).bfloat16() for n in (ROWS, COLUMNS))
    projected = torch.full((ROWS, COLUMNS), torch.nan, dtype=torch.bfloat16)
    args: dict[str, Tensor | list[Tensor | None] | list[int] | int] = {
        "x": x,
        "weights": [weight, *[None] * 5],
        "weight_end": [COLUMNS] * 6,
        "projected": projected,
        "rows": ROWS,
        "hidden": HIDDEN,
        "columns": COLUMNS,
    }
    run(device, Entry(phase="kda_project", layer=0, args=args))
    return projected, (x.double() @ weight.double().T).bfloat16()


def is_right(device: Device) -> bool:
    return torch.equal(*project(device))


def test_a_missing_lds_barrier_is_seen(unmutated: Path, mutate: Mutate) -> None:
    mutant = mutate(LINEAR, BEFORE_THE_SUMS, BEFORE_THE_SUMS.replace("  workgroup_barrier();\n", ""))
    assert all(is_right(isa_device(unmutated, seed)) for seed in range(SEEDS))
    assert not all(is_right(isa_device(mutant, seed)) for seed in range(SEEDS))


def test_an_early_return_between_two_barriers_is_seen(unmutated: Path, mutate: Mutate) -> None:
    """The interpreter counts the barriers that a wave comes to; the host executor knows who waits where."""
    early = f"  if (wave() >= rows) return;\n{BEFORE_THE_SUMS}"
    mutant = mutate(LINEAR, BEFORE_THE_SUMS, early)
    assert is_right(isa_device(unmutated))
    # a workgroup has two blocks of columns, and a block two barriers; wave 3 leaves before each second one
    with pytest.raises(LaunchError, match=r"ended after \[4, 4, 4, 2\] barriers"):
        project(isa_device(mutant))
    host = HostDevice(KERNEL, workgroups=2, artifact=build(KERNEL, HOST, sources=mutant))
    with pytest.raises(LaunchError, match=r"Threads of one workgroup diverge: .*linear\.h:\d+.*, but .*linear\.h:\d+"):
        project(host)


def test_a_store_out_of_bounds_is_seen(unmutated: Path, mutate: Mutate) -> None:
    """The 16 rows of a matrix instruction, of which the step has three."""
    mutant = mutate(LINEAR, "if (row >= rows || block.first", "if (block.first")
    assert is_right(isa_device(unmutated))
    who = r"global_store_dword at 0x[0-9a-f]+: .*workgroup \d, wave \d, lane \d+"
    with pytest.raises(LaunchError, match=rf"{who}\): .*(not in the buffer|below every buffer)"):
        project(isa_device(mutant))


def shifted_window(device: IsaDevice, pool: Tensor) -> Tensor:
    """The window of past tokens in slot 2 of `pool` [3, 3, COLUMNS] after a step with the token 7."""
    args = {
        "projected": torch.full((1, COLUMNS), 7.0, dtype=torch.bfloat16),
        "taps": torch.ones(COLUMNS, 4),
        "slots": torch.tensor([2], dtype=torch.int32),
        "track_mask": None,
        "track_slots": None,
        "state": pool,
        "convolved": torch.zeros(1, COLUMNS, dtype=torch.bfloat16),
        "state_slot_stride": pool.stride(0),
        "rows": 1,
        "projected_columns": COLUMNS,
        "channels": COLUMNS,
        "pool_slots": 3,
    }
    run(device, Entry(phase="kda_conv", layer=0, args=args))
    return pool[2]


def test_a_32_bit_slot_offset_is_seen(unmutated: Path, mutate: Mutate, tmp_path: Path) -> None:
    """Slot 2 of a pool in a sparse file begins past 2^31 elements."""
    signature = "shift(const Args& args, const u32 (&tokens)[kTaps], i64 slot, u32 channel) {\n"
    state = "    const Global<bf16> state = args.state + slot * args.state_slot_stride;"
    # the low 31 bits: what is left of the offset in an i32, kept from becoming negative
    narrow = state.replace("slot * args.state_slot_stride", "(slot * args.state_slot_stride & 0x7fffffff)")
    mutant = mutate(CONV, signature + state, signature + narrow)
    tokens = torch.tensor([4.0, 5.0, 6.0], dtype=torch.bfloat16)[:, None].expand(-1, COLUMNS)
    stride = 2**30 + 1024
    for sources, expected in ((unmutated, [5, 6, 7]), (mutant, [4, 5, 6])):
        file = torch.from_file(str(tmp_path / "pool"), shared=True, size=3 * stride, dtype=torch.bfloat16)
        pool = file.as_strided((3, 3, COLUMNS), (stride, COLUMNS, 1))
        pool[2] = tokens
        assert shifted_window(isa_device(sources), pool)[:, 0].tolist() == expected


def narrow_strides(artifact: Artifact) -> list[str]:
    """Strides, which multiply a slot, that a kernel takes in fewer than 64 bits."""
    records = read_layout(artifact.binary).values()
    strides = [(r.name, name, r.dtype[name]) for r in records for name in r.dtype.names or () if "stride" in name]
    assert strides
    return [f"{record}.{name}" for record, name, dtype in strides if dtype != np.int64]


def test_a_32_bit_stride_is_seen(mutate: Mutate) -> None:
    assert [found for kernel in kernels() for found in narrow_strides(build(kernel, "gfx950"))] == []
    mutant = mutate(CONV, "i64 state_slot_stride;", "u32 state_slot_stride;")
    assert narrow_strides(build(KERNEL, "gfx950", sources=mutant)) == ["kda_conv.state_slot_stride"]


def line_distances(sources: Path) -> list[int]:
    """Bytes from each counter or flag of the grid barrier to the next, as the code object declares them."""
    grid = read_layout(build(KERNEL, "gfx950", sources=sources).binary)["GridState"]
    fields = [grid.dtype.fields[name] for name in grid.dtype.names] if grid.dtype.fields and grid.dtype.names else []
    ends = [*(offset for _, offset, *_ in fields[1:]), grid.size]
    distances = []
    for (field, offset, *_), end in zip(fields, ends, strict=True):
        count = field.shape[0] if field.shape else 1
        distances += [(end - offset) // count] * count
    return distances


def test_a_counter_on_the_line_of_a_flag_is_seen(unmutated: Path, mutate: Mutate) -> None:
    distances = line_distances(unmutated)
    # of eight dies, an arrival counter and a release flag each, and the counter of the dies
    assert len(distances) == 17
    assert min(distances) >= CACHE_LINE_BYTES
    with pytest.raises(BuildError, match=r"static assertion failed.*sizeof\(mono::GridState\)"):
        build(KERNEL, "gfx950", sources=mutate(LAYOUT, "struct alignas(kCacheLineBytes) Line", "struct Line"))


def test_a_shorter_line_is_seen(mutate: Mutate) -> None:
    """The assertion in the header would take the constant's word for it; our reader of layouts does not."""
    mutant = mutate(BASE, "kCacheLineBytes = 128", "kCacheLineBytes = 64")
    with pytest.raises(BuildError, match=r"the fields of GridState do not fit in its 1088 bytes"):
        line_distances(mutant)
