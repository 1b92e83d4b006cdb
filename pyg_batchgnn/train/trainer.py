"""Epochs, validation, checkpoints: the loop of a run."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from torch import Tensor, nn

from pyg_batchgnn.train.checkpoint import Checkpoint, Progress
from pyg_batchgnn.train.errors import TrainError
from pyg_batchgnn.train.evaluate import accuracy
from pyg_batchgnn.train.fingerprint import Fingerprint
from pyg_batchgnn.train.job import Job
from pyg_batchgnn.train.loader_clock import LoaderClock
from pyg_batchgnn.train.metrics import EpochRecord, append_record, keep_epochs
from pyg_batchgnn.train.outcome import Observer, Outcome, RunResult
from pyg_batchgnn.train.phases import Phase, PhaseClock
from pyg_batchgnn.train.run_folder import RunFolder
from pyg_batchgnn.train.steps import train_step
from pyg_batchgnn.train.stop import StopRequest


class Trainer:
    """Runs a job, leaving metrics and checkpoints in a folder.

    Args:
        job: what to train; its model and optimiser change in place.
        folder: where to write.
        dataset: fingerprint for the checkpoint.
        stop: looked at between minibatches.
        observer: told about progress.
    """

    def __init__(
        self, job: Job, folder: RunFolder, dataset: Fingerprint, stop: StopRequest, observer: Observer
    ) -> None:
        self._job = job
        self._folder = folder
        self._dataset = dataset
        self._stop = stop
        self._observer = observer
        self._clock = PhaseClock()
        self._loader_clock = LoaderClock(job.train_loader, ahead=job.config.sampling.prefetch > 0)
        self._loader_state: dict[str, Any] | None = None
        self._last_checkpoint = time.perf_counter()
        self.progress = Progress()
        self.best: dict[str, Tensor] = {}

    def resume(self, checkpoint: Checkpoint) -> list[EpochRecord]:
        """Go on from `checkpoint`; gives the records of the epochs that are done.

        Raises:
            TrainError: it does not fit the job or the data set.
        """
        path = self._folder.checkpoint
        checkpoint.check_dataset(path, self._dataset)
        checkpoint.restore_model(path, self._job.network.model, checkpoint.model)
        checkpoint.restore_optimiser(path, self._job.optimiser)
        self.progress = replace(checkpoint.progress)
        self.best = checkpoint.best
        self._clock = PhaseClock(self.progress.epoch_phases)
        self._loader_state = checkpoint.loader
        return keep_epochs(self._folder.metrics, self.progress.epoch)

    def fit(self) -> Outcome:
        """Train until the configured number of epochs; when asked to stop, save a checkpoint and return."""
        while self.progress.epoch < self._job.config.run.epochs:
            begin, before = time.perf_counter(), self.progress.epoch_seconds
            for loss in self._steps():
                self.progress.epoch_seconds = before + time.perf_counter() - begin
                self._observer.step_done(loss)
                if self._stop:
                    self.save()
                    return Outcome.INTERRUPTED
                self._save_if_due()
            val_accuracy = self._validate()
            if self._stop:  # training of the epoch is kept; resuming evaluates again
                self.save()
                return Outcome.INTERRUPTED
            self.progress.epoch_seconds = before + time.perf_counter() - begin
            self._finish_epoch(val_accuracy)
        return Outcome.FINISHED

    def test(self) -> RunResult | None:
        """Test the weights of the best epoch; None when asked to stop meanwhile."""
        job, progress = self._job, self.progress
        model = job.network.model
        clock, last = PhaseClock(progress.phases), _copy_of_weights(model)
        model.load_state_dict(self.best)
        with clock.measure(Phase.EVALUATION):
            test_accuracy = accuracy(job.network, job.test_loader, job.labels, self._stop)
        model.load_state_dict(last)
        if self._stop:
            return None
        val_accuracy = progress.best_accuracy if progress.best_accuracy >= 0 else None
        return RunResult(
            progress.best_epoch, val_accuracy, test_accuracy, progress.elapsed_seconds, clock.to_dict()
        )

    def save(self) -> None:
        """Write the checkpoint."""
        with self._clock.measure(Phase.CHECKPOINT):
            self._checkpoint().save(self._folder.checkpoint)
        self._last_checkpoint = time.perf_counter()

    def _steps(self) -> Iterator[float]:
        """Train on what is left of the epoch's minibatches; yields the mean loss so far after each."""
        job, progress, run = self._job, self.progress, self._job.config.run
        job.network.model.train()
        self._observer.epoch_begins(progress.epoch + 1, progress.step, len(job.train_loader))
        if progress.step == len(job.train_loader):
            return
        for batch in self._batches():
            job.network.begin_step(run.seed, progress.epoch, progress.step)
            train_step(job.network, job.optimiser, batch, job.labels, self._clock, progress)
            self._loader_clock.charge(self._clock)
            yield progress.loss_sum / progress.seeds

    def _batches(self) -> Iterator[Any]:
        loader = self._job.train_loader
        if self._loader_state is not None and self.progress.step > 0:
            try:
                loader.load_state_dict(self._loader_state)
            except ValueError as error:
                raise TrainError(f"{self._folder.checkpoint}: does not fit the loader: {error}") from None
        else:
            loader.set_epoch(self.progress.epoch)
        self._loader_state = None
        return self._loader_clock.timed(iter(loader))

    def _validate(self) -> float | None:
        job, run, epoch = self._job, self._job.config.run, self.progress.epoch + 1
        if epoch % run.evaluate_every and epoch != run.epochs:
            return None
        with self._clock.measure(Phase.EVALUATION):
            return accuracy(job.network, job.val_loader, job.labels, self._stop)

    def _finish_epoch(self, val_accuracy: float | None) -> None:
        progress = self.progress
        is_best = val_accuracy is not None and val_accuracy > progress.best_accuracy
        if is_best or progress.best_accuracy < 0:  # without validation nodes the last epoch counts as best
            progress.best_epoch = progress.epoch + 1
            progress.best_accuracy = -1.0 if val_accuracy is None else val_accuracy
            self.best = _copy_of_weights(self._job.network.model)
        record = self._record(val_accuracy)
        progress.epoch_phases = self._clock.to_dict()
        progress.next_epoch()
        self._clock = PhaseClock()
        append_record(self._folder.metrics, record)
        self.save()
        self._observer.epoch_done(record, is_best)

    def _record(self, val_accuracy: float | None) -> EpochRecord:
        progress = self.progress
        return EpochRecord(
            epoch=progress.epoch + 1,
            loss=progress.loss_sum / progress.seeds,
            train_accuracy=progress.correct / progress.seeds,
            val_accuracy=val_accuracy,
            seconds=progress.epoch_seconds,
            elapsed_seconds=progress.elapsed_seconds + progress.epoch_seconds,
            minibatches=progress.step,
            nodes=progress.nodes,
            edges=progress.edges,
            phases=self._clock.to_dict(),
        )

    def _save_if_due(self) -> None:
        if time.perf_counter() - self._last_checkpoint >= self._job.config.run.checkpoint_seconds:
            self.save()

    def _checkpoint(self) -> Checkpoint:
        job = self._job
        return Checkpoint(
            config=job.config,
            dataset=self._dataset.to_dict(),
            progress=replace(self.progress, epoch_phases=self._clock.to_dict()),
            model=_copy_of_weights(job.network.model),
            best=self.best,
            optimiser=job.optimiser.state_dict(),
            loader=job.train_loader.state_dict(),
        )


def _copy_of_weights(model: nn.Module) -> dict[str, Tensor]:
    return {name: value.detach().clone() for name, value in model.state_dict().items()}
