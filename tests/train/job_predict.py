"""The job of the ranks in test_exact.py: one is killed while all predict."""

from __future__ import annotations

import os
import signal
from typing import Any
from unittest import mock

from pyg_batchgnn.train import prediction
from tests.train.job_ranks import run


def killed(arguments: list[str], victim: int) -> list[dict[str, Any]]:
    """Runs a command; ``victim`` kills itself before the model computes the nodes."""
    infer_all = prediction.infer_all

    def infer(*given: Any) -> Any:
        if int(os.environ["RANK"]) == victim:
            os.kill(os.getpid(), signal.SIGKILL)
        return infer_all(*given)

    with mock.patch.object(prediction, "infer_all", infer):
        return run([{"arguments": arguments}])
