"""`make serve-demo`: a real SGLang server on this CPU, with and without the monokernel, side by side over HTTP."""

from __future__ import annotations

import re
import sys
import tempfile
from contextlib import ExitStack
from pathlib import Path

from rich.console import Console
from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn
from rich.table import Table

from tests.e2e.conftest import written_checkpoint
from tests.e2e.server import FLAG, Server

PROMPTS = 4
TOKENS = 12
_SHOWN = re.compile(r"monokernel: first step.*|monokernel glm53_flash, rank.*|--enable-amd-monokernel: glm53_flash.*")


def main() -> int:
    """Show both servers' tokens; 0 when they are the same and the kernels ran."""
    console = Console()
    columns = SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn()
    with tempfile.TemporaryDirectory() as name, ExitStack() as running:
        folder = Path(name)
        with Progress(*columns, console=console) as progress:
            task = progress.add_task("making a tiny GLM-5.3-Flash checkpoint", total=None)
            served = written_checkpoint(folder / "model", heads=8)
            prompts = served.prompts(PROMPTS)
            progress.update(task, description=f"starting SGLang with {FLAG}, and without")
            servers = {
                path: Server(served.folder, folder / f"{path}.log", [FLAG] if path == "fused" else [])
                for path in ("fused", "standard")
            }
            for server in servers.values():
                running.enter_context(server)
            progress.update(task, description=f"decoding {PROMPTS} prompts, {TOKENS} tokens each, on both")
            tokens = {path: server.tokens(prompts, TOKENS) for path, server in servers.items()}
            log = servers["fused"].log
    table = Table(title=f"greedy tokens over HTTP, {PROMPTS} prompts in one batch", title_justify="left", box=None)
    for column in ("prompt", "with the monokernel", "standard path", ""):
        table.add_column(column)
    for prompt, fused, standard in zip(prompts, tokens["fused"], tokens["standard"], strict=True):
        verdict = "same" if fused == standard else "DIFFERENT"
        table.add_row(*(" ".join(map(str, ids)) for ids in (prompt, fused, standard)), verdict)
    console.print(table)
    console.print("\nfrom the server's log:")
    lines = _SHOWN.findall(log)
    for line in lines:
        console.print(f"  {line}", highlight=False)
    ran = any("first step of 4 rows" in line for line in lines)
    return 0 if ran and tokens["fused"] == tokens["standard"] else 1


if __name__ == "__main__":
    sys.exit(main())
