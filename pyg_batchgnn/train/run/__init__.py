"""The start, the resumption and the end of a run."""

from pyg_batchgnn.train.run.dataset import open_dataset
from pyg_batchgnn.train.run.restored import (
    RestoredLinkRun,
    RestoredNodeRun,
    RestoredRun,
    RestoreRequest,
    restore_run,
)
from pyg_batchgnn.train.run.start import resume_run, start_or_resume_run, start_run
from pyg_batchgnn.train.run.trainable import check_trainable

__all__ = [
    "RestoreRequest",
    "RestoredLinkRun",
    "RestoredNodeRun",
    "RestoredRun",
    "check_trainable",
    "open_dataset",
    "restore_run",
    "resume_run",
    "start_or_resume_run",
    "start_run",
]
