"""The fused half layers inside the model, against transformers' own KDA layer and under a broken kernel."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from sgl_amd_mono.build.compile import HOST, build
from sgl_amd_mono.device.host import HostDevice
from sgl_amd_mono.models.glm53_flash.checked_kda import CheckedKda
from sgl_amd_mono.models.glm53_flash.checkpoint import Checkpoint
from sgl_amd_mono.models.glm53_flash.fused_kda import FusedKda
from sgl_amd_mono.models.glm53_flash.program import KERNEL
from sgl_amd_mono.models.glm53_flash.reference.model import ReferenceModel
from sgl_amd_mono.models.glm53_flash.reference.rounding import Rounding
from sgl_amd_mono.program import Slicing
from tests.kernel_sources import with_change

pytestmark = pytest.mark.host

# half an ulp of bf16, relative
BF16_ROUNDING = 2.0**-9


@pytest.mark.parametrize("rows", [1, 3])
def test_half_layer_matches_transformers(rows: int, servable: Checkpoint, load_upstream: Callable[[Path], Any]) -> None:
    """transformers' layer sees the whole sequence at once, in float32; the fused one a token a step, from nothing.

    The standard path rounds to bf16 at six places of a half layer (spec 13). Independent errors of half an ulp add up
    to the root of six of them; eight, of the output's root mean square, bound the mean error, and eight times that the
    worst element. A kernel without the decay is at 126, one with the taps in reverse order at 410.
    """
    tokens = 12
    generator = torch.Generator().manual_seed(5)
    model = ReferenceModel(servable, Rounding.STANDARD)
    upstream = load_upstream(servable.directory).model.language_model
    state = model.new_state(rows, tokens)
    fused = FusedKda(model, HostDevice(KERNEL), state, Slicing.STEP)
    for layer in servable.config.kda_layers:
        y = torch.randn(rows, tokens, servable.config.hidden_size, generator=generator).bfloat16()
        with torch.no_grad():
            expected = upstream.layers[layer].self_attn(y.float())
        expected = expected[0] if isinstance(expected, tuple) else expected
        state.active.fill_(True)
        actual = torch.stack([fused(layer, y[:, token], state) for token in range(tokens)], dim=1)
        error = (actual - expected).abs()
        scale = expected.double().square().mean().sqrt()
        assert error.square().mean().sqrt() <= 8 * BF16_ROUNDING * scale
        assert error.max() <= 64 * BF16_ROUNDING * scale


def mutant(root: Path, header: str, old: str, new: str) -> HostDevice:
    """The host device of a kernel in whose phase header `old` reads `new`."""
    return HostDevice(KERNEL, artifact=build(KERNEL, HOST, sources=with_change(root, f"phases/{header}", old, new)))


@pytest.mark.parametrize(
    ("header", "old", "new", "breached"),
    [
        ("kda_update.h", ") * beta;", ");", "kda_update.state"),
        ("kda_conv.h", "tokens[i + 1]", "tokens[i]", "kda_conv.conv_state"),
        (
            "kda_output.h",
            "const bool padded = args.slots.load(row) < 0;",
            "const bool padded = row == 0;",
            "kda_output",
        ),
    ],
)
def test_check_sees_a_broken_phase(
    header: str, old: str, new: str, breached: str, servable: Checkpoint, tmp_path: Path
) -> None:
    """The check passes with the kernel as it is, and names the phase and region that a mutant breaks."""
    ids = torch.tensor([[3, 7], [11, -1], [5, 9]])
    for device, ok in ((HostDevice(KERNEL), True), (mutant(tmp_path / "hip", header, old, new), False)):
        model = ReferenceModel(servable, Rounding.STANDARD)
        state = model.new_state(2, len(ids))
        checked = CheckedKda(FusedKda(model, device, state, Slicing.LAYER), model)
        for step in ids:
            model.step(step, state, checked)
        assert (not checked.breached) is ok
        assert ok or any(measured.name.startswith(breached) for measured in checked.breached)
        # every output of every phase and every region, in every half layer
        assert set(checked.comparisons.values()) == {len(ids) * len(servable.config.kda_layers)}
