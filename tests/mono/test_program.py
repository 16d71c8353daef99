from __future__ import annotations

import pytest
import torch

from sgl_amd_mono.device.host import HostDevice
from sgl_amd_mono.errors import LayoutError
from sgl_amd_mono.models.glm53_flash.program import KERNEL
from sgl_amd_mono.program import Entry, Program

pytestmark = pytest.mark.host

GATES = {
    "projected": torch.zeros(1, 8),
    "forget_weight": None,
    "output_weight": None,
    "gates": None,
    "rows": 1,
    "projected_columns": 8,
    "low_rank_column": 0,
    "low_rank": 8,
    "channels": 2,
}


def test_tables_begin_on_cache_lines_and_hold_the_addresses() -> None:
    device = HostDevice(KERNEL)
    program = Program(device, [Entry(phase="kda_gates", layer=4, args=GATES)] * 3)
    launch = device.layout["LaunchArgs"].unpack(program.launch_args(1, 3))
    assert (launch["begin"], launch["end"], launch["workgroups"]) == (1, 3, device.workgroups)
    for name in ("program", "grid", "faults"):
        assert launch[name] % 128 == 0
    assert program.fault() is None


@pytest.mark.parametrize(
    ("entry", "message"),
    [
        (Entry(phase="attention", layer=0, args={}), r"no phase 'attention'; it has \['kda_conv', .*'kda_update'\]"),
        (Entry(phase="LaunchArgs", layer=0, args={}), "no phase 'LaunchArgs'"),
        (Entry(phase="kda_gates", layer=0, args={"rows": 1}), "kda_gates: missing .*'gates'"),
        (Entry(phase="kda_gates", layer=0, args={**GATES, "extra": 1}), r"unknown \['extra'\]"),
        (
            Entry(phase="kda_gates", layer=7, args={**GATES, "gates": torch.empty(2, device="meta")}),
            "kda_gates.gates of layer 7 is on meta, the program runs on cpu",
        ),
    ],
)
def test_refuses_entries(entry: Entry, message: str) -> None:
    with pytest.raises(LayoutError, match=message):
        Program(HostDevice(KERNEL), [entry])
