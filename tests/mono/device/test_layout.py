from __future__ import annotations

import struct
from collections.abc import Mapping

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sgl_amd_mono.build.compile import ARCHES, HOST, build
from sgl_amd_mono.device import layout
from sgl_amd_mono.device.layout import Record, read_layout
from sgl_amd_mono.errors import BuildError, LayoutError
from sgl_amd_mono.models.glm53_flash.program import KERNEL

pytestmark = pytest.mark.compile


@pytest.fixture(scope="module")
def records() -> Mapping[str, Record]:
    return read_layout(build(KERNEL, HOST).binary)


@pytest.mark.parametrize("arch", [arch for arch in ARCHES if arch != HOST])
def test_gpu_and_host_agree(arch: str, records: Mapping[str, Record]) -> None:
    assert read_layout(build(KERNEL, arch).binary) == records


def test_records_are_those_of_the_kernel(records: Mapping[str, Record]) -> None:
    phases = {name: record.phase for name, record in records.items() if record.phase is not None}
    assert phases == {"kda_project": 0, "kda_gates": 1, "kda_conv": 2, "kda_update": 3, "kda_output": 4}
    # an arrival counter and a release flag for each of eight dies, one counter of the dies, 128 bytes each
    assert records["GridState"].size == 17 * 128


WORD = st.integers(0, 2**32 - 1)
ADDRESS = st.integers(0, 2**64 - 1)


@given(program=ADDRESS, grid=ADDRESS, faults=ADDRESS, begin=WORD, end=WORD, workgroups=WORD)
def test_packs_as_the_c_struct_lies(
    program: int, grid: int, faults: int, begin: int, end: int, workgroups: int, records: Mapping[str, Record]
) -> None:
    """Three pointers, then three words and one of padding, as the rules of C lay them out."""
    packed = records["LaunchArgs"].pack(
        program=program, grid=grid, faults=faults, begin=begin, end=end, workgroups=workgroups
    )
    assert packed == struct.pack("<QQQIIII", program, grid, faults, begin, end, workgroups, 0)


def test_packs_arrays_and_floats(records: Mapping[str, Record]) -> None:
    record = records["kda_project"]
    weights, ends = [11, 12, 13, 14, 15, 16], [1, 2, 3, 4, 5, 6]
    packed = record.pack(x=7, weights=weights, projected=8, weight_end=ends, rows=3, hidden=4096, columns=6)
    assert packed == struct.pack("<Q6QQ6IIIII", 7, *weights, 8, *ends, 3, 4096, 6, 0)
    eps = records["kda_output"]
    values = dict.fromkeys(eps.dtype.names or (), 0)
    unpacked = np.frombuffer(eps.pack(**{**values, "norm_eps": 0.5}), eps.dtype)[0]
    assert unpacked["norm_eps"] == 0.5


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"rank": 1}, r"missing \[\], unknown \['rank'\]"),
        ({"begin": None}, r"missing \['begin'\], unknown \[\]"),
        ({"begin": -1}, "LaunchArgs.begin: -1 does not fit"),
        ({"end": 2**32}, "LaunchArgs.end: 4294967296 does not fit"),
        ({"grid": [1, 2]}, "LaunchArgs.grid: .* does not fit"),
    ],
)
def test_refuses_values(change: dict[str, int | None], message: str, records: Mapping[str, Record]) -> None:
    values = {"program": 1, "grid": 2, "faults": 3, "begin": 0, "end": 1, "workgroups": 8, **change}
    with pytest.raises(LayoutError, match=message):
        records["LaunchArgs"].pack(**{name: value for name, value in values.items() if value is not None})


def test_refuses_a_table_of_another_format(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(layout, "read_symbol", lambda path, name: bytes(7))
    with pytest.raises(BuildError, match="the layout table has 7 bytes"):
        read_layout(build(KERNEL, HOST).binary)
