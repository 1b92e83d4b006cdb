"""All that a run needs to go on exactly where it was, even in the middle of an epoch."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from torch import Tensor, nn
from torch.optim import Optimizer

from pyg_batchgnn.train import config_json, tensor_file
from pyg_batchgnn.train.config import TrainConfig
from pyg_batchgnn.train.errors import TrainError
from pyg_batchgnn.train.fingerprint import Fingerprint

_KIND = "pyg_batchgnn checkpoint"
_VERSION = 1


@dataclass
class Progress:
    """How far a run is.

    Attributes:
        epoch: epochs that are finished, evaluation included.
        step: minibatches trained in the epoch that is not finished.
        loss_sum, correct, seeds: sums over those minibatches (loss a node, right predictions, nodes).
        nodes, edges: sampled for them.
        epoch_seconds: wall time spent on them.
        elapsed_seconds: wall time of the finished epochs.
        best_epoch: epoch with the best validation accuracy so far, 0 before the first.
        best_accuracy: that accuracy.
        epoch_phases, phases: seconds by phase, of the unfinished epoch and of the finished ones.
    """

    epoch: int = 0
    step: int = 0
    loss_sum: float = 0.0
    correct: int = 0
    seeds: int = 0
    nodes: int = 0
    edges: int = 0
    epoch_seconds: float = 0.0
    elapsed_seconds: float = 0.0
    best_epoch: int = 0
    best_accuracy: float = -1.0
    epoch_phases: dict[str, float] = field(default_factory=dict)
    phases: dict[str, float] = field(default_factory=dict)

    def next_epoch(self) -> None:
        """The unfinished epoch is finished: its sums start anew."""
        self.epoch += 1
        self.elapsed_seconds += self.epoch_seconds
        for name, seconds in self.epoch_phases.items():
            self.phases[name] = self.phases.get(name, 0.0) + seconds
        self.step = self.correct = self.seeds = self.nodes = self.edges = 0
        self.loss_sum = self.epoch_seconds = 0.0
        self.epoch_phases = {}


@dataclass(frozen=True)
class Checkpoint:
    """The contents of a checkpoint file.

    Attributes:
        config: of the run.
        dataset: fingerprint, as a dict.
        progress: how far the run is.
        model: `state_dict` of the model.
        best: `state_dict` of the model at the best validation epoch.
        optimiser: `state_dict` of the optimiser.
        loader: `state_dict` of the training loader.
    """

    config: TrainConfig
    dataset: dict[str, Any]
    progress: Progress
    model: dict[str, Tensor]
    best: dict[str, Tensor]
    optimiser: dict[str, Any]
    loader: dict[str, Any]

    def save(self, path: Path) -> None:
        """Replace `path`."""
        values = {
            "config": config_json.to_dict(self.config),
            "dataset": self.dataset,
            "progress": asdict(self.progress),
            "model": self.model,
            "best": self.best,
            "optimiser": self.optimiser,
            "loader": self.loader,
        }
        tensor_file.save(path, _KIND, _VERSION, values)

    @classmethod
    def load(cls, path: Path) -> Checkpoint:
        """What `save` wrote.

        Raises:
            TrainError: the file is missing, damaged or foreign.
        """
        values = tensor_file.load(path, _KIND, _VERSION)
        try:
            return cls(
                config=config_json.from_dict(values["config"]),
                dataset=values["dataset"],
                progress=Progress(**values["progress"]),
                model=values["model"],
                best=values["best"],
                optimiser=values["optimiser"],
                loader=values["loader"],
            )
        except (KeyError, TypeError) as error:
            raise TrainError(f"{path}: its contents are not those of a checkpoint ({error!r})") from None

    def check_dataset(self, path: Path, found: Fingerprint) -> None:
        """Refuse a data set other than the one trained on.

        Raises:
            TrainError: a count or the checksum differs; the message says which.
        """
        for name, value in found.to_dict().items():
            if self.dataset.get(name) != value:
                was = self.dataset.get(name)
                raise TrainError(f"{path}: was made with another data set: {name} was {was}, here {value}")

    def restore_model(self, path: Path, model: nn.Module, weights: dict[str, Tensor]) -> None:
        """Load `weights` (``self.model`` or ``self.best``) into `model`.

        Raises:
            TrainError: names or shapes do not match the configuration's model.
        """
        try:
            model.load_state_dict(weights)
        except RuntimeError as error:
            raise TrainError(f"{path}: does not fit the model: {' '.join(str(error).split())}") from None

    def restore_optimiser(self, path: Path, optimiser: Optimizer) -> None:
        """Load the optimiser's state.

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
