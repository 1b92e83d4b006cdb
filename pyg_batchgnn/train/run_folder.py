"""The folder that a run leaves behind: configuration, records of epochs, result, learned rows; and
the log of a run.
"""

from __future__ import annotations

import contextlib
import importlib.util
import json
import os
import re
import shutil
import warnings
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, TypeAlias

from pyg_batchgnn.data import DatasetError
from pyg_batchgnn.data.files import sync_file, sync_folder, writing
from pyg_batchgnn.embed import Embedding
from pyg_batchgnn.train.config.choices import LogKind
from pyg_batchgnn.train.errors import TrainError
from pyg_batchgnn.train.ranks import Ranks
from pyg_batchgnn.train.tasks import is_finite


class RunFolder:
    def __init__(self, path: Path) -> None:
        self.path = path
        self.config = path / "config.json"  # the configuration
        self.metrics = path / "metrics.jsonl"  # the records of epochs: one JSON object per line and epoch
        self.result = path / "result.json"  # the final figures; it exists once the run has finished
        self.checkpoint = path / "checkpoint.safetensors"  # the state of the run, and the best model
        self.rows = path / "embeddings"  # the learned rows of both, in folders that all ranks must see

    @classmethod
    def create(cls, path: Path | None, name: str) -> RunFolder:
        """Makes a new folder: `path`, or ``runs/<name>-<n>`` with the first free n. Raises
        `TrainError` if `path` is not empty."""
        if path is not None:
            if path.exists() and (not path.is_dir() or any(path.iterdir())):
                raise TrainError(
                    f"{path} is not empty; give another folder with --run, "
                    f"or continue its run with --resume {path}"
                )
            with writing(path):
                path.mkdir(parents=True, exist_ok=True)
            return cls(path)
        safe = re.sub(r"[^\w.-]+", "_", name)
        with writing(Path("runs")):
            Path("runs").mkdir(exist_ok=True)
        number = 1
        while True:
            folder = cls(Path("runs") / f"{safe}-{number}")
            try:
                folder.path.mkdir()
            except FileExistsError:
                number += 1
            else:
                return folder

    @classmethod
    def open(cls, path: Path) -> RunFolder:
        """Returns the folder of an existing run. Raises `TrainError` if it has no configuration."""
        folder = cls(path)
        if not path.is_dir():
            raise TrainError(
                f"{path}: no such run folder; a run prints the path of its folder when it starts"
            )
        if not folder.config.is_file():
            raise TrainError(f"{path}: not a run folder, since it has no {folder.config.name}")
        return folder

    def clear(self) -> None:
        """Empties the folder if its run was killed before the first checkpoint."""
        leftovers = self._leftovers()
        begun = self.config.is_file() and not self.checkpoint.exists()
        if begun or (leftovers and set(leftovers) == set(self.path.iterdir())):
            self.remove_leftovers()
            shutil.rmtree(self.rows, ignore_errors=True)
            for path in (self.metrics, self.config):
                path.unlink(missing_ok=True)

    def save_rows(self, embedding: Embedding, name: str, ranks: Ranks) -> None:
        """Writes learned rows and their optimizer state to ``embeddings/<name>``; collective.
        Raises `DatasetError` if they cannot be written."""

        def make_room() -> None:
            self.rows.mkdir(exist_ok=True)
            shutil.rmtree(self.rows / name, ignore_errors=True)  # of a run that was killed

        ranks.from_first(make_room)
        embedding.save(self.rows / name)

    def keep_rows(self, *names: str) -> None:
        for other in self.rows.iterdir():
            if other.name not in names:
                shutil.rmtree(other, ignore_errors=True)

    def remove_leftovers(self) -> None:
        for path in self._leftovers():
            path.unlink(missing_ok=True)

    def _leftovers(self) -> list[Path]:
        return [path for path in self.path.glob(".*.tmp") if re.fullmatch(r"\..+\.\d+\.tmp", path.name)]


