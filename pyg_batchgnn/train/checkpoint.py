"""The state of a run: progress, seconds, and a checkpoint from which it goes on exactly."""

from __future__ import annotations

import json
import re
import time
import zlib
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from copy import deepcopy
from dataclasses import asdict, dataclass, field, replace
from enum import Enum
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import torch
from safetensors import SafetensorError
from safetensors.torch import load, save
from torch import Tensor, nn
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler

from pyg_batchgnn.data import fitted_encoders
from pyg_batchgnn.history import HistoricalCaches, HistoricalStats, LayerCounts, hit_rates
from pyg_batchgnn.loader import MacrobatchNeighborLoader
from pyg_batchgnn.train.config.choices import ScheduleKind
from pyg_batchgnn.train.config.train_config import TrainConfig, config_from_dict, config_to_dict
from pyg_batchgnn.train.errors import TrainError, as_train_error
from pyg_batchgnn.train.job import TrainingJob
from pyg_batchgnn.train.ranks import Ranks
from pyg_batchgnn.train.run_folder import replacing
from pyg_batchgnn.train.tasks import is_finite


class Phase(str, Enum):
    """The phases of a step, in their order, each with a label for people. The loader measures the
    first three. With prefetching they run beside training."""

    label: str

    def __new__(cls, value: str, label: str) -> Phase:
        one = str.__new__(cls, value)
        one._value_, one.label = value, label
        return one

    SAMPLE = "sample", "sampling"
    FETCH = "fetch", "fetching features"
    EXPORT = "export", "exporting minibatches"
    WAIT = "wait", "waiting for the loader"
    FORWARD = "forward", "forward"
    BACKWARD = "backward", "backward"
    EXCHANGE = "exchange", "summing over ranks"
    OPTIMISER = "optimiser", "optimiser"
    EVALUATION = "evaluation", "evaluation"
    CHECKPOINT = "checkpoint", "checkpoints"


class PhaseClock(dict[Phase, float]):
    """Wall seconds by phase, added up. ``seconds``: what to begin with, by phase name."""

    def __init__(self, seconds: Mapping[str, float] | None = None) -> None:
        super().__init__(dict.fromkeys(Phase, 0.0))
        self.update({Phase[name.upper()]: float(value) for name, value in (seconds or {}).items()})

    @contextmanager
    def measure(self, phase: Phase) -> Iterator[None]:
        begin = time.perf_counter()
        try:
            yield
        finally:
            self[phase] += time.perf_counter() - begin

    def work(self) -> float:
        return sum(self[phase] for phase in (Phase.FORWARD, Phase.BACKWARD, Phase.OPTIMISER))

    def to_dict(self) -> dict[str, float]:
        return {phase.value: seconds for phase, seconds in self.items()}


class StepFigures(NamedTuple):
    """One rank's figures of a step: sums over its minibatch."""

    minibatches: float  # 0 if it had no seeds, else 1
    seeds: float  # the number of seeds
    weight: float  # the sum of the seeds' weights in the loss
    loss: float  # the sum of the weighted losses
    score: float  # numerator of the metric
    score_of: float  # denominator of the metric
    nodes: float  # sampled nodes
    edges: float  # sampled edges
    seconds: float  # seconds of forward, backward and optimiser


