"""The routed step on the host device, in a model that is nothing but its KDA half layers; no SGLang needed."""

from __future__ import annotations

import copy
import logging
from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor

from sgl_amd_mono.device.host import HostDevice
from sgl_amd_mono.errors import BindError, LaunchError
from sgl_amd_mono.fault_inject import FaultInjection, FaultInjectionKind
from sgl_amd_mono.models.glm53_flash import monokernel
from sgl_amd_mono.models.glm53_flash.bind import KdaModule
from sgl_amd_mono.models.glm53_flash.kda_buffers import KdaCache
from sgl_amd_mono.models.glm53_flash.monokernel import Monokernel
from sgl_amd_mono.models.glm53_flash.program import KERNEL
from sgl_amd_mono.program import Slicing
from sgl_amd_mono.upstream import StepRows, TensorParallel
from tests.models.glm53_flash.kda_case import HalfLayer, random_cache, random_weights, random_x

HIDDEN, HEADS, SLOTS = 128, 8, 6
# as a model whose other layers are of another kind, and a pool that holds them in another order
LAYERS = (1, 4, 6)
DEADLINE_S = 1.0
MARK = 7.0


class Attention(torch.nn.Module):
    """A KDA half layer whose standard path is known by what it gives."""

    def forward(self, hidden_states: Tensor, forward_batch: Any, **kwargs: Any) -> Tensor:
        return torch.full_like(hidden_states, MARK)


class Model(torch.nn.Module):
    """Feeds each half layer the first one's input, and gives all that they gave."""

    def __init__(self) -> None:
        super().__init__()
        self.halves = torch.nn.ModuleList([Attention() for _ in LAYERS])

    def forward(self, x: Tensor, positions: Any, forward_batch: Any) -> list[Tensor]:
        return [half(positions=positions, hidden_states=x, forward_batch=forward_batch).clone() for half in self.halves]


class Server:
    """What SGLang would hold round the model, and the monokernel on it."""

    def __init__(self, patch: pytest.MonkeyPatch, fault: FaultInjection | None = None) -> None:
        self.weights = {layer: random_weights(HIDDEN, HEADS, seed=layer) for layer in LAYERS}
        self.allocate_pools(seed=1)
        self.rows = StepRows(slots=torch.tensor([2, 5], dtype=torch.int32), track_mask=None, track_slots=None)
        self.in_flight = False
        for name, function in {
            "hybrid_backend": lambda: None,
            "step_rows": lambda backend, batch: self.rows,
            "transfer_in_flight": lambda backend: self.in_flight,
            "is_capturing": lambda: False,
            "binding_name": lambda backend: "a test",
            "kda_caches": lambda backend, layers: {layer: self.caches[layer] for layer in layers},
        }.items():
            patch.setattr(monokernel, name, function)
        self.model = Model()
        modules = [
            KdaModule(layer, half, self.weights[layer]) for layer, half in zip(LAYERS, self.model.halves, strict=True)
        ]
        self.device = HostDevice(KERNEL, has_peers=True)
        ranks = TensorParallel(3, 4, None)
        self.monokernel = Monokernel(self.model, modules, self.device, ranks=ranks, deadline_s=DEADLINE_S, fault=fault)

    def allocate_pools(self, seed: int) -> None:
        """One storage for all layers, in reverse order."""
        caches = [random_cache(SLOTS, HEADS, seed=seed + i) for i in range(len(LAYERS))]
        conv = torch.stack([cache.conv for cache in caches])
        temporal = torch.stack([cache.temporal for cache in caches])
        self.caches = {layer: KdaCache(conv[i], temporal[i]) for i, layer in enumerate(reversed(LAYERS))}

    def step(self, x: Tensor) -> list[Tensor]:
        result: list[Tensor] = self.monokernel.forward(SimpleNamespace(), x, None, SimpleNamespace())
        return result


@pytest.fixture
def serve(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Server]:
    return lambda **options: Server(monkeypatch, **options)


def expected(server: Server, x: Tensor) -> tuple[list[Tensor], dict[int, KdaCache]]:
    """Each half layer by a program of its own, on copies of the pools."""
    caches = {layer: KdaCache(cache.conv.clone(), cache.temporal.clone()) for layer, cache in server.caches.items()}
    rows = server.rows
    track = None if rows.track_mask is None else (rows.track_mask.tolist(), rows.track_slots.tolist())  # type: ignore[union-attr]
    partials = []
    for layer in LAYERS:
        half = HalfLayer(HostDevice(KERNEL), server.weights[layer], caches[layer], rows.slots.tolist(), track=track)
        half.x.copy_(x)
        half.program.run(Slicing.STEP)
        partials.append(half.partial)
    return partials, caches


def assert_step(server: Server, x: Tensor) -> None:
    partials, caches = expected(server, x)
    got = server.step(x)
    assert all(torch.equal(a, b) for a, b in zip(got, partials, strict=True))
    for layer in LAYERS:
        assert torch.equal(server.caches[layer].conv, caches[layer].conv)
        assert torch.equal(server.caches[layer].temporal, caches[layer].temporal)


def test_every_layer_computes_on_its_own_weights_and_pools(serve: Callable[..., Server]) -> None:
    server = serve()
    assert_step(server, random_x(2, HIDDEN))
    # a second step, and one of another width with a padded row
    assert_step(server, random_x(2, HIDDEN, seed=5))
    server.rows = StepRows(slots=torch.tensor([0, -1, 3], dtype=torch.int32), track_mask=None, track_slots=None)
    assert_step(server, random_x(3, HIDDEN))
    assert dict(server.monokernel.counters.fused) == {2: 2, 3: 1}


