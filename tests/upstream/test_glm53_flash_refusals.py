"""Every reason why a server or a loaded model is refused, through SGLang's own `handle_amd_monokernel` and
`install_monokernel_forward`: what was seen, what is needed, and which flag cures it.
"""

from __future__ import annotations

import copy
import inspect
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from sgl_amd_mono import contract_check
from sgl_amd_mono.build.compile import HOST, build
from sgl_amd_mono.models.glm53_flash import served
from sgl_amd_mono.models.glm53_flash.program import KERNEL
from sgl_amd_mono.models.glm53_flash.served import TP_SIZES
from tests.sglang_cpu import environment
from tests.sglang_cpu.runner import Runner
from tests.sglang_cpu.server_args import cpu_server_args

ARCHITECTURE = "Glm5NextForConditionalGeneration"


class Changed:
    """Another object with some attributes replaced."""

    def __init__(self, original: Any, **changes: Any) -> None:
        self.__dict__.update(changes, _original=original)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._original, name)


@pytest.fixture(scope="module")
def binding(runner: Runner) -> Iterator[Any]:
    """SGLang's binding of the plugin contract, on what it takes for an MI355X, with the flag set."""
    environment.pretend_gfx950()
    build(KERNEL, HOST)
    from sglang.srt.kernel_plugins.amd import binding

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(binding, "_backend", lambda: "amd")
        yield binding


@pytest.fixture(scope="module")
def server_args(model: Path, binding: Any) -> Any:
    """Resolved arguments that the flag accepts; resolution itself ran `handle_amd_monokernel` on them."""
    from sglang.srt.server_args import ServerArgs

    args = ServerArgs(model_path=str(model), **cpu_server_args(), enable_amd_monokernel=True)
    args.resolve_once()
    return args


