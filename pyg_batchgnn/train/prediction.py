"""Predictions and embeddings of nodes, in a folder that appears when it is complete."""

from __future__ import annotations

import contextlib
import os
import shutil
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import torch
from torch import Tensor

from pyg_batchgnn.data import SPLITS, DatasetError, group_folder
from pyg_batchgnn.data.files import rename_whole, sync_file, sync_tree, writing
from pyg_batchgnn.train.config.choices import EvaluationKind
from pyg_batchgnn.train.errors import TrainError, as_train_error
from pyg_batchgnn.train.evaluate import ROWS, infer, infer_all, rows_at
from pyg_batchgnn.train.keyed_tables import KEY_FILES, DatasetKeys, write_embeddings, write_nodes
from pyg_batchgnn.train.network import NativeNetwork
from pyg_batchgnn.train.node_tasks import PredictedEdges, PredictedNodes
from pyg_batchgnn.train.ranks import Ranks
from pyg_batchgnn.train.restored import (
    RestoredLinkRun,
    RestoredNodeRun,
    RestoredRun,
    RestoreRequest,
    restore_run,
)
from pyg_batchgnn.train.run_folder import write_json
from pyg_batchgnn.train.run_graph import EmbeddedNodes, latest_time
from pyg_batchgnn.train.tasks import Scoring, count_not_finite
from pyg_batchgnn.types import Group, RowKind


def node_ids(nodes: str, predicted: PredictedNodes, keys: DatasetKeys) -> Tensor:
    """Returns [m] int64, m > 0, the ids to predict. ``nodes``: "all", a split, or a file of ids or
    keys. Raises `TrainError` for another text, an unknown id or no ids."""
    if nodes == "all":
        return torch.arange(predicted.count)
    if nodes not in SPLITS and not Path(nodes).is_file():
        raise TrainError(
            f"--nodes {nodes}: no such file; give a .npy file of ids, a .parquet or .csv file of keys, or "
            f"all, {', '.join(SPLITS)}"
        )
    if nodes in SPLITS:
        ids = predicted.split(nodes)
    elif not isinstance(predicted, PredictedEdges):
        ids = read_nodes(Path(nodes), keys, predicted.node_type)
    else:
        ids = read_integers(Path(nodes), "a one-dimensional array of integers, the edge ids", 1)
        check_range(Path(nodes), ids, "edge", predicted.count)
    if not len(ids):
        raise TrainError(f"--nodes {nodes}: no {predicted.unit} to predict")
    return ids.to(torch.int64)


def read_nodes(path: Path, keys: DatasetKeys, node_type: str) -> Tensor:
    """Returns [n] int64, ids of nodes of a type, from a .npy file of ids or a Parquet or CSV file
    of keys. Raises `TrainError` for ids, `DatasetError` for keys that are no node."""
    if path.suffix in KEY_FILES:
        return torch.from_numpy(keys.read_nodes(path, node_type))
    ids = read_integers(path, "a one-dimensional array of integers, the node ids", 1)
    check_range(path, ids, node_type, keys.dataset.nodes_of(node_type).num_nodes)
    return ids


def read_integers(path: Path, what: str, dimensions: int) -> Tensor:
    """Returns the integers of a .npy file as int64. ``what``: describes them in the `TrainError`
    for a file with another dtype or number of dimensions."""
    try:
        array = np.load(path, allow_pickle=False)
    except (ValueError, OSError, EOFError) as error:
        raise TrainError(f"{path}: not a .npy file with {what}: {error}") from None
    if not isinstance(array, np.ndarray) or array.ndim != dimensions or array.dtype.kind not in "iu":
        raise TrainError(f"{path}: must hold {what}")
    return torch.from_numpy(array.astype(np.int64))


def check_range(path: Path, ids: Tensor, node_type: str, count: int) -> None:
    """Raises `TrainError` for an id outside of 0 to count - 1, with ``node_type`` in its text."""
    outside = (ids < 0) | (ids >= count)
    if bool(outside.any()):
        raise TrainError(f"{path}: {node_type} {int(ids[outside][0])} is not in 0..{count - 1}")


