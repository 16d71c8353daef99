"""`make serve-demo`: a real SGLang server on this CPU, with the monokernel and then without, over HTTP."""

from __future__ import annotations

import re
import sys
import tempfile
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
    tokens = {}
    logs = {}
    with tempfile.TemporaryDirectory() as name, Progress(*columns, console=console) as progress:
        folder = Path(name)
        task = progress.add_task("making a tiny GLM-5.3-Flash checkpoint", total=None)
        served = written_checkpoint(folder / "model", heads=8)
        prompts = served.prompts(PROMPTS)
        for path, arguments in (("with the monokernel", [FLAG]), ("standard path", [])):
            progress.update(task, description=f"starting SGLang: {path}")
            with Server(served.folder, folder / f"{path}.log", arguments) as server:
                progress.update(task, description=f"decoding {PROMPTS} prompts, {TOKENS} tokens each: {path}")
                tokens[path] = server.tokens(prompts, TOKENS)
                logs[path] = server.log
    table = Table(title=f"greedy tokens over HTTP, {PROMPTS} prompts in one batch", title_justify="left", box=None)
    for column in ("prompt", *tokens, ""):
        table.add_column(column)
    for prompt, fused, standard in zip(prompts, *tokens.values(), strict=True):
        verdict = "same" if fused == standard else "DIFFERENT"
        table.add_row(*(" ".join(map(str, ids)) for ids in (prompt, fused, standard)), verdict)
    console.print(table)
    console.print("\nfrom the server's log:")
    lines = _SHOWN.findall(logs["with the monokernel"])
    for line in lines:
        console.print(f"  {line}", highlight=False)
    ran = any("first step of 4 rows" in line for line in lines)
    return 0 if ran and tokens["with the monokernel"] == tokens["standard path"] else 1


if __name__ == "__main__":
    sys.exit(main())
