"""The data set of a run, opened by each rank."""

from __future__ import annotations

from pyg_batchgnn.data import Dataset, default_dataset, load_dataset, with_reverse_relations
from pyg_batchgnn.train.config import TrainConfig
from pyg_batchgnn.train.graph import DatasetFingerprint, fingerprint_dataset
from pyg_batchgnn.train.ranks import Ranks


def open_dataset(name: str | None, reverse_relations: bool = False) -> Dataset:
    """Opens the data set of that name or path, or the default one if the name is None.

    Args:
        name: of the data set.
        reverse_relations: True adds the reverse of every relation.
    """
    dataset = default_dataset() if name is None else load_dataset(name)
    return with_reverse_relations(dataset) if reverse_relations else dataset


def open_on_all_ranks(config: TrainConfig, ranks: Ranks) -> tuple[Dataset, DatasetFingerprint]:
    """Opens each rank's data set; collective. Its path may differ between ranks.

    Raises:
        AgreementError: the ranks have different data sets.
    """
    dataset = open_dataset(config.run.dataset, config.run.reverse_relations)
    fingerprint = fingerprint_dataset(dataset)
    ranks.agree({f"data set, {name}": value for name, value in fingerprint.to_dict().items()})
    return dataset, fingerprint
