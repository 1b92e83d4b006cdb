"""The records of a run's epochs, one JSON object each in ``metrics.jsonl``."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from pyg_batchgnn.train.errors import TrainError
from pyg_batchgnn.train.measure import PhaseSpread, RunProgress
from pyg_batchgnn.train.run_folder.folder import replacing


@dataclass(frozen=True)
class EpochRecord:
    """The figures of one epoch.

    Attributes:
        epoch: counted from 1.
        train: the loss, the mean over training nodes, and one metric of the training minibatches by
            its name, with dropout, while the weights changed.
        val: loss and metrics of the validation after the epoch; None if there was none.
        seconds: wall time of training and evaluating this epoch.
        elapsed_seconds: wall time of the run up to the end of this epoch, without interruptions.
        minibatches: number of minibatches trained on.
        nodes: number of sampled nodes.
        edges: number of sampled edges.
        phases: seconds per phase, the mean over ranks.
        ranks: the number of ranks that trained.
        phase_ranges: the least and the most seconds of a rank per phase; empty with one rank.
        imbalance: for "edges" and for "seconds" of computing, the rank with most in each step over
            the mean of all ranks; empty with one rank.
    """

    epoch: int
    train: dict[str, float]
    val: dict[str, float] | None
    seconds: float
    elapsed_seconds: float
    minibatches: int
    nodes: int
    edges: int
    phases: dict[str, float]
    ranks: int = 1
    phase_ranges: dict[str, list[float]] = field(default_factory=dict)
    imbalance: dict[str, float] = field(default_factory=dict)


def epoch_record(
    progress: RunProgress, train_metric: str, val: dict[str, float] | None, spread: PhaseSpread
) -> EpochRecord:
    """Returns the record of the epoch that `progress` is at the end of."""
    return EpochRecord(
        epoch=progress.epoch + 1,
        train={"loss": progress.mean_loss, train_metric: progress.train_score},
        val=val,
        seconds=progress.epoch_seconds,
        elapsed_seconds=progress.elapsed_seconds + progress.epoch_seconds,
        minibatches=progress.minibatches,
        nodes=progress.nodes,
        edges=progress.edges,
        phases=spread.mean,
        ranks=spread.ranks,
        phase_ranges=spread.ranges,
        imbalance=progress.imbalance(spread.ranks),
    )


def append_record(path: Path, record: EpochRecord) -> None:
    """Adds one line."""
    with path.open("a", encoding="utf-8") as file:
        file.write(json.dumps(asdict(record)) + "\n")


def read_records(path: Path) -> list[EpochRecord]:
    """Returns all records. A last line that a crash cut off is left out.

    Raises:
        TrainError: another line is not a record.
    """
    if not path.is_file():
        return []
    lines = path.read_text(encoding="utf-8").split("\n")
    records = []
    for number, line in enumerate(lines, start=1):
        if not line:
            continue
        try:
            values: dict[str, Any] = json.loads(line)
            records.append(EpochRecord(**values))
        except (json.JSONDecodeError, TypeError) as error:
            if number == len(lines):  # no newline: the write was interrupted
                break
            raise TrainError(f"{path}: line {number} is not the record of an epoch: {error}") from None
    return records


def keep_epochs(path: Path, epochs: int) -> list[EpochRecord]:
    """Removes the records after `epochs`, which a resumed run repeats. Returns the others."""
    kept = [record for record in read_records(path) if record.epoch <= epochs]
    with replacing(path) as temporary:
        temporary.write_text("".join(json.dumps(asdict(r)) + "\n" for r in kept), encoding="utf-8")
    return kept
