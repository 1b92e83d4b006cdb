"""The command line in a process that sends itself a signal in the middle of training.

``python -m tests.support.signalled_run SIGINT 200 0 train ...``: the signal, the step of the run,
counted from 0, during which it comes, and the rank that it comes to, in the first attempt of
torchrun; then the command's arguments. Where PIDS names a folder, the process leaves a file there
under its number.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
from itertools import count
from pathlib import Path
from typing import Any
from unittest import mock

from pyg_batchgnn.__main__ import main
from pyg_batchgnn.train import trainer
from pyg_batchgnn.train.trainer import train_step
from tests.support.training_runs import without_plots


def run(signal_name: str, at: int, rank: int) -> None:
    if folder := os.environ.get("PIDS"):
        Path(folder, str(os.getpid())).touch()
    numbers = count()
    attempt = os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")
    meant = os.environ.get("RANK", "0") == str(rank) and attempt == "0"

    def step(*arguments: Any) -> Any:
        if next(numbers) == at and meant:  # from another thread: it may come at any point of the step
            threading.Thread(target=os.kill, args=(os.getpid(), getattr(signal, signal_name))).start()
        return train_step(*arguments)

    with mock.patch.object(trainer, "train_step", step), without_plots():
        main()


if __name__ == "__main__":
    given = sys.argv[1:4]
    del sys.argv[1:4]
    run(given[0], int(given[1]), int(given[2]))
