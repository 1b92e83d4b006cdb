"""The folder that a run leaves behind: configuration, records of epochs, result, learned rows."""

from __future__ import annotations

import contextlib
import json
import math
import os
import re
import shutil
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from pyg_batchgnn.data import DatasetError
from pyg_batchgnn.data.files import sync_file, sync_folder, writing
from pyg_batchgnn.embed import Embedding
from pyg_batchgnn.train.errors import TrainError
from pyg_batchgnn.train.ranks import Ranks


class RunFolder:
    """The files of a run folder."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.config = path / "config.json"  # the configuration
        self.metrics = path / "metrics.jsonl"  # the records of epochs: one JSON object per line and epoch
        self.result = path / "result.json"  # the final figures; it exists once the run has finished
        self.checkpoint = path / "checkpoint.safetensors"  # the state of the run, and the best model
        self.rows = path / "embeddings"  # the learned rows of both, in folders that all ranks must see

    @classmethod
    def create(cls, path: Path | None, name: str) -> RunFolder:
        """Makes a folder at `path`; None: at the first free ``runs/<name>-<n>``."""
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
        """Opens a run folder. Raises `TrainError` if it has no configuration."""
        folder = cls(path)
        if not path.is_dir():
            raise TrainError(
                f"{path}: no such run folder; a run prints the path of its folder when it starts"
            )
        if not folder.config.is_file():
            raise TrainError(f"{path}: not a run folder, since it has no {folder.config.name}")
        return folder

    def clear(self) -> None:
        """Empties the folder of a run that was killed before its first checkpoint."""
        leftovers = self._leftovers()
        begun = self.config.is_file() and not self.checkpoint.exists()
        if begun or (leftovers and set(leftovers) == set(self.path.iterdir())):
            self.remove_leftovers()
            shutil.rmtree(self.rows, ignore_errors=True)
            for path in (self.metrics, self.config):
                path.unlink(missing_ok=True)

    def save_rows(self, embedding: Embedding, name: str, ranks: Ranks) -> None:
        """Writes learned rows and optimizer state; collective. Raises `DatasetError` if unable."""

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
    """Yields a temporary path to write. It is flushed to disk and replaces `path` if the block ends
    without an error; otherwise `path` stays as it was."""
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
    """The figures of one epoch."""

    epoch: int  # counted from 1
    #: the loss, the mean over training nodes, and one metric of the training minibatches by its
    #: name, with dropout, while the weights changed
    train: dict[str, float]
    val: dict[str, float] | None  # loss and metrics of the validation after the epoch; None if there was none
    seconds: float  # wall time of training and evaluating this epoch
    elapsed_seconds: float  # wall time of the run up to the end of this epoch, without interruptions
    minibatches: int  # number of minibatches trained on
    nodes: int  # number of sampled nodes
    edges: int  # number of sampled edges
    phases: dict[str, float]  # seconds per phase, the mean over ranks
    ranks: int = 1  # the number of ranks that trained
    #: the least and the most seconds of a rank per phase; empty with one rank
    phase_ranges: dict[str, list[float]] = field(default_factory=dict)
    #: for "edges" and for "seconds" of computing, the rank with most in each step over the mean of
    #: all ranks; empty with one rank
    imbalance: dict[str, float] = field(default_factory=dict)
    #: what training read from files, by the names of `DISK_FIGURES`, the sums over ranks; empty if
    #: features are in memory. Of an epoch that was resumed, what was read since then.
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
            if not all(math.isfinite(one) for one in [*counts, *(v for of in parts for v in of.values())]):
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
    """The figures of a finished run."""

    metric: str  # the name of the metric that chose the best epoch
    best_epoch: int  # the epoch with the best validation, counted from 1
    #: loss and metrics of that epoch's weights on validation nodes, by name; None if there are none
    val: dict[str, float] | None
    test: dict[str, float] | None  # the same on test nodes
    seconds: float  # wall time of all epochs
    phases: dict[str, float]  # seconds per phase, the mean over ranks
    ranks: int  # the number of ranks that trained
    #: the least and the most seconds of a rank per phase; empty with one rank
    phase_ranges: dict[str, list[float]]
    #: the figures of historical embeddings (`history_figures`), or None without them
    historical: dict[str, Any] | None = None