@dataclass
class RunProgress:
    """How far a run is. Sums are over the current epoch's steps so far, and over all ranks."""

    epoch: int = 0  # finished epochs, evaluation included
    step: int = 0  # finished steps of the current epoch. A step has one minibatch per rank
    minibatches: int = 0  # minibatches with seeds
    weight: float = 0.0  # sum of the seeds' weights; their number without class weights
    loss: float = 0.0  # sum of the seeds' weighted losses
    score: float = 0.0  # numerator of the metric on training minibatches
    score_of: float = 0.0  # denominator of that metric
    seeds: int = 0  # the number of seeds
    nodes: int = 0  # sampled nodes
    edges: int = 0  # sampled edges
    seconds: float = 0.0  # seconds of forward, backward and optimiser
    most_edges: int = 0  # sum over steps of the most edges that a rank had
    most_seconds: float = 0.0  # sum over steps of the most seconds that a rank took
    epoch_seconds: float = 0.0  # wall time of the current epoch
    elapsed_seconds: float = 0.0  # wall time of the finished epochs
    best_epoch: int = 0  # the epoch with the best validation, from 1; 0 before the first
    best: dict[str, float] | None = None  # loss and metrics of the best validation, or None
    validations_since_best: int = 0  # validations after the best one, none of which was better

    @property
    def mean_loss(self) -> float:
        return self.loss / self.weight

    @property
    def train_score(self) -> float:
        return self.score / self.score_of if self.score_of else 0.0

    def add(self, figures: Tensor) -> None:
        """Adds a step. ``figures``: [R, 9] float64, the `StepFigures` of each rank."""
        sums, most = (StepFigures(*row.tolist()) for row in (figures.sum(dim=0), figures.amax(dim=0)))
        self.step += 1
        for name, value in sums._asdict().items():
            before = getattr(self, name)
            setattr(self, name, before + type(before)(value))
        self.most_edges += int(most.edges)
        self.most_seconds += most.seconds

    def imbalance(self, ranks: int) -> dict[str, float]:
        """Returns, for "edges" and "seconds", the most of a rank in each step over the mean of all
        ``ranks``: 1.0 is even. Empty with one rank."""
        if ranks == 1:
            return {}
        shares = {"edges": (self.most_edges, self.edges), "seconds": (self.most_seconds, self.seconds)}
        return {name: ranks * most / total if total else 1.0 for name, (most, total) in shares.items()}


def spread_over_ranks(clock: PhaseClock, ranks: Ranks) -> tuple[dict[str, float], dict[str, list[float]]]:
    """Returns seconds by phase, the mean over ranks, and [least, most] of the ranks by phase, which
    is empty with one rank; collective."""
    seconds = clock.to_dict()
    table = ranks.table(list(seconds.values()))
    mean = dict(zip(seconds, table.mean(dim=0).tolist(), strict=True))
    ends = torch.stack([table.amin(dim=0), table.amax(dim=0)], dim=1).tolist()
    return mean, {} if ranks.is_alone else dict(zip(seconds, ends, strict=True))


#: Figures of reading features and edges from files: names in metrics.jsonl, and the attributes of
#: the loader's statistics that they come from.
DISK_FIGURES = {
    "bytes": "disk_bytes",
    "useful_bytes": "disk_useful",
    "rows": "disk_rows",
    "needed_rows": "disk_hits",
    "operations": "disk_operations",
    "reading_seconds": "disk_seconds",
    "ahead_seconds": "ahead_seconds",
    "edges": "topology_edges",
    "edge_bytes": "topology_bytes",
    "edge_operations": "topology_operations",
    "edge_reading_seconds": "topology_seconds",
}
T = TypeVar("T")


class LoaderAccount:
    """The seconds that training spends in its loader, and what the loader reads from files, by the
    loader's own statistics. If it prefetches, training only waits for it."""

    def __init__(self, loader: MacrobatchNeighborLoader, prefetches: bool) -> None:
        self._loader, self._prefetches = loader, prefetches
        self._waited = 0.0
        self._charged, self._read = self._seconds(), self._figures()

    def timed(self, batches: Iterator[T]) -> Iterator[T]:
        begin = time.perf_counter()
        for batch in batches:
            self._waited += time.perf_counter() - begin
            yield batch
            begin = time.perf_counter()
        self._waited += time.perf_counter() - begin

    def charge(self, clock: PhaseClock) -> None:
        now, inside = self._seconds(), 0.0
        for phase, seconds in now.items():
            clock[phase] += seconds - self._charged[phase]
            inside += seconds - self._charged[phase]
        clock[Phase.WAIT] += self._waited if self._prefetches else max(0.0, self._waited - inside)
        self._charged, self._waited = now, 0.0

    def read_since_last(self, ranks: Ranks) -> dict[str, float]:
        """Returns what all ranks read since the last call, by the names of `DISK_FIGURES`; empty if
        nothing was read. Collective."""
        before, self._read = self._read, self._figures()
        own = [now - then for now, then in zip(self._read, before, strict=True)]
        found = dict(zip(DISK_FIGURES, ranks.table(own).sum(dim=0).tolist(), strict=True))
        return found if found["bytes"] or found["edge_bytes"] else {}

    def _seconds(self) -> dict[Phase, float]:
        total = self._loader.stats().total
        times = total.sample_seconds, total.fetch_seconds, total.export_seconds
        return dict(zip((Phase.SAMPLE, Phase.FETCH, Phase.EXPORT), times, strict=True))

    def _figures(self) -> list[float]:
        total = self._loader.stats().total
        return [getattr(total, name) for name in DISK_FIGURES.values()]


