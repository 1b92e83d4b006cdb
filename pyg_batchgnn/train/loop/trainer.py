"""The loop of a run: epochs, validation and checkpoints."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from dataclasses import replace
from typing import Any, NoReturn

from torch import Tensor

from pyg_batchgnn.loader import MacrobatchNeighborLoader
from pyg_batchgnn.train.config import EvaluationKind
from pyg_batchgnn.train.errors import TrainError
from pyg_batchgnn.train.graph import DatasetFingerprint
from pyg_batchgnn.train.loop.best_epoch import note_validation
from pyg_batchgnn.train.loop.evaluate import evaluate
from pyg_batchgnn.train.loop.exact import evaluate_exactly
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
from pyg_batchgnn.train.task import Evaluation


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
        """Trains the configured number of epochs, or until validations are no longer better.

        If asked to stop, saves a checkpoint and returns.

        Raises:
            TrainError: the loss is not a number, or the metric of the task is not defined.
        """
        while self.progress.epoch < self._job.config.run.epochs and not self._is_patience_over():
            begin, before = time.perf_counter(), self.progress.epoch_seconds
            for loss in self._steps():
                self.progress.epoch_seconds = before + time.perf_counter() - begin
                self._observer.step_done(loss)
                if self._stop.seen:
                    self.save()
                    return RunOutcome.INTERRUPTED
            self._job.running.average()
            val = self._validate()
            if self._stop.seen:  # the epoch's training is kept; a resumed run evaluates again
                self.save()
                return RunOutcome.INTERRUPTED
            self.progress.epoch_seconds = before + time.perf_counter() - begin
            self._finish_epoch(val)
        if self._is_patience_over():
            self._observer.stopped_early(self.progress.validations_since_best)
        return RunOutcome.FINISHED

    def test(self) -> RunResult | None:
        """Tests the weights of the best epoch. Returns None if asked to stop meanwhile."""
        job, progress = self._job, self.progress
        model = job.network.model
        clock, last = PhaseClock(self._earlier.to_dict()), _copy(model.state_dict())
        model.load_state_dict(self.best)
        with clock.measure(Phase.EVALUATION):
            test = self._evaluate(job.test, job.test_loader)
        model.load_state_dict(last)
        if self._stop.seen:
            return None
        spread = spread_over_ranks(clock, self._ranks)
        return RunResult(
            job.task.metric.value,
            progress.best_epoch,
            progress.best,
            None if test is None else test.to_dict(),
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
            yield progress.mean_loss
            if due:
                self.save()

    def _agree(self, figures: StepFigures) -> bool:
        """Adds a step of all ranks to the progress, and hears of requests to stop; collective.

        Returns:
            True if a checkpoint is due.

        Raises:
            TrainError: the loss of a rank is not finite.
        """
        late = time.perf_counter() - self._last_checkpoint
        due = self._ranks.is_first and late >= self._job.config.run.checkpoint_seconds
        with self._clock.measure(Phase.EXCHANGE):
            table = self._ranks.table([*figures, self._stop.asked, due])
        self.progress.add(table[:, :-2])
        if not math.isfinite(self.progress.loss):
            self._refuse_loss()
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

    def _refuse_loss(self) -> NoReturn:
        progress, run = self.progress, self._job.config
        with self._ranks.one_error():
            raise TrainError(
                f"the loss is {progress.loss} at epoch {progress.epoch + 1}, minibatch {progress.step}; "
                f"lower optimiser.learning_rate ({run.optimiser.learning_rate}), or look for huge features"
            )

    def _is_patience_over(self) -> bool:
        patience = self._job.config.run.patience
        return patience is not None and self.progress.validations_since_best >= patience

    def _evaluate(self, nodes: Tensor, loader: MacrobatchNeighborLoader) -> Evaluation | None:
        """Evaluates some nodes. ``loader``: of these nodes."""
        job = self._job
        if job.config.sampling.evaluation is EvaluationKind.EXACT:
            return evaluate_exactly(job.network, job.graph, nodes, job.task, self._ranks, self._stop)
        return evaluate(job.network, loader, job.labels, job.task, self._ranks, self._stop)

    def _validate(self) -> Evaluation | None:
        job, run, epoch = self._job, self._job.config.run, self.progress.epoch + 1
        if epoch % run.evaluate_every and epoch != run.epochs:
            return None
        with self._clock.measure(Phase.EVALUATION):
            return self._evaluate(job.val, job.val_loader)

    def _finish_epoch(self, val: Evaluation | None) -> None:
        progress, task = self.progress, self._job.task
        with self._ranks.one_error():
            is_best = note_validation(progress, val, task)
        if is_best:
            self.best = _copy(self._job.network.model.state_dict())
        scores = None if val is None else val.to_dict()
        spread = spread_over_ranks(self._clock, self._ranks)
        record = epoch_record(progress, task.train_metric.value, scores, spread)
        progress.next_epoch()
        self._earlier.merge(self._clock)
        self._clock = PhaseClock()
        if self._ranks.is_first:
            append_record(self._folder.metrics, record)
        self.save()
        self._observer.epoch_done(record, is_best and val is not None)

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
