"""``batchgnn doctor``."""

from __future__ import annotations

import json
from typing import Annotated

import typer
from rich.console import Console

from pyg_batchgnn.doctor import as_json, as_table, examine, is_healthy


def doctor(
    as_text: Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")] = False,
) -> int:
    """Show what is installed and works here, and what to do about the rest.

    Looks at torch, PyG and what is used beside them, at the processor, huge
    pages and shared memory, and lets two processes talk over every backend
    of torch.distributed. Nothing is installed or changed. The exit status
    is 1 where something that is needed does not work, else 0.

    [bold]Example[/bold]

      batchgnn doctor

      batchgnn doctor --json
    """
    findings = examine()
    if as_text:
        print(json.dumps(as_json(findings), indent=1))
    else:
        Console().print(as_table(findings))
    return 0 if is_healthy(findings) else 1