def test_the_prefix_cache_gets_its_copies(serve: Callable[..., Server]) -> None:
    server = serve()
    assert_step(server, random_x(2, HIDDEN))
    server.rows = StepRows(
        slots=torch.tensor([2, 5], dtype=torch.int32),
        track_mask=torch.tensor([False, True]),
        track_slots=torch.tensor([0, 1]),
    )
    assert_step(server, random_x(2, HIDDEN))
    for layer in LAYERS:
        assert torch.equal(server.caches[layer].temporal[1], server.caches[layer].temporal[5])


def test_pools_that_moved_are_bound_anew(serve: Callable[..., Server], caplog: pytest.LogCaptureFixture) -> None:
    server = serve()
    x = random_x(2, HIDDEN)
    assert_step(server, x)
    old = server.caches
    kept = copy.deepcopy({layer: (cache.conv, cache.temporal) for layer, cache in old.items()})
    server.allocate_pools(seed=9)
    with caplog.at_level(logging.INFO):
        assert_step(server, x)
    assert "the state pools have moved" in caplog.text
    for layer, (conv, temporal) in kept.items():
        assert torch.equal(old[layer].conv, conv)
        assert torch.equal(old[layer].temporal, temporal)


@pytest.mark.parametrize("moved", [False, True])
def test_a_capture_binds_nothing(serve: Callable[..., Server], monkeypatch: pytest.MonkeyPatch, moved: bool) -> None:
    server = serve()
    x = random_x(2, HIDDEN)
    if moved:
        server.step(x)
        server.allocate_pools(seed=9)
    monkeypatch.setattr(server.device, "is_capturing", lambda: True)
    with pytest.raises(BindError, match="have moved" if moved else "no step ran before it"):
        server.step(x)


def test_a_captured_step_makes_nothing_but_launches(
    serve: Callable[..., Server], monkeypatch: pytest.MonkeyPatch
) -> None:
    server = serve()
    x = random_x(2, HIDDEN)
    server.step(x)
    monkeypatch.setattr(server.device, "is_capturing", lambda: True)
    monkeypatch.setattr(torch, "empty", None)
    monkeypatch.setattr(torch, "zeros", None)
    launches = server.device.launches
    server.step(x)
    assert server.device.launches == launches + len(LAYERS)


def test_an_input_of_other_rows_is_refused(serve: Callable[..., Server]) -> None:
    with pytest.raises(BindError, match=r"input is \[1, 128\], the step has \[2, 128\]"):
        serve().step(random_x(1, HIDDEN))


def test_hicache_in_flight_takes_the_standard_path(
    serve: Callable[..., Server], caplog: pytest.LogCaptureFixture
) -> None:
    server = serve()
    server.in_flight = True
    before = {layer: cache.temporal.clone() for layer, cache in server.caches.items()}
    with caplog.at_level(logging.WARNING):
        for _ in range(2):
            assert all(bool((half == MARK).all()) for half in server.step(random_x(2, HIDDEN)))
    assert caplog.text.count("HiCache is loading this step's layers") == 1
    assert dict(server.monokernel.counters.declined) == {"HiCache is loading this step's layers": 2}
    assert server.device.launches == 0
    assert all(torch.equal(server.caches[layer].temporal, before[layer]) for layer in LAYERS)


def test_outside_of_a_routed_step_the_modules_are_what_they_were(serve: Callable[..., Server]) -> None:
    server = serve()
    server.step(random_x(2, HIDDEN))
    assert all(bool((half == MARK).all()) for half in server.model(random_x(2, HIDDEN), None, None))
    # also after one that failed
    with pytest.raises(BindError):
        server.step(random_x(1, HIDDEN))
    assert all(bool((half == MARK).all()) for half in server.model(random_x(2, HIDDEN), None, None))


def test_a_stalled_workgroup_ends_the_step_with_its_record(
    serve: Callable[..., Server], caplog: pytest.LogCaptureFixture
) -> None:
    server = serve(fault=FaultInjection(kind=FaultInjectionKind.STALL, layer=4, after=1))
    x = random_x(2, HIDDEN)
    server.step(x)
    with caplog.at_level(logging.ERROR), pytest.raises(LaunchError, match=r"rank 3, layer 4, phase kda_\w+, workgroup"):
        server.step(x)
    assert "rank 3 stops" in caplog.text
    assert "a wait passed its deadline" in caplog.text


@pytest.mark.parametrize("region", ["conv_state", "state", "partial"])
def test_a_corruption_changes_its_region_alone(serve: Callable[..., Server], region: str) -> None:
    server = serve(fault=FaultInjection(kind=FaultInjectionKind.CORRUPT, layer=4, region=region))
    x = random_x(2, HIDDEN)
    partials, caches = expected(server, x)
    got = server.step(x)
    differences = {
        "conv_state": [int((server.caches[i].conv != caches[i].conv).sum()) for i in LAYERS],
        "state": [int((server.caches[i].temporal != caches[i].temporal).sum()) for i in LAYERS],
        "partial": [int((a != b).sum()) for a, b in zip(got, partials, strict=True)],
    }
    assert differences.pop(region) == [0, 1, 0]
    assert all(counts == [0, 0, 0] for counts in differences.values())


def test_a_skipped_layer_leaves_its_state(serve: Callable[..., Server]) -> None:
    server = serve(fault=FaultInjection(kind=FaultInjectionKind.SKIP, layer=4))
    before = {layer: cache.temporal.clone() for layer, cache in server.caches.items()}
    server.step(random_x(2, HIDDEN))
    changed: Sequence[bool] = [not torch.equal(server.caches[layer].temporal, before[layer]) for layer in LAYERS]
    assert changed == [True, False, True]
