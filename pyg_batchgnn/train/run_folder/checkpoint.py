"""The checkpoint of a run, from which it continues exactly, even in the middle of an epoch."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from torch import Tensor, nn
from torch.optim import Optimizer

from pyg_batchgnn.train.config import ScheduleKind, TrainConfig, config_from_dict, config_to_dict
from pyg_batchgnn.train.errors import TrainError
from pyg_batchgnn.train.graph import DatasetFingerprint
from pyg_batchgnn.train.measure import RunProgress
from pyg_batchgnn.train.run_folder import tensor_file

_KIND = "pyg_batchgnn checkpoint"
_VERSION = 3


@dataclass(frozen=True)
class RankCheckpoint:
    """The state of one rank.

    Attributes:
        loader: `state_dict` of its training loader.
        running: its row of `BatchNormStatistics.table`.
        epoch_phases: its seconds per phase in the current epoch.
        phases: its seconds per phase in the finished epochs.
        history: `state_dict` of its historical embeddings; empty in a run without them.
    """

    loader: dict[str, Any]
    running: Tensor
    epoch_phases: dict[str, float]
    phases: dict[str, float]
    history: dict[str, Tensor] = field(default_factory=dict)


@dataclass(frozen=True)
class Checkpoint:
    """The contents of a checkpoint file.

    Attributes:
        config: of the run.
        dataset: the fingerprint of the data set, as a dict.
        progress: of the run.
        model: `state_dict` of the model.
        best: `state_dict` of the model at the best validation epoch.
        optimiser: `state_dict` of the optimiser.
        ranks: the state of each rank.
        rows: the name of the learned rows in `RowFolders`; "" in a run without them.
        best_rows: the name of those of the best validation epoch, likewise.
    """

    config: TrainConfig
    dataset: dict[str, Any]
    progress: RunProgress
    model: dict[str, Tensor]
    best: dict[str, Tensor]
    optimiser: dict[str, Any]
    ranks: list[RankCheckpoint]
    rows: str = ""
    best_rows: str = ""

    def save(self, path: Path) -> None:
        """Writes the checkpoint to `path`, which it replaces."""
        values = {
            "config": config_to_dict(self.config),
            "dataset": self.dataset,
            "progress": asdict(self.progress),
            "model": self.model,
            "best": self.best,
            "optimiser": self.optimiser,
            "ranks": [asdict(state) for state in self.ranks],
            "rows": self.rows,
            "best_rows": self.best_rows,
        }
        tensor_file.save(path, _KIND, _VERSION, values)

    @classmethod
    def load(cls, path: Path) -> Checkpoint:
        """Reads the checkpoint at `path`.

        Raises:
            TrainError: the file is missing, damaged or of another program.
        """
        return cls.parse(path, tensor_file.read(path))

    @classmethod
    def parse(cls, path: Path, data: bytes) -> Checkpoint:
        """Reads a checkpoint from a file's bytes. `path` is for messages."""
        values = tensor_file.parse(path, data, _KIND, _VERSION)
        try:
            return cls(
                config=config_from_dict(values["config"]),
                dataset=values["dataset"],
                progress=RunProgress(**values["progress"]),
                model=values["model"],
                best=values["best"],
                optimiser=values["optimiser"],
                ranks=[RankCheckpoint(**state) for state in values["ranks"]],
                rows=values.get("rows", ""),
                best_rows=values.get("best_rows", ""),
            )
        except TrainError as error:
            raise TrainError(f"{path}: {error}") from None
        except (KeyError, TypeError) as error:
            raise TrainError(f"{path}: its contents are not those of a checkpoint ({error!r})") from None

    def state_of(self, rank: int, size: int) -> RankCheckpoint:
        """Returns the state that a rank continues with.

        If the number of ranks has changed, it is the first rank's position in the epoch, and
        `model` has the average of all ranks' running statistics.

        Args:
            rank: of the process.
            size: the number of ranks now.

        Raises:
            TrainError: the number of ranks has changed, and the schedule is not global.
        """
        if size == len(self.ranks):
            return self.ranks[rank]
        if self.config.ranks.schedule is not ScheduleKind.GLOBAL:
            schedule = self.config.ranks.schedule.value
            raise TrainError(
                f"the run had {len(self.ranks)} rank(s), now there are {size}: with "
                f"ranks.schedule={schedule} each rank trains on nodes of its own, so start "
                f"{len(self.ranks)} rank(s)"
            )
        return replace(self.ranks[0], running=self.ranks[0].running[:0])

    def check_dataset(self, path: Path, found: DatasetFingerprint) -> None:
        """Refuses a data set other than the one that the run has trained on.

        Raises:
            TrainError: a count or the checksum differs; the message says which.
        """
        for name, value in found.to_dict().items():
            if self.dataset.get(name) != value:
                was = self.dataset.get(name)
                raise TrainError(f"{path}: is of another data set: its {name} is {was}, here it is {value}")

    def restore_model(self, path: Path, model: nn.Module, weights: dict[str, Tensor]) -> None:
        """Loads `weights` (``self.model`` or ``self.best``) into `model`.

        Raises:
            TrainError: names or shapes do not match the configuration's model.
        """
        try:
            model.load_state_dict(weights)
        except RuntimeError as error:
            raise TrainError(f"{path}: does not fit the model: {' '.join(str(error).split())}") from None

    def restore_optimiser(self, path: Path, optimiser: Optimizer) -> None:
        """Loads the optimiser's state.

        Raises:
            TrainError: it belongs to other parameters.
        """
        state = {int(index): values for index, values in self.optimiser["state"].items()}
        groups = self.optimiser["param_groups"]
        for group in groups:
            group["betas"] = tuple(group["betas"])
        try:
            optimiser.load_state_dict({"state": state, "param_groups": groups})
        except ValueError as error:
            raise TrainError(f"{path}: does not fit the optimiser: {error}") from None
