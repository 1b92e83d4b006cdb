"""The loop of a run: epochs, steps, validation, checkpoints and requests to stop."""

from __future__ import annotations

import math
import signal
import time
from collections.abc import Iterator
from enum import Enum
from types import FrameType
from typing import Any, NoReturn

from pyg_batchgnn.train.checkpoint import (
    Checkpoint,
    LoaderAccount,
    Phase,
    PhaseClock,
    RunProgress,
    StepFigures,
    TrainerState,
    copied,
    history_figures,
    spread_over_ranks,
)
from pyg_batchgnn.train.errors import TrainError
from pyg_batchgnn.train.job import TrainingJob
from pyg_batchgnn.train.ranks import Ranks
from pyg_batchgnn.train.report import TerminalReport
from pyg_batchgnn.train.run_folder import (
    EpochRecord,
    RunFolder,
    RunLog,
    RunResult,
    append_record,
    keep_epochs,
)
from pyg_batchgnn.train.tasks import Evaluation, Task, count_not_finite, finite_rows, is_finite


def train_step(job: TrainingJob, batch: Any, clock: PhaseClock, progress: RunProgress) -> StepFigures:
    """Runs forward pass, backward pass and update on this rank's minibatch; collective."""
    before, waited = clock.work(), job.replica.waited()
    with clock.measure(Phase.FORWARD):
        targets = job.task.targets(job.labels(batch))
        seeds, weight = len(targets), job.task.weight(targets)
        logits = job.replica.logits(batch, weight, progress.epoch, progress.step)
        loss = job.task.loss(logits, targets) if seeds else logits.sum()
    with clock.measure(Phase.BACKWARD):
        job.optimiser.zero_grad(set_to_none=True)
        loss.backward()
    waited = job.replica.waited() - waited
    clock[Phase.BACKWARD] -= waited
    clock[Phase.EXCHANGE] += waited
    with clock.measure(Phase.OPTIMISER):
        job.clip()
        if job.rows is not None:
            job.rows.step(weight)
        job.optimiser.step()
        job.move_rate("step")
    score, score_of = job.task.train_score(logits.detach(), targets) if seeds else (0.0, 0.0)
    return StepFigures(
        seeds > 0,
        seeds,
        weight,
        loss.item() * weight if not count_not_finite(logits.detach()) else math.nan,
        score,
        score_of,
        batch.num_nodes,
        batch.num_edges,
        clock.work() - before,
    )


def note_validation(progress: RunProgress, val: Evaluation | None, task: Task) -> bool:
    """Notes the validation of the current epoch. ``val``: its result, of finite values; None: there
    was none. Returns True if the epoch's weights are the best so far: before the first validation,
    the last epoch's. Raises `TrainError` if the metric is undefined for these nodes."""
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


class RunOutcome(Enum):  # the way in which a run ended
    """How a run ended: all epochs, or patience, are over; or it was asked to stop."""

    FINISHED = "finished"
    INTERRUPTED = "interrupted"


class StopRequest:
    """Catches SIGINT and SIGTERM as requests to stop, while it is entered as a context. The first
    sets `signal`; a second SIGINT raises KeyboardInterrupt."""

    _SIGNALS = (signal.SIGINT, signal.SIGTERM)

    def __init__(self) -> None:
        self.signal: signal.Signals | None = None
        self._previous: dict[signal.Signals, Any] = {}

    def __bool__(self) -> bool:
        return self.signal is not None

    def __enter__(self) -> StopRequest:
        for number in self._SIGNALS:
            self._previous[number] = signal.signal(number, self._on_signal)
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._previous.items():
            signal.signal(number, handler)

    def _on_signal(self, number: int, _frame: FrameType | None) -> None:
        if self.signal is not None and number == signal.SIGINT:
            raise KeyboardInterrupt
        self.signal = signal.Signals(number)


class AgreedStop:
    """A request to stop on any rank, which all ranks see at the same step."""

    def __init__(self, request: StopRequest, ranks: Ranks) -> None:
        self.request, self._ranks = request, ranks
        self.seen = False  # True if all ranks know of a request

    def __call__(self) -> bool:
        self.seen = self.seen or self._ranks.any(bool(self.request))
        return self.seen