# A safetensors file of nested values: tensors are tensors, everything else is JSON in the header.
# The file is replaced by one rename: a reader sees the old one or the new one. It holds no pickle.
_TENSOR = "__tensor__"
_VALUES = "values"  # names the checksum of all that is no tensor, which older releases did not write


def save_values(path: Path, kind: str, version: int, values: dict[str, Any]) -> None:
    """Writes nested dicts and lists of tensors and JSON values as a safetensors file. It replaces
    `path`. ``kind``, ``version``: of the format; `parse_values` checks them."""
    tensors: dict[str, Tensor] = {}
    plain = json.dumps(_take_tensors(values, "", tensors))
    checksums = {_VALUES: zlib.crc32(plain.encode())}
    checksums |= {name: _checksum(tensor) for name, tensor in tensors.items()}
    header = {"kind": kind, "version": str(version), "values": plain, "checksums": json.dumps(checksums)}
    with replacing(path) as temporary:
        temporary.write_bytes(save(tensors, metadata=header))


def parse_values(path: Path, data: bytes | None, kind: str, version: int) -> dict[str, Any]:
    """Returns what `save_values` wrote. ``data``: the bytes of the file; None reads `path`. Raises
    `TrainError` if the file is missing, damaged, or of another kind or version."""
    if data is None and not path.is_file():
        raise TrainError(f"{path}: no such checkpoint; the run may have stopped before its first one")
    data = path.read_bytes() if data is None else data
    try:
        tensors = load(data)
        length = int.from_bytes(data[:8], "little")
        header = json.loads(data[8 : 8 + length]).get("__metadata__", {})
    except (SafetensorError, ValueError) as error:
        raise TrainError(f"{path}: truncated, or not a checkpoint ({error})") from None
    if header.get("kind") != kind:
        raise TrainError(f"{path}: a safetensors file, but not a {kind} of this program")
    if header.get("version") != str(version):
        raise TrainError(f"{path}: has format {header.get('version')}, this program reads {version}")
    try:
        checksums, text = json.loads(header["checksums"]), header["values"].encode()
        if checksums.pop(_VALUES, known := zlib.crc32(text)) != known:
            raise ValueError("the checksum of its values does not match")
        values: dict[str, Any] = _put_tensors(json.loads(text), tensors)
    except (LookupError, TypeError, ValueError, AttributeError, RecursionError) as error:
        raise TrainError(f"{path}: its header is damaged ({error!r})") from None
    damaged = [name for name, tensor in tensors.items() if checksums.get(name) != _checksum(tensor)]
    if damaged or checksums.keys() != tensors.keys():
        raise TrainError(
            f"{path}: damaged, the checksum of {', '.join(damaged) or 'a tensor'} does not match"
        )
    return values


def _checksum(tensor: Tensor) -> int:
    return zlib.crc32(tensor.reshape(-1).view(torch.uint8).numpy().data)


def _take_tensors(value: Any, name: str, tensors: dict[str, Tensor]) -> Any:
    if isinstance(value, Tensor):
        tensors[name] = value.detach().clone().contiguous()
        return {_TENSOR: name}
    if isinstance(value, dict):
        return {str(key): _take_tensors(item, f"{name}/{key}", tensors) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_take_tensors(item, f"{name}/{place}", tensors) for place, item in enumerate(value)]
    return value