class PredictionArrays:
    """.npy files with equally many rows, which all ranks fill. The first rank makes them.

    ``folder``: receives NAME.npy; all ranks see it. ``given``: [num_rows, ...] by name, arrays
    known from the start, the same on every rank. `flush` refuses outputs that are not finite.
    """

    def __init__(
        self, folder: Path, num_rows: int, ranks: Ranks, given: Mapping[str, Tensor] | None = None
    ) -> None:
        self.num_rows = num_rows
        self._folder, self._ranks, self._given = folder, ranks, given or {}
        self._names: list[str] = []
        self._not_finite = 0

    def add(self, positions: Tensor, rows: Mapping[str, Tensor], outputs: Tensor) -> None:
        """Writes some rows; the first call is collective. ``positions``: [S] int64, the rows to
        write. ``rows``: [S, ...] by name, the same names in every call. ``outputs``: [S, ...], the
        model's outputs behind these rows, which must be finite."""
        self._not_finite += count_not_finite(outputs)
        if not self._names:
            self._names = [*self._given, *rows]
            self._ranks.from_first(lambda: self._make(rows))
        for name, values in rows.items():
            self._write(name, positions.numpy(), values)

    def described(self) -> dict[str, dict[str, object]]:
        arrays = {name: np.load(self._path(name), mmap_mode="r") for name in self._names}
        return {name: {"shape": list(one.shape), "dtype": str(one.dtype)} for name, one in arrays.items()}

    def flush(self) -> None:
        """Waits until all is on disk; collective. Raises `TrainError` for NaN or infinities."""
        for name in self._names:
            sync_file(self._path(name))
        if bad := int(self._ranks.table([self._not_finite]).sum()):
            with self._ranks.one_error():
                raise TrainError(
                    f"outputs of {bad:,} of {self.num_rows:,} rows are not finite, so nothing is written; "
                    f"look for NaN and huge values in the features, or train with a lower --lr"
                )

    def _make(self, rows: Mapping[str, Tensor]) -> None:
        """Makes the files with all their disk space: a full disk later would kill the process."""
        for name, values in {**self._given, **rows}.items():
            shape, path = (self.num_rows, *values.shape[1:]), self._path(name)
            with writing(path):
                np.lib.format.open_memmap(path, "w+", values.numpy().dtype, shape)
                with path.open("r+b") as file:
                    os.posix_fallocate(file.fileno(), 0, path.stat().st_size)
        for name, values in self._given.items():
            for begin in range(0, self.num_rows, ROWS):
                some = values[begin : begin + ROWS]
                self._write(name, np.arange(begin, begin + len(some)), some)

    def _write(self, name: str, positions: np.ndarray, rows: Tensor) -> None:
        """Writes rows through a new mapping, so that no pages remain in this process."""
        if len(positions):
            np.lib.format.open_memmap(self._path(name), "r+")[positions] = rows.numpy()

    def _path(self, name: str) -> Path:
        return self._folder / f"{name}.npy"


@contextlib.contextmanager
def appearing_whole(out: Path, ranks: Ranks) -> Iterator[Path]:
    """Yields a temporary folder, which becomes ``out`` if the block ends without an error;
    collective. Raises `TrainError` if ``out`` exists, or if not all ranks see the folder."""
    temporary = out.with_name(f".{out.name}.partial")

    def begin() -> None:
        refuse_existing(out)
        shutil.rmtree(temporary, ignore_errors=True)  # of a process that was killed
        with writing(out):
            temporary.mkdir(parents=True)

    def end() -> None:
        sync_tree(temporary)
        rename_whole(temporary, out)

    try:
        ranks.from_first(begin)
        if not temporary.is_dir():
            raise TrainError(
                f"{temporary}: the folder that the first rank made is not here; give --out a folder that "
                f"all ranks see"
            )
        yield temporary
        ranks.from_first(end)
    finally:
        if ranks.is_first:
            shutil.rmtree(temporary, ignore_errors=True)


def refuse_existing(out: Path) -> None:
    if out.exists():
        raise TrainError(f"{out} exists; give a new folder with --out")


@dataclass(frozen=True)
class PredictRequest:
    """A request for predictions of nodes or edges."""

    restore: RestoreRequest  # the run, and how it is restored
    out: Path  # a new folder, which all ranks see
    #: "all", "train", "val", "test", or a file: .npy with node or edge ids, or Parquet or CSV with
    #: keys of nodes
    nodes: str = "all"
    embeddings: bool = False  # True also writes the last hidden layer


@dataclass(frozen=True)
class PredictSummary:
    """What `predict_nodes` wrote."""

    nodes: int  # predicted nodes or edges
    unit: str  # "nodes" or "edges"
    epoch: int  # the epoch of the weights, counted from 1
    scores: dict[str, float] | None  # loss and metrics over the labelled ones; None without labels


def restored_for(
    restore: RestoreRequest, out: Path, ranks: Ranks, *, for_all_nodes: bool = False, **given: Any
) -> RestoredNodeRun | RestoredLinkRun:
    """Restores the run of a request, after a check that all ranks have the same arguments and that
    ``out`` is new; collective. ``given``: the other arguments of the request."""
    ranks.agree({"command": f"predict {restore.run}", "out": str(out), **given})
    ranks.from_first(lambda: refuse_existing(out))
    return restore_run(restore, ranks, for_all_nodes=for_all_nodes)


