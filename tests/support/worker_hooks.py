"""Functions that worker processes run; a spawned one imports them by name."""

from __future__ import annotations

import os
from typing import Any

import psutil
import torch
from torch.utils.data import get_worker_info


def tag(batch: Any) -> Any:
    info = get_worker_info()
    batch.pid = os.getpid()
    batch.worker = -1 if info is None else info.id
    batch.threads = torch.get_num_threads()
    batch.cores = psutil.Process().cpu_affinity()
    batch.noise = float(torch.rand(()))
    return batch


def mark_output(out: Any) -> Any:
    out.metadata = (out.metadata[0], torch.tensor(os.getpid()))
    return out


def note_worker(worker: int) -> None:
    os.environ["NOTED_WORKER"] = str(worker)


def read_note(batch: Any) -> Any:
    batch.noted = os.environ.get("NOTED_WORKER")
    return batch