def _put_tensors(value: Any, tensors: dict[str, Tensor]) -> Any:
    if isinstance(value, dict):
        if value.keys() == {_TENSOR}:
            return tensors[value[_TENSOR]]
        return {key: _put_tensors(item, tensors) for key, item in value.items()}
    if isinstance(value, list):
        return [_put_tensors(item, tensors) for item in value]
    return value


_MISFITS = (LookupError, TypeError, ValueError, AttributeError, RuntimeError)
_KIND = "pyg_batchgnn checkpoint"
_VERSION = 3  # rises when this release cannot read older files; a new field with a default does not


@dataclass(frozen=True)
class RankCheckpoint:
    loader: dict[str, Any]  # `state_dict` of the rank's training loader
    running: Tensor  # [columns], the rank's row of `BatchNormStatistics.table`
    epoch_phases: dict[str, float]  # seconds per phase in the current epoch
    phases: dict[str, float]  # seconds per phase in the finished epochs
    #: `state_dict` of historical embeddings
    history: dict[str, Tensor] = field(default_factory=dict)


@dataclass(frozen=True)
class Checkpoint:
    config: TrainConfig
    dataset: dict[str, Any]  # the fingerprint of the data set
    progress: RunProgress  # epochs, steps and sums of the run so far
    model: dict[str, Tensor]  # `state_dict` of the model
    best: dict[str, Tensor]  # `state_dict` of the model at the best validation epoch
    optimiser: dict[str, Any]  # `state_dict` of the optimiser
    ranks: list[RankCheckpoint]  # one state per rank
    rows: str = ""  # the name of the learned rows in the run folder; "" in a run without them
    best_rows: str = ""  # the name of the learned rows of the best validation epoch
    schedule: dict[str, Any] = field(default_factory=dict)  # `state_dict` of the LR schedule, or {}

    def __post_init__(self) -> None:
        """Raises an error for values that no run can have, as a damaged file has them."""
        progress = {**vars(self.progress), **(self.progress.best or {}), "best": 0}
        counts = [name for name, value in vars(RunProgress()).items() if isinstance(value, int)]
        bad = [name for name in counts if not isinstance(progress[name], int) or progress[name] < 0]
        bad += [name for name, value in progress.items() if not is_finite(value)]
        bad += [name for name in ("rows", "best_rows") if not re.fullmatch(r"[\w-]*", vars(self)[name])]
        bad += [name for name in ("dataset", "model", "best") if not isinstance(vars(self)[name], dict)]
        for one in self.ranks:
            PhaseClock(one.epoch_phases), PhaseClock(one.phases), one.running.numel()
        if bad or not self.ranks:
            raise ValueError(f"{', '.join(bad) or 'ranks'} cannot be that of a run")

    def save(self, path: Path) -> None:
        ranks = [asdict(state) for state in self.ranks]
        plain = {"config": config_to_dict(self.config), "progress": asdict(self.progress), "ranks": ranks}
        save_values(path, _KIND, _VERSION, {**vars(self), **plain})

    @classmethod
    def load(cls, path: Path, data: bytes | None = None) -> Checkpoint:
        """Reads a checkpoint. ``data``: the bytes of the file; None reads the file at `path`.
        Raises `TrainError` if the file is missing, damaged or no checkpoint."""
        values = parse_values(path, data, _KIND, _VERSION)
        try:
            config, progress = config_from_dict(values["config"]), RunProgress(**values["progress"])
            ranks = [RankCheckpoint(**state) for state in values["ranks"]]
            return cls(**{**values, "config": config, "progress": progress, "ranks": ranks})
        except TrainError as error:
            raise TrainError(f"{path}: {error}") from None
        except (LookupError, TypeError, ValueError, AttributeError, ArithmeticError) as error:
            raise TrainError(f"{path}: its contents are not those of a checkpoint ({error!r})") from None

    def state_of(self, rank: int, size: int) -> RankCheckpoint:
        if size == len(self.ranks):
            return self.ranks[rank]
        if self.config.ranks.schedule is not ScheduleKind.GLOBAL:
            schedule = self.config.ranks.schedule.value
            raise TrainError(
                f"the run had {len(self.ranks)} rank(s), now there are {size}: with "
                f"ranks.schedule={schedule} each rank trains on nodes of its own, so start "
                f"{len(self.ranks)} rank(s)"
            )
        return replace(self.ranks[0], running=self.ranks[0].running[:0])

    def check_dataset(self, path: Path, found: dict[str, int], name: str = "") -> None:
        """Raises `TrainError` unless ``found`` is the fingerprint of the run's data set. With
        ``name``, new data to predict: tables that were encoded like the run's pass too, unless the
        model has learned rows and the fingerprints differ."""
        trained = self.config.run.dataset
        encoders = fitted_encoders(name) if name and trained and name != trained else None
        if encoders is not None and encoders == fitted_encoders(str(trained)):
            if self.best_rows and found != self.dataset:
                raise TrainError(
                    f"{path}: the model has learned rows of the nodes of {trained}, and {name} has other "
                    f"nodes; give every type features, and train anew"
                )
            return
        for name, was in {**found, **self.dataset}.items():  # releases before had fewer
            if (value := found.get(name)) != was:
                raise TrainError(f"{path}: is of another data set: its {name} is {was}, here it is {value}")

    def restore_model(self, path: Path, model: nn.Module, weights: dict[str, Tensor]) -> None:
        with as_train_error(*_MISFITS, where=f"{path}: does not fit the model: "):
            model.load_state_dict(weights)

    def restore_optimiser(
        self, path: Path, optimiser: Optimizer, schedule: LRScheduler | None = None
    ) -> None:
        with as_train_error(Exception, where=f"{path}: does not fit the optimiser: "):  # of any kind
            state = {int(index): values for index, values in self.optimiser["state"].items()}
            groups = self.optimiser["param_groups"]
            for group in groups:
                group |= {name: tuple(one) for name, one in group.items() if isinstance(one, list)}
            optimiser.load_state_dict({"state": state, "param_groups": groups})
            _try_step(optimiser)
            if schedule is not None:  # the milestones of MultiStepLR are those of its options
                schedule.load_state_dict({k: v for k, v in self.schedule.items() if not isinstance(v, dict)})


