"""300 requests on SGLang's real Scheduler: `python -m tests.upstream.many_requests MODEL {fused|standard}`.

They come and go so that the batch has another size at almost every step, some are aborted while they run, some have
prompts that are prefilled in chunks. Prints one line of JSON; the same program serves both paths alike.
"""

from __future__ import annotations

import json
import random
import sys
from dataclasses import asdict, dataclass

from tests.sglang_cpu import environment
from tests.sglang_cpu.language import Language
from tests.sglang_cpu.runner import Runner

REQUESTS = 300
# a page of the KV pool; a prompt's budget counts whole pages
CHUNK = 256
_LONG_PROMPT = (CHUNK + 10, 2 * CHUNK + 20)
_SHORT_PROMPT = (3, 12)
_LONG_SHARE = 0.02
_ABORT_SHARE = 0.07
_NEW_TOKENS = (2, 5)
_MOST_RUNNING = 8
_SEED = 11


@dataclass(frozen=True)
class Request:
    """One request of the scenario."""

    name: str
    prompt: list[int]
    new_tokens: int
    aborted: bool


def scenario(language: Language) -> list[Request]:
    """The same requests in every run."""
    draw = random.Random(_SEED)
    requests = []
    for number in range(REQUESTS):
        length = draw.randint(*(_LONG_PROMPT if draw.random() < _LONG_SHARE else _SHORT_PROMPT))
        aborted = draw.random() < _ABORT_SHARE
        prompt = language.prompt(length, number)
        requests.append(Request(str(number), prompt, draw.randint(*_NEW_TOKENS) + 3 * aborted, aborted))
    return requests


def serve(runner: Runner, requests: list[Request]) -> list[int]:
    """Run the scenario to its end; returns the batch size of every decode step."""
    draw = random.Random(_SEED)
    waiting = list(reversed(requests))
    sizes: list[int] = []
    running: set[str] = set()
    aborts = {request.name for request in requests if request.aborted}
    target = 1
    while True:
        # a step prefills one page, so one prompt; after a decode step the batch is filled up to another size
        if waiting and len(running) < target:
            request = waiting.pop()
            runner.submit(request.name, request.prompt, request.new_tokens)
            running.add(request.name)
        step = runner.step()
        running = {name for name in running if not runner.finished(name)}
        if step is None and not waiting:
            return sizes
        if step is not None and step.decode:
            target = draw.randint(1, _MOST_RUNNING)
            sizes.append(len(step.requests))
            for name in aborts & running:
                runner.abort(name)
                aborts.remove(name)


def main(model: str, path: str) -> None:
    runner = Runner(model, chunked_prefill_size=CHUNK, enable_amd_monokernel=path == "fused")
    from sgl_amd_mono.counters import live_counters

    language = Language()
    requests = scenario(language)
    before = runner.free
    sizes = serve(runner, requests)
    print(
        json.dumps(
            {
                "tokens": {request.name: runner.tokens(request.name) for request in requests},
                "unfinished": [request.name for request in requests if not runner.finished(request.name)],
                "sizes": sizes,
                "before": asdict(before),
                "after": asdict(runner.free),
                "fused": [dict(counters.fused) for counters in live_counters()],
            }
        )
    )


if __name__ == "__main__":
    environment.prepare()
    main(*sys.argv[1:])
