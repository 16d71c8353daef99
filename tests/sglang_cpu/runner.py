"""SGLang's real Scheduler in this process, one pass of its event loop at a time, without HTTP."""

from __future__ import annotations

from array import array
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import Tensor

from tests.sglang_cpu import environment
from tests.sglang_cpu.server_args import cpu_server_args


@dataclass(frozen=True)
class Step:
    """One forward pass.

    Parameters
    ----------
    decode : whether it was a decode step; else it extended the requests by their prompts, or chunks of them.
    requests : ids in the order of the batch.
    logits : [requests, vocabulary], of each request's last token.
    """

    decode: bool
    requests: list[str]
    logits: Tensor


@dataclass(frozen=True)
class Free:
    """What the pools have left."""

    request_rows: int
    kv_tokens: int
    state_slots: int


class Runner:
    """A Scheduler with model, pools and attention backends, as a server's process has it.

    SGLang's configuration, process groups and plugins are global: one Runner a process.

    Parameters
    ----------
    model : directory of a checkpoint.
    server_args : fields of SGLang's ServerArgs that differ from `cpu_server_args`.
    """

    def __init__(self, model: Path | str, **server_args: Any) -> None:
        environment.prepare()
        if server_args.get("enable_amd_monokernel"):
            environment.pretend_gfx950()
        from sglang.srt.plugins import load_plugins

        load_plugins()
        from sglang.srt.managers.scheduler import Scheduler
        from sglang.srt.runtime_context import SpawnRanks, publish
        from sglang.srt.server_args import PortArgs, ServerArgs

        args = ServerArgs(model_path=str(model), **{**cpu_server_args(), **server_args})
        args.resolve_once()
        publish(args, role="scheduler", ranks=SpawnRanks(world_rank=0, gpu_id=0))
        self.scheduler = Scheduler(args, PortArgs.init_new(args))
        self._drop_outputs()
        self._requests: dict[str, Any] = {}

    @property
    def model_runner(self) -> Any:
        """SGLang's ModelRunner; its model is `.model`."""
        return self.scheduler.tp_worker.model_runner

    @property
    def free(self) -> Free:
        """What the pools have left now."""
        rows = self.scheduler.req_to_token_pool
        return Free(
            request_rows=rows.available_size(),
            kv_tokens=self.scheduler.token_to_kv_pool_allocator.available_size(),
            state_slots=rows.mamba_allocator.available_size(),
        )

    def submit(self, request: str, prompt: list[int], new_tokens: int) -> None:
        """Queue a request for greedy decoding; it joins the batch in one of the next steps."""
        from sglang.srt.managers.io_struct import TokenizedGenerateReqInput
        from sglang.srt.sampling.sampling_params import SamplingParams

        sampling = SamplingParams(max_new_tokens=new_tokens, temperature=0.0, ignore_eos=True)
        sampling.normalize(None)
        self.scheduler.process_input_requests(
            [
                TokenizedGenerateReqInput(
                    rid=request,
                    input_text=None,
                    input_ids=array("q", prompt),
                    input_embeds=None,
                    mm_inputs=None,
                    token_type_ids=None,
                    sampling_params=sampling,
                    return_logprob=False,
                    logprob_start_len=-1,
                    top_logprobs_num=0,
                    token_ids_logprob=None,
                    stream=False,
                )
            ]
        )
        self._requests[request] = next(req for req in self.scheduler.waiting_queue if req.rid == request)

    def abort(self, request: str) -> None:
        """Abort a request; it leaves the batch in one of the next steps."""
        from sglang.srt.managers.io_struct import AbortReq

        self.scheduler.process_input_requests([AbortReq(rid=request)])

    def step(self) -> Step | None:
        """One pass of the event loop; None when nothing was left to run.

        Idle passes make the Scheduler check its pools for leaks, as in a server.
        """
        import torch

        scheduler = self.scheduler
        with torch.no_grad():
            plan = scheduler.get_next_batch_to_run(
                running_batch=scheduler.running_batch, last_batch=scheduler.last_batch
            )
            scheduler.running_batch = plan.running_batch
            batch = plan.batch_to_run
            scheduler.last_batch = batch
            if batch is None:
                scheduler.on_idle()
                return None
            requests = [req.rid for req in batch.reqs]
            decode = batch.forward_mode.is_decode()
            result = scheduler.run_batch(batch)
            logits = result.logits_output.next_token_logits.float().clone()
            scheduler.process_batch_result(batch, result)
        return Step(decode, requests, logits)

    def steps(self) -> Iterator[Step]:
        """Steps until nothing is left to run."""
        while (step := self.step()) is not None:
            yield step

    def tokens(self, request: str) -> list[int]:
        """What was generated for `request` so far."""
        return list(self._requests[request].output_ids)

    def finished(self, request: str) -> bool:
        """Whether `request` has ended, by itself or by an abort."""
        return bool(self._requests[request].finished())

    def generate(self, prompts: list[list[int]], new_tokens: int) -> list[list[int]]:
        """Submit all prompts at once, run until idle and return what was generated."""
        names = [f"{len(self._requests)}+{index}" for index in range(len(prompts))]
        for name, prompt in zip(names, prompts, strict=True):
            self.submit(name, prompt, new_tokens)
        for _ in self.steps():
            pass
        return [self.tokens(name) for name in names]

    def _drop_outputs(self) -> None:
        """Nobody reads what a server's scheduler sends to the process of the HTTP server."""
        channels = self.scheduler.ipc_channels
        for sender in (channels.send_to_tokenizer, channels.send_to_detokenizer):
            sender.socket.close(linger=0)
            sender.socket = None