def _try_step(optimiser: Optimizer) -> None:
    """Raises an error if the loaded state does not fit: steps a copy, with gradients of 0."""
    trial = deepcopy(optimiser)
    for group in trial.param_groups:
        group["fused"] = False  # fused kernels do not look at shapes
        for parameter in group["params"]:
            parameter.grad = torch.zeros_like(parameter)
    trial.step()


def history_figures(history: HistoricalCaches | None, ranks: Ranks) -> dict[str, Any] | None:
    """Returns hit rates, rows, bytes and seconds of the historical embeddings, over all ranks and
    since the process began, for the report; None without them. Collective."""
    if history is None:
        return None
    every = [
        HistoricalStats(**{**values, "layers": [LayerCounts(**one) for one in values["layers"]]})
        for values in ranks.values(asdict(history.stats()))
    ]
    layers = [[one.layer(at) for one in every] for at in range(len(every[0].layers))]
    pushes = [layer for one in every for layer in one.layers]

    def total(name: str, of: Iterable[object] = every) -> Any:
        return sum(getattr(one, name) for one in of)

    return {
        "hit_rates": hit_rates(every),
        "edges_left_out": [total("edges_left_out", of) / max(1, total("edges", of)) for of in layers],
        "features_fetched": total("features_fetched"),
        "feature_bytes": total("feature_bytes"),
        "rows_pushed": total("pushed", pushes),
        "bytes_pushed": total("pushed_bytes", pushes),
        "exchange_seconds": total("exchange_seconds") / len(every),
        "waited_seconds": total("waited_seconds") / len(every),
    }


