"""The state of a run between two steps, which its checkpoint keeps."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from torch import Tensor, nn

from pyg_batchgnn.train.errors import TrainError
from pyg_batchgnn.train.graph import DatasetFingerprint
from pyg_batchgnn.train.loop.histories import gather_histories, restore_history
from pyg_batchgnn.train.loop.job import TrainingJob
from pyg_batchgnn.train.measure import PhaseClock, RunProgress
from pyg_batchgnn.train.ranks import Ranks
from pyg_batchgnn.train.run_folder import Checkpoint, RankCheckpoint, place_name


@dataclass(eq=False)
class TrainerState:
    """The state of a run, beside that of the objects of its job.

    Attributes:
        progress: the place in the run.
        best: the weights of the best epoch.
        clock: the seconds of the current epoch by phase.
        earlier: those of the epochs before it.
        loader: the place of the training loader, until the loader takes it.
        best_rows: the name of the learned rows of the best epoch; "" in a run without them.
    """

    progress: RunProgress = field(default_factory=RunProgress)
    best: dict[str, Tensor] = field(default_factory=dict)
    clock: PhaseClock = field(default_factory=PhaseClock)
    earlier: PhaseClock = field(default_factory=PhaseClock)
    loader: dict[str, Any] | None = None
    best_rows: str = ""

    @classmethod
    def restored(cls, checkpoint: Checkpoint, path: Path, job: TrainingJob, ranks: Ranks) -> TrainerState:
        """Puts a checkpoint into the objects of a job. Returns the rest of the state.

        Raises:
            TrainError: it does not fit the job or the number of ranks. The message names ``path``.
        """
        own = checkpoint.state_of(ranks.rank, ranks.size)
        checkpoint.restore_model(path, job.network.model, checkpoint.model)
        checkpoint.restore_optimiser(path, job.optimiser)
        job.running.restore(own.running)
        restore_history(path, job.graph.history, own.history)
        clock, earlier = PhaseClock(own.epoch_phases), PhaseClock(own.phases)
        progress = replace(checkpoint.progress)
        return cls(progress, checkpoint.best, clock, earlier, own.loader, checkpoint.best_rows)

    @property
    def rows(self) -> str:
        """The name of the present learned rows."""
        return place_name(self.progress.epoch, self.progress.step)

    def checkpoint(self, job: TrainingJob, dataset: DatasetFingerprint, ranks: Ranks) -> Checkpoint:
        """Returns a checkpoint of the run; collective."""
        running = job.running.table()
        mine = [job.train_loader.state_dict(), self.clock.to_dict(), self.earlier.to_dict()]
        histories = gather_histories(job.graph.history, ranks)
        states = zip(ranks.values(mine), running, histories, strict=True)
        return Checkpoint(
            config=job.config,
            dataset=dataset.to_dict(),
            progress=replace(self.progress),
            model=_copied({**job.network.model.state_dict(), **job.running.averaged(running)}),
            best=self.best,
            optimiser=job.optimiser.state_dict(),
            ranks=[
                RankCheckpoint(loader, row, clock, earlier, history)
                for (loader, clock, earlier), row, history in states
            ],
            rows="" if job.rows is None else self.rows,
            best_rows=self.best_rows,
        )

    def begin_epoch(self, job: TrainingJob, path: Path) -> int:
        """Brings the training loader to the place of the run. Returns the epoch's remaining steps.

        Raises:
            TrainError: the place of the checkpoint at ``path`` does not fit the loader.
        """
        loader, place, self.loader = job.train_loader, self.loader, None
        if place is None or not self.progress.step:
            loader.set_epoch(self.progress.epoch)
            return loader.steps_left
        try:
            loader.load_state_dict(place)
        except ValueError as error:
            raise TrainError(f"{path}: does not fit the loader: {error}") from None
        is_over = loader.upcoming_epoch > self.progress.epoch
        return 0 if is_over else loader.steps_left

    def end_epoch(self) -> None:
        """Goes on to the next epoch."""
        self.progress.next_epoch()
        self.earlier.merge(self.clock)
        self.clock = PhaseClock()


def weights_of(model: nn.Module) -> dict[str, Tensor]:
    """Returns a copy of a model's parameters and buffers."""
    return _copied(model.state_dict())


def _copied(state: dict[str, Tensor]) -> dict[str, Tensor]:
    return {name: value.detach().clone() for name, value in state.items()}
