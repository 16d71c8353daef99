"""SGLang's HTTP server on a CPU: `python -m tests.sglang_cpu.serve MODEL --port 30000 [any argument of the server]`.

SGLang spawns its processes, and a spawned one imports this module first: all are prepared below.
"""

from __future__ import annotations

import os
import sys

from tests.sglang_cpu import environment
from tests.sglang_cpu.server_args import cpu_server_args

environment.prepare()
if "--enable-amd-monokernel" in sys.argv:
    environment.pretend_gfx950()


def main(model: str, *arguments: str) -> None:
    """Serve `model` until the process is ended."""
    from sglang.launch_server import run_server
    from sglang.srt.plugins import load_plugins
    from sglang.srt.server_args import prepare_server_args
    from sglang.srt.utils import kill_process_tree

    load_plugins()
    defaults = cpu_server_args()
    # it has no option that turns it off
    multimodal = defaults.pop("enable_multimodal")
    args = prepare_server_args(["--model-path", model, *_options(defaults), *arguments])
    args.enable_multimodal = multimodal
    if args.tp_size > 1:
        # SGLang wants to know which core each rank takes
        os.environ["SGLANG_CPU_OMP_THREADS_BIND"] = "|".join(map(str, range(args.tp_size)))
    try:
        run_server(args)
    finally:
        kill_process_tree(os.getpid(), include_parent=False)


def _options(fields: dict[str, object]) -> list[str]:
    """Command-line options for fields of ServerArgs; all booleans among them are true."""
    options = []
    for name, value in fields.items():
        options.append(f"--{name.replace('_', '-')}")
        if value is not True:
            options.append(str(value))
    return options


if __name__ == "__main__":
    if len(sys.argv) < 2:
        sys.exit("usage: python -m tests.sglang_cpu.serve MODEL [argument of SGLang's server ...]")
    main(*sys.argv[1:])