@dataclass(eq=False)
class TrainerState:
    """The state of a run that the trainer keeps, beside that in the model, optimiser and loader."""

    progress: RunProgress = field(default_factory=RunProgress)  # epochs, steps and sums so far
    best: dict[str, Tensor] = field(default_factory=dict)  # `state_dict` of the best epoch
    clock: PhaseClock = field(default_factory=PhaseClock)  # seconds per phase in the current epoch
    earlier: PhaseClock = field(default_factory=PhaseClock)  # the same, finished epochs
    loader: dict[str, Any] | None = None  # a restored `state_dict`, until the loader takes it
    best_rows: str = ""  # the name of the learned rows of the best epoch; "" without them

    @classmethod
    def restored(cls, checkpoint: Checkpoint, path: Path, job: TrainingJob, ranks: Ranks) -> TrainerState:
        """Loads a checkpoint into the model, optimiser, statistics and historical embeddings of a
        job. Returns the rest of the state. Raises `TrainError` for values that do not fit."""
        own = checkpoint.state_of(ranks.rank, ranks.size)
        best, metric = checkpoint.progress.best, job.task.metric.value
        if best is not None and metric not in best:
            raise TrainError(f"{path}: its best epoch has no {metric}")
        if checkpoint.progress.epoch:  # then there is a best one, which is loaded at the end
            checkpoint.restore_model(path, job.network.model, checkpoint.best)
        checkpoint.restore_model(path, job.network.model, checkpoint.model)
        checkpoint.restore_optimiser(path, job.optimiser, job.schedule)
        job.change_rate(checkpoint.config.optimiser.learning_rate)
        with as_train_error(*_MISFITS, where=f"{path}: does not fit the running statistics: "):
            job.running.restore(own.running)
        if job.graph.history is not None:
            with as_train_error(*_MISFITS, where=f"{path}: does not fit the historical embeddings: "):
                job.graph.history.load_state_dict(own.history)
        clock, earlier = PhaseClock(own.epoch_phases), PhaseClock(own.phases)
        progress = replace(checkpoint.progress)
        return cls(progress, checkpoint.best, clock, earlier, own.loader, checkpoint.best_rows)

    @property
    def rows(self) -> str:
        """The name under which the learned rows of the current epoch and step are saved."""
        epoch, step = self.progress.epoch, self.progress.step
        return f"epoch-{epoch}-step-{step}" if step else f"epoch-{epoch}"

    def checkpoint(self, job: TrainingJob, dataset: dict[str, int], ranks: Ranks) -> Checkpoint:
        running = job.running.table()
        mine = [job.train_loader.state_dict(), self.clock.to_dict(), self.earlier.to_dict()]
        histories: list[dict[str, Tensor]] = [{} for _ in range(ranks.size)]
        if job.graph.history is not None:  # the first rank writes those of all
            every = ranks.bytes_to_first(save(job.graph.history.state_dict()))
            histories = [load(data) for data in every] or histories
        states = zip(ranks.values(mine), running, histories, strict=True)
        return Checkpoint(
            config=job.config,
            dataset=dataset,
            progress=replace(self.progress),
            model=copied({**job.network.model.state_dict(), **job.running.averaged(running)}),
            best=self.best,
            optimiser=job.optimiser.state_dict(),
            ranks=[
                RankCheckpoint(loader, row, clock, earlier, history)
                for (loader, clock, earlier), row, history in states
            ],
            rows="" if job.rows is None else self.rows,
            best_rows=self.best_rows,
            schedule={} if job.schedule is None else job.schedule.state_dict(),
        )

    def begin_epoch(self, job: TrainingJob, path: Path) -> int:
        loader, place, self.loader = job.train_loader, self.loader, None
        if place is None or not self.progress.step:
            loader.set_epoch(self.progress.epoch)
            return loader.steps_left
        with as_train_error(*_MISFITS, where=f"{path}: does not fit the loader: "):
            loader.load_state_dict(place)
        is_over = loader.upcoming_epoch > self.progress.epoch
        return 0 if is_over else loader.steps_left

    def end_epoch(self) -> None:
        now = self.progress
        now.epoch += 1
        now.elapsed_seconds += now.epoch_seconds
        now.step = now.minibatches = now.seeds = now.nodes = now.edges = now.most_edges = 0
        now.weight = now.loss = now.score = now.score_of = 0.0
        now.seconds = now.most_seconds = now.epoch_seconds = 0.0
        for phase, seconds in self.clock.items():
            self.earlier[phase] += seconds
        self.clock = PhaseClock()


def copied(state: dict[str, Tensor]) -> dict[str, Tensor]:
    return {name: value.detach().clone() for name, value in state.items()}
