"""Process groups that broke in the middle of a collective, and that are kept until the process
ends."""

from __future__ import annotations

import ctypes

import torch.distributed as dist

_abandoned = 0


def groups_abandoned() -> int:
    """Returns the number of process groups that are never destroyed."""
    return _abandoned


def abandon(group: dist.ProcessGroup | None) -> None:
    """Keeps a group from ever being destroyed, even when the interpreter ends. Destroying it would
    wait for the collective."""
    global _abandoned
    if group is not None:
        _abandoned += 1
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(group))
