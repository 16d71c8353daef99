"""The HIP device without a GPU: mono/device/hip.py as it is and the real hip-python, on a fake HIP runtime.

The fake (fake_hip/) checks the bytes of the module, the kernel's name, the grid, the workgroup, the stream and the size
of the arguments, and runs the host build of the kernel on the argument bytes that the launch brought.
"""

from __future__ import annotations

import multiprocessing
import re
import shutil
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import pytest

from sgl_amd_mono.program import Slicing
from tests.mono.device.fake_hip import gpu_process
from tests.mono.device.fake_hip.gpu_process import Change, Failing, Outcome
from tests.mono.device.fake_hip.runtime import LINK, install

pytestmark = [pytest.mark.compile, pytest.mark.host]

SLOTS = [3, -1, 1]

LOADING = r"Cannot load .*/glm53_flash\.co on cuda:1: hipModuleLoadData returned "
FINDING = r"Cannot find glm53_flash_step in .*/glm53_flash\.co: hipModuleGetFunction returned "
LAUNCHING = "Cannot launch glm53_flash_step with 6 workgroups on cuda:1: hipModuleLaunchKernel returned "

Run = Callable[..., Outcome]


@pytest.fixture(scope="module")
def runtime(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The fake, in the folder `lib` of a ROCm installation."""
    return install(tmp_path_factory.mktemp("rocm"))


@contextmanager
def process(loaded: Path | None, rocm: Path) -> Iterator[ProcessPoolExecutor]:
    """A process of its own: what it loads would stay in this one and stand in the way of a real runtime."""
    context = multiprocessing.get_context("forkserver")
    # the processes are forks of one that has imported these
    context.set_forkserver_preload(["torch", "sgl_amd_mono.device.hip", "sgl_amd_mono.program"])
    with ProcessPoolExecutor(1, context, initializer=gpu_process.start, initargs=(loaded, rocm)) as pool:
        yield pool


@pytest.fixture(scope="module")
def pool(runtime: Path) -> Iterator[ProcessPoolExecutor]:
    with process(runtime, runtime.parents[1]) as started:
        yield started


@pytest.fixture(scope="module")
def run(pool: ProcessPoolExecutor, runtime: Path) -> Run:
    """Runs a half layer on the HIP device."""

    def call(*args: object, **options: object) -> Outcome:
        return pool.submit(partial(gpu_process.run_on_hip, runtime, *args, **options)).result()  # type: ignore[arg-type]

    return call


@pytest.mark.parametrize(("slicing", "launches"), [(Slicing.STEP, 1), (Slicing.PHASE, 5)])
def test_a_half_layer_has_the_bits_of_the_host_device(
    slicing: Slicing, launches: int, run: Run, pool: ProcessPoolExecutor
) -> None:
    outcome = run(SLOTS, slicing, arch=None)
    assert (outcome.error, outcome.complaints, outcome.launches) == (None, [], launches)
    assert outcome.results == pool.submit(gpu_process.run_on_host, SLOTS).result().results


def test_the_fault_record_is_in_pinned_memory(run: Run) -> None:
    """The eight words of `FaultRecord` (hip/include/mono/fault.h), and nothing else."""
    assert run(SLOTS).pinned_bytes == 32


def test_a_fault_on_the_gpu_is_named_by_the_launch_after_it(run: Run) -> None:
    outcome = run([gpu_process.SLOTS], Slicing.PHASE)
    assert outcome.error is not None
    first, second = outcome.error.splitlines()
    assert first.startswith(LAUNCHING + "hipErrorLaunchFailure. This launch or an earlier one failed on the GPU")
    assert "phase kda_conv" in second
    assert "a state slot is outside of the pool; expected one below 5, saw 5" in second
    # of five phases, project and gates
    assert outcome.launches == 2


@pytest.mark.parametrize(
    ("failing", "message"),
    [
        (Failing("hipModuleLoadData", "hipErrorNoDevice"), LOADING + r"hipErrorNoDevice\. Check that HIP_VISIBLE"),
        (Failing("hipModuleLoadData", "hipErrorOutOfMemory"), LOADING + r"hipErrorOutOfMemory\. The GPU has no memory"),
        (Failing("hipModuleGetFunction", "hipErrorNotFound"), FINDING + r"hipErrorNotFound\. Build the kernels"),
        (Failing("hipModuleLaunchKernel", "hipErrorOutOfMemory"), LAUNCHING + "hipErrorOutOfMemory"),
        (Failing("hipModuleLaunchKernel", "hipErrorLaunchFailure"), LAUNCHING + "hipErrorLaunchFailure.*start again"),
        (Failing("hipModuleLaunchKernel", "hipErrorUnknown"), LAUNCHING + r"hipErrorUnknown\. .*AMD_LOG_LEVEL=3"),
    ],
)
def test_an_error_of_the_runtime_says_what_to_do(failing: Failing, message: str, run: Run) -> None:
    outcome = run(SLOTS, failing=failing)
    assert re.search(message, outcome.error or "")
    assert outcome.launches == 0


def test_a_code_object_of_another_gpu_is_refused(run: Run) -> None:
    outcome = run(SLOTS, arch="gfx942")
    assert re.search(LOADING + r"hipErrorNoBinaryForGpu\. Build the kernels for this GPU again", outcome.error or "")


@pytest.mark.parametrize("size", [32, 48])
def test_arguments_of_another_size_are_refused(size: int, pool: ProcessPoolExecutor, runtime: Path) -> None:
    outcome = pool.submit(gpu_process.launch_bytes, runtime, size).result()
    assert re.search(f"Cannot launch .*: it takes 40 bytes of arguments, not {size}", outcome.error or "")
    assert outcome.launches == 0


@pytest.mark.parametrize(
    ("change", "error", "complaint"),
    [
        (
            (".read_bytes())", ".read_bytes()[:-4096])"),
            "hipErrorInvalidImage",
            "The module is not the code object that was built",
        ),
        (("artifact.binary.read_bytes()", "b'ELF'"), "hipErrorInvalidImage", None),
        (("self._module, entry.encode()", "self._module, kernel.encode()"), "hipErrorNotFound", None),
        (
            ("(self.workgroups, 1, 1)", "(self.workgroups - 1, 1, 1)"),
            "hipErrorInvalidConfiguration",
            "The grid is 5 x 1 x 1, expected 6 x 1 x 1",
        ),
        (
            ("(self.workgroups, 1, 1)", "(1, self.workgroups, 1)"),
            "hipErrorInvalidConfiguration",
            "The grid is 1 x 6 x 1, expected 6 x 1 x 1",
        ),
        (
            ("(WORKGROUP_THREADS, 1, 1)", "(64, 1, 1)"),
            "hipErrorInvalidConfiguration",
            "The workgroup is 64 x 1 x 1, expected 256 x 1 x 1",
        ),
        (
            ("(WORKGROUP_THREADS, 1, 1), 0", "(WORKGROUP_THREADS, 1, 1), 512"),
            "hipErrorInvalidConfiguration",
            "The dynamic LDS is 512, expected 0",
        ),
        (
            ("current_stream(self.torch_device)", 'current_stream(torch.device("cuda", 0))'),
            "hipErrorInvalidHandle",
            f"The stream is {gpu_process.STREAMS[0]}, expected {gpu_process.STREAMS[1]}",
        ),
        (
            ("extra = (self._arguments.from_buffer_copy(args),)", "extra = (ctypes.c_uint64(), ctypes.c_uint64())"),
            "hipErrorInvalidValue",
            "The size of the arguments is 16, expected 40",
        ),
        (("*block, lds, stream, None, extra", "*block, lds, stream, None, None"), "hipErrorInvalidValue", "in `extra`"),
        (("self._launching, launch, self._function", "self._launching, launch, self._module"), "InvalidHandle", None),
    ],
)
def test_the_fake_sees_a_wrong_launch(change: Change, error: str, complaint: str | None, run: Run) -> None:
    """Each check of the fake fails when mono/device/hip.py is changed in what it checks."""
    outcome = run(SLOTS, change=change)
    assert re.search(rf"hipModule\w+ returned \w*{error}\.", outcome.error or "")
    assert len(outcome.complaints) == (complaint is not None)
    assert complaint is None or complaint in outcome.complaints[0]
    assert outcome.launches == 0


def test_results_come_from_the_argument_bytes(run: Run) -> None:
    """With the end of the program zeroed, the kernel runs no phase."""
    outcome = run(SLOTS, change=("from_buffer_copy(args)", "from_buffer_copy(args[:28] + bytes(4) + args[32:])"))
    assert (outcome.error, outcome.launches) == (None, 1)
    assert outcome.results[0] == gpu_process.NEVER_WRITTEN * len(SLOTS)


def test_two_runtimes_in_one_process_are_refused(runtime: Path, tmp_path: Path) -> None:
    """torch has loaded its own copy, and ROCM_PATH leads hip-python to another; nor does a second attempt pass."""
    of_torch = tmp_path / runtime.name
    shutil.copy(runtime, of_torch)
    with process(of_torch, runtime.parents[1]) as pool:
        for _ in range(2):
            error = pool.submit(gpu_process.make_device).result().error or ""
            assert "torch and hip-python have loaded two HIP runtimes: " in error
            assert str(of_torch) in error
            assert str(runtime) in error
            assert "Set ROCM_PATH" in error


def test_a_runtime_that_does_not_load_is_named(tmp_path: Path) -> None:
    broken = tmp_path / "lib" / LINK
    broken.parent.mkdir()
    broken.write_text("no library")
    with process(None, tmp_path) as pool:
        error = pool.submit(gpu_process.make_device).result().error or ""
    assert re.search(f"hip-python cannot load the HIP runtime: .*{broken}.*: file too short", error)
