"""`amd-mono doctor` on a real SGLang: what it says is what SGLang's launcher does with the same arguments."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from sgl_amd_mono.build.compile import build
from sgl_amd_mono.models.glm53_flash.program import KERNEL

pytestmark = [
    pytest.mark.upstream,
    pytest.mark.skipif(importlib.util.find_spec("sglang") is None, reason="SGLang is not installed in this Python"),
]

ROOT = Path(__file__).parents[2]
# keeping states for reuse asks for a GPU that is not there
PLAIN = ("--disable-radix-cache", "--attention-backend", "triton")
REFUSED = (*PLAIN, "--kv-canary", "log", "--enable-lora", "--lora-paths", "a=b", "--max-loras-per-batch", "1")
# and SGLang's own check of that comes before the flag's
STOPPED = ("--attention-backend", "triton", "--enable-lora", "--lora-paths", "a=b")

# runs the command for each list of arguments, and SGLang's own resolution of the same; one process, for its import
PROGRAM = """
import json, sys
from tests.sglang_cpu import environment
environment.prepare()
folder, has_gpu, *calls = json.loads(sys.argv[1])
from sgl_amd_mono.doctor import machine
if has_gpu:
    environment.pretend_gfx950()
    machine.find_gpu = lambda: machine.Gpu("CPU in place of a GPU", "gfx950", 256)
    machine._hip_python = lambda: "in place of hip-python"
from sgl_amd_mono import cli
from typer.testing import CliRunner

def launcher(arguments):
    from sglang.srt.server_args import prepare_server_args
    flags = ["--model-path", folder, "--enable-amd-monokernel", "--device", "cuda"]
    try:
        prepare_server_args([*flags, *arguments]).resolve_once()
    except Exception as error:
        return str(error)
    return ""

said = []
for options, arguments in calls:
    if has_gpu:
        # torch sees none, so SGLang would not choose it
        arguments = ["--device", "cuda", *arguments]
    result = CliRunner().invoke(cli.app, ["doctor", folder, *options, "--json", "--", *arguments])
    output = result.stdout if result.exit_code in (0, 1) and result.stdout else "null"
    error = repr(result.exception)
    extra = [*arguments, *(["--tp-size", options[1]] if options else [])]
    said.append([result.exit_code, error, json.loads(output), launcher(extra) if output != "null" else ""])
print("SAID" + json.dumps(said))
"""


def doctor(folder: Path, has_gpu: bool, *calls: tuple[tuple[str, ...], tuple[str, ...]]) -> list[Any]:
    """Exit status, error, report, and the launcher's own refusal, for each (options, server arguments)."""
    command = [sys.executable, "-c", PROGRAM, json.dumps([str(folder), has_gpu, *calls])]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    said: list[Any] = json.loads(done.stdout.rpartition("SAID")[2])
    return said


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A checkpoint's configuration: nothing else of it is read before a server loads it."""
    from tests.sglang_cpu.checkpoint import Stack, config_document

    place = tmp_path_factory.mktemp("checkpoint")
    (place / "config.json").write_text(json.dumps(config_document(Stack(kda_heads=8))))
    return place


@pytest.fixture(scope="module")
def on_gpu(folder: Path) -> list[Any]:
    """What is said where SGLang finds a gfx950."""
    build(KERNEL, "gfx950")
    return doctor(folder, True, ((), PLAIN), (("--tp-size", "4"), REFUSED), ((), ("--no-such-option",)), ((), STOPPED))


@pytest.fixture(scope="module")
def off_gpu(folder: Path) -> list[Any]:
    """What is said where there is no GPU."""
    return doctor(folder, False, ((), PLAIN), (("--tp-size", "4"), REFUSED))


def test_accepted(on_gpu: list[Any]) -> None:
    status, _, report, refusal = on_gpu[0]
    assert refusal == ""
    assert report["reasons"] == []
    assert (status, report["verdict"]) == (0, "would run")
    assert report["checkpoint"]["model"]["name"] == KERNEL
    assert [halves[0] for halves in report["checkpoint"]["layers"]].count("KDA, fused") >= 2
    assert all(contract["holds"] for contract in report["sglang"]["contracts"])


def test_refused_for_every_reason_that_the_launcher_has(on_gpu: list[Any]) -> None:
    status, _, report, refusal = on_gpu[1]
    assert (status, report["verdict"]) == (1, "refused")
    assert refusal.partition("\n")[2] == "".join(f"\n  - {reason}" for reason in report["reasons"])[1:]
    for said in ("LoRA is in use", "KV canary", "8 KDA heads over --tp-size 4"):
        assert [said in reason for reason in report["reasons"]].count(True) == 1


def test_unknown_argument_is_the_users_error(on_gpu: list[Any]) -> None:
    status, error, report, _ = on_gpu[2]
    assert (status, report) == (1, None)
    assert "MonoError" in error
    assert "unrecognized arguments: --no-such-option" in error


def test_without_a_gpu_it_is_one_reason_of_all(on_gpu: list[Any], off_gpu: list[Any]) -> None:
    for (status, _, report, refusal), (*_, on_device, _) in zip(off_gpu, on_gpu, strict=False):
        assert status == 1
        # the launcher stops there
        assert refusal.endswith("\n  - no GPU is visible")
        assert [r for r in report["reasons"] if r != "no GPU is visible" and "hip-python" not in r] == on_device[
            "reasons"
        ]
        assert "no GPU is visible" in report["reasons"]


def test_an_error_of_sglangs_own_hides_no_other_reason(on_gpu: list[Any]) -> None:
    status, _, report, refusal = on_gpu[3]
    assert status == 1
    own, *others = report["reasons"]
    assert own.startswith(f"SGLang refuses the arguments: AssertionError: {refusal.rstrip('.')};")
    assert any("LoRA is in use" in reason for reason in others)
