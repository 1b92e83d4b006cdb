"""The choice of the best epoch by its validation."""

from __future__ import annotations

from pyg_batchgnn.train.errors import TrainError
from pyg_batchgnn.train.measure import RunProgress
from pyg_batchgnn.train.task import Evaluation, Task


def note_validation(progress: RunProgress, val: Evaluation | None, task: Task) -> bool:
    """Notes the validation of the current epoch, or that there was none.

    Until the first validation the last epoch is the best. The validation is finite.

    Returns:
        True if the weights of the epoch are the best so far.

    Raises:
        TrainError: the metric that decides is not defined for the validation nodes.
    """
    if val is None:
        if progress.best is None:
            progress.best_epoch = progress.epoch + 1
        return progress.best is None
    if task.metric not in val.scores:
        names = ", ".join(metric.value for metric in val.scores)
        raise TrainError(
            f"task.metric is {task.metric.value}, which is not defined for the validation nodes: no "
            f"label has both nodes with it and without it; choose one of {names}"
        )
    best = None if progress.best is None else progress.best[task.metric.value]
    if not task.improves(val.scores[task.metric], best):
        progress.validations_since_best += 1
        return False
    progress.best_epoch = progress.epoch + 1
    progress.best = val.to_dict()
    progress.validations_since_best = 0
    return True
