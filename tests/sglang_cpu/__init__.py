"""Test support only: what a CPU needs, that SGLang lacks, to run real SGLang 0.5.23; never shipped.

SGLang runs in its neutral mode: no GPU, no `SGLANG_USE_CPU_ENGINE`. Fused operators then take their torch bodies, and
the linear-attention backends keep their Triton kernels, which Triton's interpreter runs on CPU tensors.

- `environment.prepare()` before the first import of sglang, in every process.
- `checkpoint.write_checkpoint()` makes a tiny GLM-5.3-Flash whose greedy decoding is stable, and needs its KDA state.
- `runner.Runner` steps SGLang's real Scheduler in this process.
- `python -m tests.sglang_cpu.serve` is SGLang's real server.
"""
