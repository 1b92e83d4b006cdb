"""Embeddings of all nodes by type, from the best weights of a run."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from torch import Tensor

from pyg_batchgnn.data import Group, RowKind, group_folder
from pyg_batchgnn.train.config import EvaluationKind
from pyg_batchgnn.train.errors import TrainError
from pyg_batchgnn.train.predict.arrays import PredictionArrays
from pyg_batchgnn.train.predict.new_folder import appearing_whole, refuse_existing
from pyg_batchgnn.train.ranks import Ranks
from pyg_batchgnn.train.run import RestoredLinkRun, RestoredNodeRun, RestoreRequest, restore_run
from pyg_batchgnn.train.run_folder import write_json

_FORMAT_VERSION = 1
#: Rows that are written together.
_ROWS = 1 << 16


@dataclass(frozen=True)
class EmbedRequest:
    """A request for embeddings of all nodes of some types.

    Attributes:
        restore: the run whose model computes them, each node from all its neighbours.
        out: the folder to write, which must not exist. All ranks see it.
        node_types: the types; None stands for all that the model has embeddings of.
    """

    restore: RestoreRequest
    out: Path
    node_types: tuple[str, ...] | None = None


@dataclass(frozen=True)
class EmbedSummary:
    """A summary of embeddings.

    Attributes:
        nodes: the number of nodes, by type.
        epoch: of the weights, counted from 1.
    """

    nodes: dict[str, int]
    epoch: int


def embed_nodes(request: EmbedRequest, ranks: Ranks) -> EmbedSummary:
    """Writes embeddings to a new folder, which appears when it is complete; collective.

    Each rank computes and writes the rows of the nodes that it owns. In a run that predicts nodes,
    embeddings are the rows that the last layer reads, of the predicted nodes and of their
    neighbours' types. In a run that predicts links, they are the rows that the decoder reads.

    Raises:
        TrainError: the run folder, the request or the data set cannot be used.
        DatasetError: the data set cannot be read.
        CommError: another rank failed, or was given other arguments.
    """
    given = {"embeddings of": request.node_types, "out": str(request.out)}
    ranks.agree({"command": f"predict {request.restore.run}", **given})
    with ranks.one_error():
        if request.restore.evaluation is EvaluationKind.SAMPLED:
            raise TrainError("embeddings of all nodes are computed from all neighbours; leave --sampled out")
    ranks.from_first(lambda: refuse_existing(request.out))
    run = restore_run(replace(request.restore, evaluation=EvaluationKind.EXACT), ranks)
    with ranks.one_error():
        types = _chosen(request.node_types, run.network.embedded_types)
    with appearing_whole(request.out, ranks) as temporary:
        nodes = run.graph.all_nodes()
        found = run.network.infer_embeddings(nodes, types)
        arrays = {name: _write(temporary, name, nodes.node_of(name), found[name], ranks) for name in types}
        if ranks.is_first:
            write_json(temporary / "META.json", _meta(request, run, arrays))
    return EmbedSummary({name: one.num_rows for name, one in arrays.items()}, run.epoch)


def _chosen(wanted: Sequence[str] | None, known: Sequence[str]) -> list[str]:
    """Returns the node types of a request, of those that the model has embeddings of."""
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


def _write(folder: Path, node_type: str, node: Tensor, rows: Tensor, ranks: Ranks) -> PredictionArrays:
    """Writes the rows of all ranks' nodes of a type, slice by slice; collective.

    Args:
        folder: receives the file.
        node_type: names the file.
        node: [n] int64, the original ids of this rank's nodes.
        rows: [n, columns], their embeddings.
        ranks: of the run.
    """
    arrays = PredictionArrays(folder, int(ranks.table([len(node)]).sum()), ranks)
    name = group_folder(Group(RowKind.NODE, node_type))
    for positions, some in zip(node.split(_ROWS), rows.split(_ROWS), strict=True):
        arrays.add(positions, {name: some.float()}, some)
    arrays.flush()
    return arrays


def _meta(
    request: EmbedRequest, run: RestoredNodeRun | RestoredLinkRun, arrays: dict[str, PredictionArrays]
) -> dict[str, object]:
    """Returns the contents of META.json."""
    name = run.links.dataset if isinstance(run, RestoredLinkRun) else run.nodes.dataset
    return {
        "format": _FORMAT_VERSION,
        "run": str(request.restore.run.resolve()),
        "epoch": run.epoch,
        "dataset": {"name": name, **run.checkpoint.dataset},
        "node_types": list(arrays),
        "evaluation": EvaluationKind.EXACT.value,
        "arrays": {file: one for each in arrays.values() for file, one in each.described().items()},
    }
