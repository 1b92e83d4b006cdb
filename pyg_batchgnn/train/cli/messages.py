"""The one line that a failed command prints, and the exit statuses."""

from __future__ import annotations

import os
import sys

USER_MISTAKE = 2
PEER_FAILED = 3
INTERRUPTED = 130
DEBUG_VARIABLE = "PYG_BATCHGNN_DEBUG"


def complain(message: str, status: int) -> int:
    """Prints one line to the standard error, and returns `status`.

    With the debug variable set, raises the error that is being handled.
    """
    if os.environ.get(DEBUG_VARIABLE):
        raise
    who = f"rank {rank()}: " if rank() else ""
    print(f"batchgnn: {who}{' '.join(message.split())}", file=sys.stderr)
    return status


def rank() -> str:
    """Returns this process's rank if a launcher started several, else an empty text."""
    return os.environ.get("RANK", "") if os.environ.get("WORLD_SIZE", "1") != "1" else ""