class Trainer:
    """Trains and tests a job. Every rank has a trainer; the first rank's writes metrics and
    checkpoints. ``dataset``: the fingerprint of the data set."""

    def __init__(
        self,
        job: TrainingJob,
        ranks: Ranks,
        folder: RunFolder,
        dataset: dict[str, int],
        stop: StopRequest,
        report: TerminalReport,
        log: RunLog,
    ) -> None:
        self._job = job
        self._ranks = ranks
        self._folder = folder
        self._dataset = dataset
        self._stop = AgreedStop(stop, ranks)
        self._report = report
        self._log = log
        self._state = TrainerState()
        self._loading = LoaderAccount(job.train_loader, prefetches=job.config.sampling.prefetch > 0)
        job.train_loader.epochs = job.config.run.epochs
        self._last_checkpoint = time.perf_counter()
        self._saved_rows = ""

    def resume(self, checkpoint: Checkpoint) -> None:
        """Continues from `checkpoint`. Raises `TrainError` if job, data or ranks do not match."""
        path = self._folder.checkpoint
        checkpoint.check_dataset(path, self._dataset)
        self._state = TrainerState.restored(checkpoint, path, self._job, self._ranks)
        self._load_rows(checkpoint.rows)
        self._saved_rows = checkpoint.rows
        if self._ranks.is_first:
            keep_epochs(self._folder.metrics, self._state.progress.epoch)

    def fit(self) -> RunOutcome:
        """Trains all epochs, or until patience is over. If asked to stop, saves a checkpoint and
        returns `INTERRUPTED`."""
        while self._state.progress.epoch < self._job.config.run.epochs and not self._is_patience_over():
            begin, before = time.perf_counter(), self._state.progress.epoch_seconds
            for loss in self._steps():
                self._state.progress.epoch_seconds = before + time.perf_counter() - begin
                self._report.step_done(loss)
                if self._stop.seen:
                    self.save()
                    return RunOutcome.INTERRUPTED
            self._job.running.average()
            val = self._validate()
            if self._stop.seen:  # the epoch's training is kept; a resumed run evaluates again
                self.save()
                return RunOutcome.INTERRUPTED
            self._state.progress.epoch_seconds = before + time.perf_counter() - begin
            self._finish_epoch(val)
        if self._is_patience_over():
            self._report.stopped_early(self._state.progress.validations_since_best)
        return RunOutcome.FINISHED

    def test(self) -> RunResult | None:
        """Tests the best epoch's weights. Returns None if asked to stop meanwhile."""
        job, progress = self._job, self._state.progress
        model = job.network.model
        clock, last = PhaseClock(self._state.earlier.to_dict()), copied(model.state_dict())
        model.load_state_dict(self._state.best)
        self._load_rows(self._state.best_rows)
        with clock.measure(Phase.EVALUATION):
            test = job.test.evaluate(self._ranks, self._stop)
        model.load_state_dict(last)
        self._load_rows(self._saved_rows)
        if self._stop.seen:
            return None
        self._refuse_scores(f"the test of epoch {progress.best_epoch}", test)
        phases, ranges = spread_over_ranks(clock, self._ranks)
        return RunResult(
            metric=job.task.metric.value,
            best_epoch=progress.best_epoch,
            val=progress.best,
            test=None if test is None else test.to_dict(),
            seconds=progress.elapsed_seconds,
            phases=phases,
            ranks=self._ranks.size,
            phase_ranges=ranges,
            historical=history_figures(job.graph.history, self._ranks),
        )

    def save(self) -> None:
        self._refuse_weights()
        with self._state.clock.measure(Phase.CHECKPOINT):
            rows, name = self._job.rows, self._state.rows
            if rows is not None and name != self._saved_rows:  # else the last checkpoint was made here
                self._folder.save_rows(rows.embedding, name, self._ranks)
                self._saved_rows = name
            checkpoint = self._state.checkpoint(self._job, self._dataset, self._ranks)
            if self._ranks.is_first:
                checkpoint.save(self._folder.checkpoint)
            if rows is not None:
                self._ranks.from_first(lambda: self._folder.keep_rows(checkpoint.rows, checkpoint.best_rows))
        self._last_checkpoint = time.perf_counter()

    def _load_rows(self, name: str) -> None:
        if self._job.rows is not None:
            self._job.rows.embedding.load(self._folder.rows / name)

    def _steps(self) -> Iterator[float]:
        """Trains on the epoch's remaining minibatches; yields the mean loss so far after each."""
        job, progress = self._job, self._state.progress
        job.network.model.train()
        left = self._state.begin_epoch(job, self._folder.checkpoint)
        self._report.epoch_begins(progress.epoch + 1, progress.step, progress.step + left)
        if not left:
            return
        for batch in self._loading.timed(iter(job.train_loader)):
            figures = train_step(job, batch, self._state.clock, progress)
            self._loading.charge(self._state.clock)
            due = self._agree(figures)
            yield progress.mean_loss
            if due:
                self.save()

    def _agree(self, figures: StepFigures) -> bool:
        """Adds a step of all ranks to the progress, and notes requests to stop; collective. Returns
        True if a checkpoint is due. Raises `TrainError` if the loss is not finite."""
        late = time.perf_counter() - self._last_checkpoint
        due = self._ranks.is_first and late >= self._job.config.run.checkpoint_seconds
        with self._state.clock.measure(Phase.EXCHANGE):
            table = self._ranks.table([*figures, bool(self._stop.request), due])
        self._state.progress.add(table[:, :-2])
        if not is_finite(self._state.progress.loss):
            progress = self._state.progress
            self._diverged(
                f"the loss is {progress.loss} at epoch {progress.epoch + 1}, minibatch {progress.step}"
            )
        self._stop.seen = self._stop.seen or bool(table[:, -2].any())
        return bool(table[:, -1].any())

    def _refuse_weights(self) -> None:
        state, progress = self._job.network.model.state_dict(), self._state.progress
        bad = [name for name, value in state.items() if not finite_rows(value).all()]
        if self._ranks.any(bool(bad)):
            place = f"at epoch {progress.epoch + 1}, minibatch {progress.step}"
            place = place if progress.step else f"after epoch {progress.epoch}"
            self._diverged(f"weights are not finite {place} ({bad[0] if bad else 'on another rank'})")

    def _refuse_scores(self, what: str, found: Evaluation | None) -> None:
        if found is not None and not found.is_finite:
            self._diverged(f"{what} is not finite: {found.problem(self._job.task.unit)}")

    def _diverged(self, what: str) -> NoReturn:
        """Raises `TrainError`, on the first rank, with the usual causes and remedies."""
        best, folder = self._state.progress.best_epoch, self._folder
        kept = "no epoch was finished, so there is no model"
        if best:
            kept = f"{folder.checkpoint} keeps the weights of epoch {best}, the best one"
        cause = f"lower --lr, which is {self._job.config.optimiser.learning_rate}, or look for NaN and huge"
        with self._ranks.one_error():
            raise TrainError(f"{what}; {cause} values in the features; {kept}")

    def _is_patience_over(self) -> bool:
        patience = self._job.config.run.patience
        return patience is not None and self._state.progress.validations_since_best >= patience

    def _validate(self) -> Evaluation | None:
        job, run, epoch = self._job, self._job.config.run, self._state.progress.epoch + 1
        if epoch % run.evaluate_every and epoch != run.epochs:
            return None
        with self._state.clock.measure(Phase.EVALUATION):
            return job.val.evaluate(self._ranks, self._stop)

    def _finish_epoch(self, val: Evaluation | None) -> None:
        progress, task = self._state.progress, self._job.task
        self._refuse_scores(f"the validation of epoch {progress.epoch + 1}", val)
        self._refuse_weights()
        with self._ranks.one_error():
            is_best = note_validation(progress, val, task)
        if is_best:
            self._state.best = copied(self._job.network.model.state_dict())
        train = {"loss": progress.mean_loss, task.train_metric.value: progress.train_score}
        if self._job.schedule is not None:
            train["learning_rate"] = self._job.optimiser.param_groups[0]["lr"]
        phases, ranges = spread_over_ranks(self._state.clock, self._ranks)
        record = EpochRecord(
            epoch=progress.epoch + 1,
            train=train,
            val=None if val is None else val.to_dict(),
            seconds=progress.epoch_seconds,
            elapsed_seconds=progress.elapsed_seconds + progress.epoch_seconds,
            minibatches=progress.minibatches,
            nodes=progress.nodes,
            edges=progress.edges,
            phases=phases,
            ranks=self._ranks.size,
            phase_ranges=ranges,
            imbalance=progress.imbalance(self._ranks.size),
            disk=self._loading.read_since_last(self._ranks),
        )
        self._job.move_rate("epoch", None if val is None else val.scores[task.metric])
        self._state.end_epoch()
        if is_best and self._job.rows is not None:
            self._state.best_rows = self._state.rows  # which `save` writes
        if self._ranks.is_first:
            append_record(self._folder.metrics, record)
            self._log.write_epoch(record)
        self.save()
        self._report.epoch_done(record, is_best and val is not None)
