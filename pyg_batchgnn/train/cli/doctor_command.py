"""The command ``batchgnn doctor``."""

from __future__ import annotations

import json
from typing import Annotated

import typer
from rich.console import Console


def doctor(
    as_json_text: Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")] = False,
) -> int:
    """Shows what is installed and works here, and what to do about the rest.

    Checks torch, PyG and optional packages, the processor, huge pages and
    shared memory, and lets two processes exchange data over each backend of
    torch.distributed. Installs and changes nothing. The exit status is 1 if
    something that is needed does not work, else 0.

    [bold]Examples[/bold]

      batchgnn doctor

      batchgnn doctor --json
    """
    from pyg_batchgnn.doctor import as_json, as_table, examine, is_healthy

    findings = examine()
    if as_json_text:
        print(json.dumps(as_json(findings), indent=1))
    else:
        Console().print(as_table(findings))
    return 0 if is_healthy(findings) else 1