@pytest.fixture
def launch(binding: Any, server_args: Any, monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Runs `handle_amd_monokernel` on the accepted arguments with some of them, or of the configuration, changed."""
    view, config = binding.resolving_view(server_args), binding.model_config_of(server_args)

    def handle(*, text: dict[str, Any] | None = None, **changes: Any) -> None:
        hf_config = copy.deepcopy(config.hf_config)
        for name, value in (text or {}).items():
            setattr(hf_config.text_config, name, value)
        linear = hf_config.text_config.linear_attn_config
        linear.update({name: value for name, value in (text or {}).items() if name in linear})
        hf_config.architectures = changes.pop("architectures", hf_config.architectures)
        dtype = changes.pop("dtype", config.dtype)
        monkeypatch.setattr(binding, "resolving_view", lambda args: Changed(view, **changes))
        monkeypatch.setattr(binding, "model_config_of", lambda args: Changed(config, hf_config=hf_config, dtype=dtype))
        binding.handle_amd_monokernel(server_args)

    return handle


@pytest.fixture
def loaded(runner: Runner) -> Iterator[Any]:
    """The loaded model, put back as it was afterwards."""
    model = runner.model_runner.model
    halves = [layer.self_attn for layer in model.model.layers]
    yield model
    for module in (model, *halves):
        module.__dict__.pop("forward", None)


@pytest.fixture
def install(binding: Any, runner: Runner, loaded: Any) -> Callable[[], None]:
    """Runs `install_monokernel_forward` on the loaded model."""

    def run() -> None:
        hf_config = runner.model_runner.model_config.hf_config
        binding.install_monokernel_forward(model=loaded, hf_config=hf_config, capture_tail_hooks=[])

    return run


def reasons(run: Callable[..., None], *args: Any, **kwargs: Any) -> str:
    with pytest.raises(ValueError, match="--enable-amd-monokernel") as caught:
        run(*args, **kwargs)
    return str(caught.value)


GRAPHS = SimpleNamespace(decode=SimpleNamespace(backend="full", bs=[1, 2]))

SETTINGS: tuple[tuple[dict[str, Any], tuple[str, ...]], ...] = (
    ({"startup_weight_load_mode": "overlap"}, ("'overlap' mode", "--startup-weight-load-mode serial")),
    ({"linear_attn_decode_backend": "helion"}, ("'helion'", "'triton'", "--linear-attn-decode-backend triton")),
    ({"enable_linear_replayssm": True}, ("ReplaySSM", "drop --enable-linear-replayssm")),
    ({"enable_linear_replayssm_spec": True}, ("ReplaySSM", "--enable-linear-replayssm-spec")),
    ({"mamba_ssm_dtype": "bfloat16"}, ("states are bfloat16", "keep float32", "--mamba-ssm-dtype float32")),
    ({"enable_unified_memory": True}, ("unified memory", "drop --enable-unified-memory")),
    ({"enable_unified_cache_external_linker": True}, ("external cache linker", "drop --enable-unified-cache-external")),
    (
        {"disaggregation_decode_retraction_backup": "host_pool"},
        ("host pool", "another --disaggregation-decode-retraction-backup"),
    ),
    ({"enable_hisparse": True}, ("hierarchical sparse attention", "drop --enable-hisparse")),
    ({"kv_canary": "log"}, ("KV canary ('log')", "--kv-canary none")),
)

SHAPES: tuple[tuple[dict[str, Any], int, tuple[str, ...]], ...] = (
    ({"head_dim": 64}, 1, ("linear_head_dim 64", "compiled for 128")),
    ({"short_conv_kernel_size": 3}, 1, ("linear_conv_kernel_dim 3", "compiled for 4")),
    ({"hidden_size": 200}, 1, ("hidden_size 200", "multiples of 128")),
    ({"num_heads": 8}, 2, ("8 KDA heads over --tp-size 2", "multiple of 8", "a smaller --tp-size")),
    ({"gate_lower_bound": None}, 1, ("no gate_lower_bound", "bounded forget gate")),
    ({"mhc": False}, 1, ("mhc is off",)),
)

FEATURES: tuple[tuple[dict[str, Any], str], ...] = (
    ({"pp_size": 2}, "pipeline parallelism"),
    ({"nnodes": 2}, "multi-node tensor parallelism"),
    ({"enable_dp_attention": True}, "DP attention"),
    ({"ep_size": 2}, "expert parallelism"),
    ({"enable_eplb": True}, "EPLB"),
    ({"attn_cp_size": 2}, "context parallelism"),
    ({"speculative_algorithm": "EAGLE"}, "speculative decoding"),
    ({"enable_two_batch_overlap": True}, "two-batch / single-batch overlap"),
    ({"enable_lora": True}, "LoRA"),
    ({"disaggregation_mode": "decode"}, "PD disaggregation"),
    ({"enable_return_routed_experts": True}, "--enable-return-routed-experts"),
    ({"enable_return_indexer_topk": True}, "--enable-return-indexer-topk"),
    ({"speculative_algorithm": "EAGLE3"}, "EAGLE3 hidden states"),
    ({"enable_hierarchical_cache": True}, "KV offload"),
    ({"enable_memory_saver": True}, "memory release"),
    ({"cpu_offload_gb": 1}, "CPU offload"),
    ({"enable_torch_compile": True}, "torch-compiled decode"),
)


def test_the_plain_arguments_are_accepted(launch: Callable[..., None]) -> None:
    for size in TP_SIZES:
        launch(tp_size=size, text={"num_heads": 64})


@pytest.mark.parametrize(("changes", "said"), SETTINGS, ids=[next(iter(changes)) for changes, _ in SETTINGS])
def test_a_setting_is_refused(launch: Callable[..., None], changes: dict[str, Any], said: tuple[str, ...]) -> None:
    message = reasons(launch, **changes)
    assert all(part in message for part in said), message
    assert message.count("\n  - ") == 1


def test_every_reason_of_the_settings_has_a_case() -> None:
    # one reason has two cases, ReplaySSM's two flags; another, of the convolution's dtype, has a test of its own
    assert inspect.getsource(served._setting_refusals).count("yield") == len(SETTINGS)
    assert inspect.getsource(served.shape_refusals).count("reasons.append") == len(SHAPES)


def test_another_dtype_of_convolution_states_is_refused(
    launch: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    from sglang.srt.environ import envs

    with envs.SGLANG_MAMBA_CONV_DTYPE.override("float32"):
        message = reasons(launch)
    assert "convolution states are float32, the kernels keep bfloat16: unset SGLANG_MAMBA_CONV_DTYPE" in message


@pytest.mark.parametrize(("text", "tp_size", "said"), SHAPES, ids=[next(iter(text)) for text, _, _ in SHAPES])
def test_a_shape_is_refused(
    launch: Callable[..., None], text: dict[str, Any], tp_size: int, said: tuple[str, ...]
) -> None:
    message = reasons(launch, text=text, tp_size=tp_size)
    assert all(part in message for part in said), message


@pytest.mark.parametrize(("changes", "feature"), FEATURES, ids=[feature for _, feature in FEATURES])
def test_a_feature_is_refused(launch: Callable[..., None], changes: dict[str, Any], feature: str) -> None:
    assert f"{feature}" in reasons(launch, **changes)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"tp_size": 3, "text": {"num_heads": 96}}, "tp_size 3 is not one of ['1', '2', '4', '8']"),
        ({"dtype": torch.float16}, "dtype 'float16' is not one of ['bfloat16']"),
        ({"watchdog_timeout": 8.0}, "--watchdog-timeout 8 s leaves the waits a deadline under 5 s"),
        ({"enable_deterministic_inference": True}, "--enable-deterministic-inference needs a BITWISE spec"),
        ({"rl_on_policy_target": "fsdp"}, "--rl-on-policy-target needs a BITWISE spec"),
        ({"architectures": ["LlamaForCausalLM"]}, "has no spec for ['LlamaForCausalLM'] on gfx950"),
    ],
)
def test_what_sglang_checks_for_us_is_refused(launch: Callable[..., None], changes: dict[str, Any], said: str) -> None:
    assert said in reasons(launch, **changes)


def test_another_gpu_and_none_are_refused(
    launch: Callable[..., None], binding: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(binding, "device_isa", lambda: "gfx942")
    assert f"has no spec for ['{ARCHITECTURE}'] on gfx942" in reasons(launch)
    monkeypatch.setattr(binding, "device_isa", lambda: None)
    assert "no GPU is visible" in reasons(launch)


@pytest.mark.parametrize(
    ("value", "graphs", "said"),
    [
        ("1", GRAPHS, ("compares eager steps", "--disable-cuda-graph", "unset SGLANG_AMD_MONO_CHECK")),
        ("sometimes", None, ("SGLANG_AMD_MONO_CHECK=sometimes", "expected 1, log, or every=N")),
    ],
)
def test_check_mode_is_refused(
    launch: Callable[..., None], monkeypatch: pytest.MonkeyPatch, value: str, graphs: Any, said: tuple[str, ...]
) -> None:
    monkeypatch.setenv("SGLANG_AMD_MONO_CHECK", value)
    message = reasons(launch, **({"cuda_graph_config": graphs} if graphs else {}))
    assert all(part in message for part in said), message
    if graphs:
        # without graphs the same setting is fine
        launch()


def test_all_reasons_are_said_at_once(launch: Callable[..., None]) -> None:
    message = reasons(launch, enable_hisparse=True, kv_canary="raise", pp_size=2, text={"head_dim": 64})
    assert message.count("\n  - ") == 4


def test_a_broken_contract_is_refused(launch: Callable[..., None], monkeypatch: pytest.MonkeyPatch) -> None:
    from sgl_amd_mono.check.rows import Contract, attribute, on
    from sgl_amd_mono.models.glm53_flash import reads

    owner = "sglang.srt.mem_cache.memory_pool:HybridReqToTokenPool"
    row = on(owner, attribute("mamba_maps"), reader="models/glm53_flash/bind.py", needed_for="decode")
    whole = reads.CONTRACT
    monkeypatch.setattr(
        reads, "CONTRACT", Contract(whole.model, whole.architecture, whole.plugin, whole.probe, (*whole.rows, *row))
    )
    message = reasons(launch)
    assert "HybridReqToTokenPool.mamba_maps" in message
    assert "needed for decode" in message
    assert "amd-mono contract --explain mamba_maps" in message
    assert {"decode", "start-up"} <= contract_check.SERVED_PARTS


def test_a_sound_model_is_installed_and_says_what_serves_it(
    install: Callable[[], None], loaded: Any, caplog: pytest.LogCaptureFixture
) -> None:
    original = loaded.forward
    with caplog.at_level("INFO"):
        install()
    assert loaded.forward is not original
    said = "\n".join(caplog.messages)
    assert "KDA half layers of layers [0, 1] fused, no weight copied" in said
    assert "kernel glm53_flash for host by" in said


def test_auxiliary_hidden_states_are_refused(install: Callable[[], None], loaded: Any) -> None:
    loaded.capture_aux_hidden_states = True
    try:
        message = reasons(install)
    finally:
        loaded.capture_aux_hidden_states = False
    assert "rank 0: the model keeps auxiliary hidden states" in message
    assert "drop --speculative-algorithm" in message


@pytest.mark.parametrize(
    ("attribute", "value", "said"),
    [
        ("bias", torch.zeros(1), "layer 0: its convolution has a bias, the kernel adds none"),
        ("activation", "gelu", "layer 0: its convolution is followed by gelu, the kernel applies silu"),
        ("lower_bound", None, "layer 0: its forget gate has no lower bound"),
    ],
)
def test_a_module_is_refused(
    install: Callable[[], None], loaded: Any, attribute: str, value: object, said: str
) -> None:
    linear = loaded.model.layers[0].self_attn.attn
    kept = getattr(linear, attribute)
    setattr(linear, attribute, value)
    try:
        assert said in reasons(install)
    finally:
        setattr(linear, attribute, kept)


def test_weights_of_another_layout_are_refused(install: Callable[[], None], loaded: Any) -> None:
    weight = loaded.model.layers[0].self_attn.o_proj.weight
    kept = weight.data
    weight.data = kept.float()
    try:
        assert "KDA layer 0: o_proj is torch.float32, the kernel reads torch.bfloat16" in reasons(install)
    finally:
        weight.data = kept


def test_a_kernel_that_is_not_built_is_refused(
    install: Callable[[], None], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("SGLANG_AMD_MONO_CACHE", str(tmp_path))
    assert "Run `amd-mono build --kernel glm53_flash --arch host`" in reasons(install)


def test_a_partitioned_gpu_is_refused(install: Callable[[], None], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda device: SimpleNamespace(multi_processor_count=32))
    assert "partitioned GPUs: 32 compute units, the launch grid needs 256" in reasons(install)


@pytest.mark.parametrize(
    ("other", "said"),
    [
        # the first gather asks what each rank found, the second for its reasons, the third for the keys it routes
        ((0, (False, True, "sgl_amd_mono does not import", None)), "rank 1: sgl_amd_mono does not import"),
        ((0, (True, True, "", ("another spec", 1))), "the ranks load different specs: rank 0: glm53_flash"),
        ((1, ["weights of rank 1 are odd"]), "rank 1: weights of rank 1 are odd"),
    ],
)
def test_ranks_that_disagree_are_refused(
    install: Callable[[], None], binding: Any, monkeypatch: pytest.MonkeyPatch, other: tuple[int, Any], said: str
) -> None:
    calls: list[Any] = []

    def gather(value: Any) -> list[Any]:
        calls.append(value)
        return [value, other[1] if len(calls) - 1 == other[0] else value]

    monkeypatch.setattr(binding, "_gather_tp", gather)
    assert said in reasons(install)


def test_ranks_that_route_other_steps_are_refused(
    install: Callable[[], None], binding: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def gather(value: Any) -> list[Any]:
        return [value, frozenset() if isinstance(value, frozenset) else value]

    monkeypatch.setattr(binding, "_gather_tp", gather)
    with pytest.raises(RuntimeError, match="the ranks route different graph keys"):
        install()
