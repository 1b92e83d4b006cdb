"""The fields of a configuration that are decided when a run starts."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import torch

from pyg_batchgnn.data import Dataset
from pyg_batchgnn.nn import ProductChoice
from pyg_batchgnn.train.config import (
    TrainConfig,
    config_from_dict,
    config_to_dict,
    is_thread_independent,
)
from pyg_batchgnn.train.graph import TrainingData
from pyg_batchgnn.train.model import choose_product
from pyg_batchgnn.train.ranks import Ranks
from pyg_batchgnn.train.task import task_of


def decide_fields(
    config: TrainConfig, dataset: Dataset, ranks: Ranks
) -> tuple[TrainConfig, ProductChoice | None]:
    """Decides data set, threads and matrix product; collective.

    The configuration alone then repeats the run.

    Returns:
        The configuration of this rank, and the result of its probe of matrix products, if there was
        one.

    Raises:
        AgreementError: the ranks were given different numbers of threads, and results depend on it.
    """
    own_threads = config.run.threads
    config = config_from_dict(
        ranks.from_first(lambda: config_to_dict(_with_defaults(config, dataset, ranks)))
    )
    torch.set_num_threads(config.run.threads or 1)
    columns = TrainingData.of(dataset, config).inputs.first_columns(config.model.hidden)
    task = task_of(dataset, config.task, config.model.hidden)
    config, choice = choose_product(config, columns, task.columns, ranks)
    return _with_own_threads(config, own_threads, ranks), choice


def _with_defaults(config: TrainConfig, dataset: Dataset, ranks: Ranks) -> TrainConfig:
    """Returns the configuration with the name of the data set and the number of threads."""
    name = dataset.name if config.run.dataset is None else config.run.dataset
    if Path(name).is_dir():
        name = str(Path(name).resolve())
    threads = config.run.threads or ranks.threads()
    return replace(config, run=replace(config.run, dataset=name, threads=threads))


def _with_own_threads(config: TrainConfig, own: int | None, ranks: Ranks) -> TrainConfig:
    """Returns the configuration with this rank's number of threads, or the first rank's if it has
    none.

    The numbers may differ only if results do not depend on them: a resumed run knows the first
    rank's number alone.
    """
    config = replace(config, run=replace(config.run, threads=own or config.run.threads))
    if not is_thread_independent(config):
        ranks.agree({"run.threads": config.run.threads})
    torch.set_num_threads(config.run.threads or 1)
    return config