@contextlib.contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Yields a temporary path to write. It replaces `path` if the block ends without an error, once
    its contents are on disk. An error leaves `path` as it was."""
    if path.exists() and not path.is_file():
        raise DatasetError(f"{path}: is no ordinary file, and stays as it is; give another path")
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        with writing(path):
            yield temporary
            sync_file(temporary)
            temporary.replace(path)
        sync_folder(path.parent)
    finally:
        temporary.unlink(missing_ok=True)


def write_json(path: Path, value: Any) -> None:
    with replacing(path) as temporary:
        temporary.write_text(json.dumps(value, indent=2) + "\n", encoding="utf-8")


@dataclass(frozen=True)
class EpochRecord:
    """The figures of one epoch: a line of metrics.jsonl."""

    epoch: int  # counted from 1
    #: the mean loss over training seeds, and one metric of the training minibatches by name,
    #: measured with dropout while the weights changed
    train: dict[str, float]
    val: dict[str, float] | None  # loss and metrics after the epoch; None without validation
    seconds: float  # wall time of the epoch, evaluation included
    elapsed_seconds: float  # wall time of the run so far, without interruptions
    minibatches: int  # minibatches trained on
    nodes: int  # sampled nodes
    edges: int  # sampled edges
    phases: dict[str, float]  # seconds per phase, the mean over ranks
    ranks: int = 1  # how many ranks trained
    #: [least, most] seconds of a rank by phase; empty with one rank
    phase_ranges: dict[str, list[float]] = field(default_factory=dict)
    #: for "edges" and "seconds", the most of a rank in each step over the mean of all ranks; empty
    #: with one rank
    imbalance: dict[str, float] = field(default_factory=dict)
    #: what all ranks read from files, by the names of `DISK_FIGURES`; empty if features are in
    #: memory. In a resumed epoch, only what was read since
    disk: dict[str, float] = field(default_factory=dict)


def append_record(path: Path, record: EpochRecord) -> None:
    with path.open("a", encoding="utf-8") as file:
        file.write(json.dumps(asdict(record)) + "\n")


def read_records(path: Path) -> list[EpochRecord]:
    if not path.is_file():
        return []
    lines = path.read_text(encoding="utf-8", errors="replace").split("\n")
    records = []
    for number, line in enumerate(lines, start=1):
        if not line:
            continue
        try:
            values: dict[str, Any] = json.loads(line)
            records.append(record := EpochRecord(**values))
            counts = [record.epoch, record.seconds, record.elapsed_seconds, record.nodes, record.edges]
            parts = (record.train, record.val or {}, record.phases, record.imbalance, record.disk)
            if not is_finite(*counts, *(one for of in parts for one in of.values())):
                raise TypeError("a figure is not finite")
        except (json.JSONDecodeError, TypeError, AttributeError, OverflowError) as error:
            if number == len(lines):  # no newline: the write was interrupted
                break
            raise TrainError(f"{path}: line {number} is not the record of an epoch: {error}") from None
    return records


def keep_epochs(path: Path, epochs: int) -> list[EpochRecord]:
    kept = [record for record in read_records(path) if record.epoch <= epochs]
    with replacing(path) as temporary:
        temporary.write_text("".join(json.dumps(asdict(r)) + "\n" for r in kept), encoding="utf-8")
    return kept


@dataclass(frozen=True)
class RunResult:
    """The final figures of a run: result.json."""

    metric: str  # the metric that chose the best epoch
    best_epoch: int  # counted from 1
    val: dict[str, float] | None  # validation loss and metrics of the best epoch, or None
    test: dict[str, float] | None  # test loss and metrics of its weights; None without test
    seconds: float  # wall time of all epochs
    phases: dict[str, float]  # seconds per phase, the mean over ranks
    ranks: int  # how many ranks trained
    phase_ranges: dict[str, list[float]]  # [least, most] seconds of a rank by phase
    historical: dict[str, Any] | None = None  # `history_figures`, or None


# The log of a run #################################################################################


#: The module that each kind needs, and the command that installs it.
_NEEDS = {
    LogKind.TENSORBOARD: ("tensorboard", "pip install tensorboard"),
    LogKind.MLFLOW: ("mlflow", "pip install mlflow"),
    LogKind.WANDB: ("wandb", "pip install wandb"),
}


#: Two functions: one takes figures by name, and a step; one ends the log.
_Sink: TypeAlias = tuple[Callable[[Mapping[str, float], int], None], Callable[[], None]]


class RunLog:
    """Sends the figures of a run to TensorBoard, MLflow or Weights & Biases. Scripts may use it
    too.

    >>> with RunLog("tensorboard", "runs/mine") as log:
    ...     log.write({"loss": 0.3}, step=1)

    ``kind``: "tensorboard", "mlflow" or "wandb"; None writes nothing. ``folder``: the run folder.
    TensorBoard's files lie in its folder ``tensorboard``. MLflow and Weights & Biases write where
    their own variables say (``MLFLOW_TRACKING_URI``, ``WANDB_MODE``, ...); ``log.json`` in the run
    folder keeps their run id. ``config``: the configuration, which is logged too. ``resumed``:
    steps kept of a continued run, which goes on under the same id; 0 for a new run. Raises
    `TrainError` if the package is not installed or does not start.
    """

    def __init__(
        self,
        kind: LogKind | str | None,
        folder: str | Path,
        config: Mapping[str, Any] | None = None,
        resumed: int = 0,
    ) -> None:
        self._sink: _Sink | None = None
        if kind is None:
            return
        kind = LogKind(kind)
        check_log(kind)
        try:
            self._sink = _SINKS[kind](Path(folder), config or {}, resumed)
        except Exception as error:  # of whatever kind the program has
            raise TrainError(f"--log {kind.value}: it did not start: {error}") from error

    def write(self, figures: Mapping[str, float], step: int) -> None:
        """Writes figures by their names, such as "train/loss". ``step``: counted from 1. An error
        of the program, as without its server, becomes a `UserWarning`, and ends the log."""
        if self._sink is not None:
            try:
                self._sink[0](figures, step)
            except Exception as error:  # of whatever kind the program has
                self._sink = None
                warnings.warn(f"the log is lost from step {step} on: {error}", UserWarning, stacklevel=2)

    def write_epoch(self, record: EpochRecord) -> None:
        """Writes the figures of an epoch, as "train/loss" and "seconds/forward"."""
        parts = {
            "train": record.train,
            "val": record.val or {},
            "seconds": record.phases,
            "disk": record.disk,
        }
        figures = {f"{part}/{name}": value for part, of in parts.items() for name, value in of.items()}
        self.write({**figures, "seconds/epoch": record.seconds}, record.epoch)

    def close(self) -> None:
        """Ends the log; later figures are ignored. An error of the program is a `UserWarning`."""
        sink, self._sink = self._sink, None
        try:
            if sink is not None:
                sink[1]()
        except Exception as error:  # as of `write`: it must not cost the result of a run
            warnings.warn(f"the log did not end well: {error}", UserWarning, stacklevel=2)

    def __enter__(self) -> RunLog:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def check_log(kind: LogKind | None) -> None:
    """Raises `TrainError` if the package that a log needs is not installed."""
    if kind is None:
        return
    module, remedy = _NEEDS[kind]
    if importlib.util.find_spec(module) is None:
        raise TrainError(f"--log {kind.value} needs the package {module}, which is not installed; {remedy}")


def _tensorboard(folder: Path, config: Mapping[str, Any], resumed: int) -> _Sink:
    from torch.utils.tensorboard import SummaryWriter

    writer = SummaryWriter(str(folder / "tensorboard"), purge_step=resumed + 1 if resumed else None)
    if config and not resumed:
        writer.add_text("config", f"```json\n{json.dumps(config, indent=2)}\n```")

    def write(figures: Mapping[str, float], step: int) -> None:
        for name, value in figures.items():
            writer.add_scalar(name, value, step)
        writer.flush()

    return write, writer.close


def _mlflow(folder: Path, config: Mapping[str, Any], resumed: int) -> _Sink:
    import mlflow

    known = _read_number(folder, "mlflow") if resumed else None
    run = mlflow.start_run(run_id=known, run_name=None if known else folder.name)
    if known is None:
        mlflow.log_params(dict(_flat(config)))
        _keep_number(folder, "mlflow", run.info.run_id)
    return lambda figures, step: mlflow.log_metrics(dict(figures), step=step), mlflow.end_run


def _wandb(folder: Path, config: Mapping[str, Any], resumed: int) -> _Sink:
    import wandb

    known = _read_number(folder, "wandb") if resumed else None
    run = wandb.init(
        id=known, resume="must" if known else None, name=folder.name, dir=str(folder), config=dict(config)
    )
    if known is None:
        _keep_number(folder, "wandb", run.id)
    return lambda figures, step: run.log(dict(figures), step=step), run.finish


_SINKS: Mapping[LogKind, Callable[[Path, Mapping[str, Any], int], _Sink]] = {
    LogKind.TENSORBOARD: _tensorboard,
    LogKind.MLFLOW: _mlflow,
    LogKind.WANDB: _wandb,
}


def _flat(config: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for name, value in config.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", value


def _read_number(folder: Path, kind: str) -> str | None:
    try:
        number = json.loads((folder / "log.json").read_text(encoding="utf-8"))[kind]
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return number if isinstance(number, str) else None


def _keep_number(folder: Path, kind: str, number: str) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    write_json(folder / "log.json", {kind: number})
