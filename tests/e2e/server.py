"""A real SGLang server for tests: on an MI355X where there is one, else on the CPU with the host device underneath."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import psutil
import requests

REPOSITORY = Path(__file__).parents[2]
MODEL = os.environ.get("MONO_E2E_MODEL")
"""A released checkpoint to serve on the device; unset: the tiny one on the CPU."""
FLAG = "--enable-amd-monokernel"

_READY_TIMEOUT_S = 1800 if MODEL else 180
_REQUEST_TIMEOUT_S = 900


class Server:
    """One server, from its start to its end; a context manager.

    Parameters
    ----------
    model : folder of the checkpoint.
    log : file that takes everything the server prints.
    arguments : of `sglang.launch_server`, beside model, address and tensor-parallel size.
    environment : variables added to this process's.
    tree : a folder with another sglang package to serve with, before the installed one.
    """

    def __init__(
        self,
        model: Path,
        log: Path,
        arguments: Sequence[str] = (),
        *,
        tp_size: int = 1,
        environment: Mapping[str, str] | None = None,
        tree: Path | None = None,
    ) -> None:
        self.log_file = log
        self._url = f"http://127.0.0.1:{(port := _free_port())}"
        program = ["sglang.launch_server", "--model-path"] if MODEL else ["tests.sglang_cpu.serve"]
        command = [sys.executable, "-m", *program, str(model), "--host", "127.0.0.1", "--port", str(port)]
        command += ["--tp-size", str(tp_size), "--skip-tokenizer-init", *arguments]
        paths = [str(tree)] if tree else []
        paths += [str(REPOSITORY), *filter(None, [os.environ.get("PYTHONPATH")])]
        variables = {**os.environ, **(environment or {}), "PYTHONPATH": os.pathsep.join(paths)}
        with log.open("wb") as output:
            self.process = subprocess.Popen(command, stdout=output, stderr=subprocess.STDOUT, env=variables)

    def __enter__(self) -> Server:
        try:
            self._wait_until_ready()
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    @property
    def log(self) -> str:
        """What the server has printed so far."""
        return self.log_file.read_text(errors="replace")

    def generate(self, prompts: Sequence[Sequence[int]], tokens: int, **options: Any) -> list[dict[str, Any]]:
        """Send all prompts in one request and decode `tokens` tokens of each, greedily; the server's answers."""
        body = {
            "input_ids": [list(prompt) for prompt in prompts],
            "sampling_params": {"temperature": 0.0, "max_new_tokens": tokens, "ignore_eos": True},
            **options,
        }
        answer = requests.post(f"{self._url}/generate", json=body, timeout=_REQUEST_TIMEOUT_S)
        answer.raise_for_status()
        answers: list[dict[str, Any]] = answer.json()
        return answers

    def tokens(self, prompts: Sequence[Sequence[int]], tokens: int) -> list[list[int]]:
        """The tokens that `generate` gives."""
        return [answer["output_ids"] for answer in self.generate(prompts, tokens)]

    def family(self) -> list[psutil.Process]:
        """The server's process and its ranks and helpers."""
        parent = psutil.Process(self.process.pid)
        return [parent, *parent.children(recursive=True)]

    def stop(self) -> None:
        """Kill the server and everything it started."""
        if self.process.poll() is None:
            family = self.family()
            for member in family:
                member.kill()
            psutil.wait_procs(family)
        self.process.wait()

    def _wait_until_ready(self) -> None:
        deadline = time.monotonic() + _READY_TIMEOUT_S
        while time.monotonic() < deadline:
            if self.process.poll() is not None:
                raise RuntimeError(f"the server ended with status {self.process.returncode}:\n{self.log[-5000:]}")
            try:
                if requests.get(f"{self._url}/health", timeout=5).ok:
                    return
            except requests.RequestException:
                pass
            time.sleep(0.5)
        raise TimeoutError(f"the server was not ready after {_READY_TIMEOUT_S} s:\n{self.log[-5000:]}")


def _free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])
