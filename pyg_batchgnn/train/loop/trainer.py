"""The loop of a run: epochs, validation and checkpoints."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from torch import Tensor

from pyg_batchgnn.train.errors import TrainError
from pyg_batchgnn.train.graph import DatasetFingerprint
from pyg_batchgnn.train.loop.evaluate import accuracy
from pyg_batchgnn.train.loop.job import TrainingJob
from pyg_batchgnn.train.loop.observer import RunObserver, RunOutcome
from pyg_batchgnn.train.loop.step import train_step
from pyg_batchgnn.train.loop.stop import AgreedStop, StopRequest
from pyg_batchgnn.train.measure import (
    LoaderClock,
    Phase,
    PhaseClock,
    RunProgress,
    StepFigures,
    spread_over_ranks,
)
from pyg_batchgnn.train.ranks import Ranks
from pyg_batchgnn.train.run_folder import (
    Checkpoint,
    RankCheckpoint,
    RunFolder,
    RunResult,
    append_record,
    epoch_record,
    keep_epochs,
)


class Trainer:
    """Runs a job. Every rank has a trainer; the first rank's writes metrics and checkpoints.

    Args:
        job: to train. Its model and optimiser change in place.
        ranks: of the run.
        folder: receives metrics and checkpoints.
        dataset: the data set's fingerprint, for the checkpoint.
        stop: looked at between two minibatches.
        observer: is told about progress.
    """

    def __init__(
        self,
        job: TrainingJob,
        ranks: Ranks,
        folder: RunFolder,
        dataset: DatasetFingerprint,
        stop: StopRequest,
        observer: RunObserver,
    ) -> None:
        self._job = job
        self._ranks = ranks
        self._folder = folder
        self._dataset = dataset
        self._stop = AgreedStop(stop, ranks)
        self._observer = observer
        self._clock, self._earlier = PhaseClock(), PhaseClock()
        self._loader_clock = LoaderClock(job.train_loader, prefetches=job.config.sampling.prefetch > 0)
        self._loader_state: dict[str, Any] | None = None
        self._last_checkpoint = time.perf_counter()
        self.progress = RunProgress()
        self.best: dict[str, Tensor] = {}

    def resume(self, checkpoint: Checkpoint) -> None:
        """Continues from `checkpoint`.

        Raises:
            TrainError: it does not fit the job, the data set or the number of ranks.
        """
        path = self._folder.checkpoint
        checkpoint.check_dataset(path, self._dataset)
        state = checkpoint.state_of(self._ranks.rank, self._ranks.size)
        checkpoint.restore_model(path, self._job.network.model, checkpoint.model)
        checkpoint.restore_optimiser(path, self._job.optimiser)
        self._job.running.restore(state.running)
        self.progress = replace(checkpoint.progress)
        self.best = checkpoint.best
        self._clock, self._earlier = PhaseClock(state.epoch_phases), PhaseClock(state.phases)
        self._loader_state = state.loader
        if self._ranks.is_first:
            keep_epochs(self._folder.metrics, self.progress.epoch)

    def fit(self) -> RunOutcome:
        """Trains the configured number of epochs. If asked to stop, saves a checkpoint and
        returns."""
        while self.progress.epoch < self._job.config.run.epochs:
            begin, before = time.perf_counter(), self.progress.epoch_seconds
            for loss in self._steps():
                self.progress.epoch_seconds = before + time.perf_counter() - begin
                self._observer.step_done(loss)
                if self._stop.seen:
                    self.save()
                    return RunOutcome.INTERRUPTED
            self._job.running.average()
            val_accuracy = self._validate()
            if self._stop.seen:  # the epoch's training is kept; a resumed run evaluates again
                self.save()
                return RunOutcome.INTERRUPTED
            self.progress.epoch_seconds = before + time.perf_counter() - begin
            self._finish_epoch(val_accuracy)
        return RunOutcome.FINISHED

    def test(self) -> RunResult | None:
        """Tests the weights of the best epoch. Returns None if asked to stop meanwhile."""
        job, progress = self._job, self.progress
        model = job.network.model
        clock, last = PhaseClock(self._earlier.to_dict()), _copy(model.state_dict())
        model.load_state_dict(self.best)
        with clock.measure(Phase.EVALUATION):
            test_accuracy = accuracy(job.network, job.test_loader, job.labels, self._ranks, self._stop)
        model.load_state_dict(last)
        if self._stop.seen:
            return None
        val_accuracy = progress.best_accuracy if progress.best_accuracy >= 0 else None
        spread = spread_over_ranks(clock, self._ranks)
        return RunResult(
            progress.best_epoch,
            val_accuracy,
            test_accuracy,
            progress.elapsed_seconds,
            spread.mean,
            self._ranks.size,
            spread.ranges,
        )

    def save(self) -> None:
        """Writes the checkpoint; collective."""
        with self._clock.measure(Phase.CHECKPOINT):
            checkpoint = self._checkpoint()
            if self._ranks.is_first:
                checkpoint.save(self._folder.checkpoint)
        self._last_checkpoint = time.perf_counter()

    def _steps(self) -> Iterator[float]:
        """Trains on the epoch's remaining minibatches. Yields the mean loss so far after each
        step."""
        job, progress, run = self._job, self.progress, self._job.config.run
        job.network.model.train()
        left = self._steps_left()
        self._observer.epoch_begins(progress.epoch + 1, progress.step, progress.step + left)
        if not left:
            return
        for batch in self._loader_clock.timed(iter(job.train_loader)):
            job.network.begin_step(run.seed, progress.epoch, progress.step, self._ranks.rank)
            figures = train_step(job, batch, self._clock, progress)
            self._loader_clock.charge(self._clock)
            due = self._agree(figures)
            yield progress.loss / progress.seeds
            if due:
                self.save()

    def _agree(self, figures: StepFigures) -> bool:
        """Adds a step of all ranks to the progress, and hears of requests to stop; collective.

        Returns:
            True if a checkpoint is due.
        """
        late = time.perf_counter() - self._last_checkpoint
        due = self._ranks.is_first and late >= self._job.config.run.checkpoint_seconds
        with self._clock.measure(Phase.EXCHANGE):
            table = self._ranks.table([*figures, self._stop.asked, due])
        self.progress.add(table[:, :-2])
        self._stop.hear(table[:, -2])
        return bool(table[:, -1].any())

    def _steps_left(self) -> int:
        """Returns the remaining steps of the epoch, which the loader's next iteration makes."""
        loader, state, self._loader_state = self._job.train_loader, self._loader_state, None
        if state is None or not self.progress.step:
            loader.set_epoch(self.progress.epoch)
            return loader.steps_left
        try:
            loader.load_state_dict(state)
        except ValueError as error:
            raise TrainError(f"{self._folder.checkpoint}: does not fit the loader: {error}") from None
        is_over = loader.upcoming_epoch > self.progress.epoch
        return 0 if is_over else loader.steps_left

    def _validate(self) -> float | None:
        job, run, epoch = self._job, self._job.config.run, self.progress.epoch + 1
        if epoch % run.evaluate_every and epoch != run.epochs:
            return None
        with self._clock.measure(Phase.EVALUATION):
            return accuracy(job.network, job.val_loader, job.labels, self._ranks, self._stop)

    def _finish_epoch(self, val_accuracy: float | None) -> None:
        progress = self.progress
        is_best = val_accuracy is not None and val_accuracy > progress.best_accuracy
        # Without validation nodes the last epoch is the best.
        if is_best or progress.best_accuracy < 0:
            progress.best_epoch = progress.epoch + 1
            progress.best_accuracy = -1.0 if val_accuracy is None else val_accuracy
            self.best = _copy(self._job.network.model.state_dict())
        record = epoch_record(progress, val_accuracy, spread_over_ranks(self._clock, self._ranks))
        progress.next_epoch()
        self._earlier.merge(self._clock)
        self._clock = PhaseClock()
        if self._ranks.is_first:
            append_record(self._folder.metrics, record)
        self.save()
        self._observer.epoch_done(record, is_best)

    def _checkpoint(self) -> Checkpoint:
        job = self._job
        running = job.running.table()
        mine = [job.train_loader.state_dict(), self._clock.to_dict(), self._earlier.to_dict()]
        states = zip(self._ranks.values(mine), running, strict=True)
        return Checkpoint(
            config=job.config,
            dataset=self._dataset.to_dict(),
            progress=replace(self.progress),
            model=_copy({**job.network.model.state_dict(), **job.running.averaged(running)}),
            best=self.best,
            optimiser=job.optimiser.state_dict(),
            ranks=[RankCheckpoint(loader, row, clock, earlier) for (loader, clock, earlier), row in states],
        )


def _copy(state: dict[str, Tensor]) -> dict[str, Tensor]:
    return {name: value.detach().clone() for name, value in state.items()}
