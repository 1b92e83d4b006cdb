"""The check of a run that is planned and not started."""

from __future__ import annotations

from pyg_batchgnn.data import Dataset
from pyg_batchgnn.train.config import TrainConfig
from pyg_batchgnn.train.graph import TrainingData
from pyg_batchgnn.train.model import build_network
from pyg_batchgnn.train.task import task_of


def check_trainable(config: TrainConfig, dataset: Dataset) -> None:
    """Checks that a run can read a data set and build its network, which is thrown away.

    Raises:
        TrainError: as the run itself would be refused.
    """
    inputs = TrainingData.of(dataset, config).inputs
    build_network(config, inputs, task_of(dataset, config.task, config.model.hidden).columns)