def write_meta(
    folder: Path, run: RestoredRun, request: RestoreRequest, arrays: Sequence[PredictionArrays], **about: Any
) -> None:
    known = {
        "format": 1,
        "run": str(request.run.resolve()),
        "epoch": run.epoch,
        "dataset": {"name": run.dataset.name, **run.checkpoint.dataset},
    }
    described = {file: one for each in arrays for file, one in each.described().items()}
    write_json(folder / "META.json", {**known, **about, "arrays": described})


#: Outputs of some nodes of a list: [S] int64 positions in the list, [S, columns] float32 logits,
#: [S, hidden] the last hidden layer or None, and [S, ...] labels "y".
_Outputs: TypeAlias = tuple[Tensor, Tensor, Tensor | None, Tensor]


def predict_nodes(request: PredictRequest, ranks: Ranks) -> PredictSummary:
    """Writes predictions of nodes or edges to a new folder; collective. The folder appears when it
    is complete.

    >>> restore = RestoreRequest(Path("runs/first"))
    >>> with restore.join() as ranks:
    ...     predict_nodes(PredictRequest(restore, Path("predictions"), "test"), ranks).nodes
    108

    Files: node_ids.npy or edge_ids.npy [n], predictions.npy, and as the task and the request have
    them, probabilities.npy and embeddings.npy; META.json; predictions.parquet if the data set has
    keys. ``ranks``: all ranks of the job, each with the same request.

    Raises:
        TrainError: the run folder, the request or the data set cannot be used.
        DatasetError: the data set cannot be read.
        CommError: another rank failed, or was given other arguments.
    """
    given: dict[str, Any] = {"nodes": request.nodes, "embeddings": request.embeddings}
    run = restored_for(request.restore, request.out, ranks, **given)
    with ranks.any_error():
        if not isinstance(run, RestoredNodeRun):
            raise TrainError(
                f"{request.restore.run}: this run predicts links; give --pairs, or --top and --nodes FILE.npy"
            )
        with as_train_error(DatasetError):
            keys = DatasetKeys.of(run.dataset, run.config)
            ids = node_ids(request.nodes, run.predicted, keys)
    ranks.agree({f"nodes of {request.nodes}": zlib.crc32(ids.numpy().data)})
    score = Scoring(run.task)
    with appearing_whole(request.out, ranks) as temporary:
        arrays = PredictionArrays(temporary, len(ids), ranks, {f"{run.predicted.unit[:-1]}_ids": ids})
        with_hidden = request.embeddings
        outputs = _exact(run, ids, with_hidden) if run.is_exact else _sampled(run, ids, ranks)
        for positions, logits, hidden, labels in outputs:
            embeddings = {"embeddings": hidden.float()} if with_hidden and hidden is not None else {}
            arrays.add(positions, {**run.task.predictions(logits), **embeddings}, logits)
            score.add(logits, labels)
        arrays.flush()
        result = score.result(ranks)
        scores = None if result is None else result.to_dict()

        def write() -> None:
            if keys.folder is not None:
                write_nodes(temporary, keys, run.predicted, run.task, with_hidden)
            write_meta(
                *(temporary, run, request.restore, [arrays]),
                nodes=request.nodes,
                evaluation=run.config.sampling.evaluation.value,
                fanout=None if run.is_exact else list(run.config.test_fanout),
                seed=run.config.run.seed,
                scores=scores,
            )

        ranks.from_first(write)
    return PredictSummary(len(ids), run.predicted.unit, run.epoch, scores)


def _sampled(run: RestoredNodeRun, ids: Tensor, ranks: Ranks) -> Iterator[_Outputs]:
    """Yields the outputs of this rank's minibatches. Of R ranks, rank g mod R has minibatch g."""
    loader, size = run.graph.evaluation_loader(ids), run.config.test_batch_size
    for step, (batch, output) in enumerate(infer(run.network, loader)):
        seeds = run.network.seeds(batch)
        begin = (step * ranks.size + ranks.rank) * size
        positions = torch.arange(begin, begin + len(seeds))
        assert torch.equal(ids[positions], seeds), "minibatches are in the order of the list"
        yield positions, output.logits, output.hidden, run.graph.labels(run.network, batch)


def _exact(run: RestoredNodeRun, ids: Tensor, with_hidden: bool) -> Iterator[_Outputs]:
    assert isinstance(run.network, NativeNetwork), "edges are computed from minibatches"
    (own, logits, rows), labels = infer_all(run.network, run.graph), run.graph.owned_labels()
    for begin in range(0, len(ids), ROWS):
        found = own.find(ids[begin : begin + ROWS])
        hidden = rows.at(found.row) if with_hidden else None
        yield begin + found.position, logits.at(found.row), hidden, labels[found.row]


@dataclass(frozen=True)
class EmbedRequest:
    """A request for embeddings of all nodes of some types, each from all its neighbours."""

    restore: RestoreRequest  # the run, and how it is restored
    out: Path  # a new folder, which all ranks see
    node_types: tuple[str, ...] | None = None  # None: all types that the model embeds
    #: the time, with ``time_attr``: a number or "2024-03-01"; None is the latest in the data
    at: str | None = None


