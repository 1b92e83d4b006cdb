"""The training loop: steps, evaluation, epochs and requests to stop."""

from pyg_batchgnn.train.loop.evaluate import accuracy, count_correct, infer
from pyg_batchgnn.train.loop.job import Job, build_job
from pyg_batchgnn.train.loop.observer import Outcome, RunResult
from pyg_batchgnn.train.loop.step import train_step
from pyg_batchgnn.train.loop.stop import StopRequest
from pyg_batchgnn.train.loop.trainer import Trainer

__all__ = [
    "Job",
    "Outcome",
    "RunResult",
    "StopRequest",
    "Trainer",
    "accuracy",
    "build_job",
    "count_correct",
    "infer",
    "train_step",
]
