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