@dataclass(frozen=True)
class EmbedSummary:
    """What `embed_nodes` wrote."""

    nodes: dict[str, int]  # the number of nodes by type
    epoch: int  # the epoch of the weights, counted from 1


def embed_nodes(request: EmbedRequest, ranks: Ranks) -> EmbedSummary:
    """Writes the embeddings of all nodes of some types to a new folder; collective. The folder
    appears when it is complete.

    >>> restore = RestoreRequest(Path("runs/first"))
    >>> with restore.join() as ranks:
    ...     embed_nodes(EmbedRequest(restore, Path("embeddings")), ranks).nodes
    {'node': 500}

    Files: TYPE.npy [N, columns] float32, in the order of ids; META.json; TYPE.parquet if the data
    set has keys. A run on nodes gives the rows that its last layer reads, of the predicted type and
    of the types of its in-neighbours; a run on links gives the rows that the decoder reads. The
    rest is as in `predict_nodes`.
    """
    with ranks.one_error():
        if request.restore.evaluation is EvaluationKind.SAMPLED:
            raise TrainError("embeddings of all nodes are computed from all neighbours; leave --sampled out")
    given: dict[str, Any] = {"embeddings of": request.node_types, "at": request.at}
    run = restored_for(request.restore, request.out, ranks, for_all_nodes=True, **given)
    with ranks.one_error():
        types = _chosen(request.node_types, run.network.embedded_types)
        with as_train_error(DatasetError):
            keys = DatasetKeys.of(run.dataset, run.config)
            at = moment_of(run, request.at, keys)
    with appearing_whole(request.out, ranks) as temporary:
        arrays = {}
        for name, pieces in _embedded(run, types, at).items():
            arrays[name] = PredictionArrays(temporary, run.dataset.nodes_of(name).num_nodes, ranks)
            file = group_folder(Group(RowKind.NODE, name))
            for one in pieces:
                arrays[name].add(one.node, {file: one.rows.float()}, one.rows)
            arrays[name].flush()

        def write() -> None:
            for name in types if keys.folder is not None else ():
                write_embeddings(temporary, keys, name, at)
            kind = (EvaluationKind.EXACT if at is None else EvaluationKind.SAMPLED).value
            every = list(arrays.values())
            write_meta(temporary, run, request.restore, every, node_types=types, evaluation=kind, time=at)

        ranks.from_first(write)
    return EmbedSummary({name: one.num_rows for name, one in arrays.items()}, run.epoch)


def _embedded(run: RestoredRun, types: Sequence[str], at: int | None) -> dict[str, Iterator[EmbeddedNodes]]:
    """Returns this rank's embeddings by type, in one or more batches each; collective. ``at``: the
    time of the embeddings; None in a run without ``time_attr``."""
    if at is not None:
        assert isinstance(run, RestoredLinkRun), "`moment_of` refuses others"
        nodes_of = {name: torch.arange(run.dataset.nodes_of(name).num_nodes) for name in types}
        of = (at, run.task.columns)
        return {name: rows_at(run.network, run.graph, name, ids, *of) for name, ids in nodes_of.items()}
    nodes = run.graph.all_nodes()
    found = run.network.infer_embeddings(nodes, types)
    return {name: EmbeddedNodes(nodes.node_of(name), found[name], nodes).split(ROWS) for name in types}


def moment_of(run: RestoredRun, at: str | None, keys: DatasetKeys) -> int | None:
    """Returns the time that predictions hold for: ``at``, or the latest in the data; None in a run
    without ``time_attr``. Raises `TrainError` if the run cannot predict for one time."""
    name = run.config.sampling.time_attr
    if name is None:
        if at is not None:
            raise TrainError(f"--at {at}: the run does not look at times (--time-attr); leave it out")
        return None
    if not isinstance(run, RestoredLinkRun):
        raise TrainError(
            "the run computes each node at its own time, so there are no embeddings of all nodes at one "
            "time; leave --embeddings-of out and give --embeddings, which writes those of predicted nodes"
        )
    return latest_time(run.dataset, run.predicted, name) if at is None else keys.clock.moment(at)


def _chosen(wanted: Sequence[str] | None, known: Sequence[str]) -> list[str]:
    if wanted is None:
        return list(known)
    if not wanted:
        raise TrainError(f"--embeddings-of names no type; give all or some of {', '.join(known)}")
    missing = [name for name in wanted if name not in known]
    if missing:
        raise TrainError(
            f"--embeddings-of {','.join(wanted)}: the model computes no embeddings of {missing[0]}; it has "
            f"those of {', '.join(known)}"
        )
    return list(dict.fromkeys(wanted))
