"""The features, labels and splits that training reads, and the fingerprint of a data set."""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from pyg_batchgnn import machine, ops
from pyg_batchgnn.data import SPLITS, Dataset, EdgeSet, NodeSet
from pyg_batchgnn.disk import DiskReader, DiskTable, is_mapped
from pyg_batchgnn.embed import SGD, Adagrad, SparseAdam
from pyg_batchgnn.train.config.choices import (
    CacheKind,
    EmbeddingRule,
    EvaluationKind,
    Precision,
    RemoteKind,
    TaskKind,
)
from pyg_batchgnn.train.config.train_config import TrainConfig, edges_unread, refuse_given
from pyg_batchgnn.train.errors import TrainError
from pyg_batchgnn.train.link_tasks import PredictedLinks
from pyg_batchgnn.train.network import ModelInputs
from pyg_batchgnn.train.node_tasks import PredictedEdges, predicted_of
from pyg_batchgnn.train.times import of_type, times_of
from pyg_batchgnn.types import EDGE_FEATURES, FEATURES, LABELS, Group, Relation, RowKind

#: The fields that only runs with learned rows have.
_OF_ROWS = ("embedding.columns", "embedding.rule", "embedding.learning_rate")


@dataclass(frozen=True, eq=False)
class TrainingData:
    """The attributes that a run reads from its data set."""

    inputs: ModelInputs  # columns by type and relation
    labels: Mapping[str, Tensor]  # [N_t, ...] by predicted node type; empty for links and edges
    #: floating-point: [N_t, F_t] by node type, and if the model reads them [E_r] or [E_r, F_r] by
    #: relation; absent without features
    features: Mapping[str | Relation, Tensor]
    times: Mapping[Group, Tensor]  # times of nodes or edges; empty without ``time_attr``

    @classmethod
    def of(cls, dataset: Dataset, config: TrainConfig) -> TrainingData:
        link, labels, predicted = None, dict[str, Tensor](), predicted_of(dataset, config.task)
        timed, edge_rows = None, None  # the group whose rows need times of their own
        if isinstance(predicted, PredictedLinks):
            link, node_type = predicted.relation, predicted.relation[2]
        elif isinstance(predicted, PredictedEdges):
            link, timed, node_type = predicted.relation, predicted.edges.group, predicted.node_type
            edge_rows, own = torch.empty(predicted.count, 0), predicted.tables.get(EDGE_FEATURES)
            if config.model.edge_features != "none" and own is not None:
                edge_rows = _checked(dataset, predicted.edges, own)
                edge_rows = edge_rows.view(-1, 1) if own.dim() == 1 else edge_rows
        else:
            node_type, labels = predicted.node_type, {predicted.node_type: predicted.labels}
            timed = Group(RowKind.NODE, node_type)
        times = times_of(dataset, config)
        if timed is not None and times and timed not in times:
            whose, rows = ", ".join(map(str, times)), f"{predicted.unit}{of_type(dataset, timed)}"
            raise TrainError(
                f"{dataset.name}: sampling.time_attr is {config.sampling.time_attr}, but the predicted "
                f"{rows} have no such attribute, only {whose}; give them one int64 time each: the moment of "
                f"the prediction"
            )
        features: dict[str | Relation, Tensor] = {}
        for one in dataset.node_sets:
            if (x := one.tables.get(FEATURES)) is not None:
                features[one.name] = _checked(dataset, one, x)
        names = _learned_types(dataset, config, features)
        if not names:
            because = f"but no nodes of {dataset.name} have learned rows; name their types with --embed"
            refuse_given(config, _OF_ROWS, f"{because}, or leave it out")
        learned = dict.fromkeys(names, config.embedding.columns or config.model.hidden)
        columns = {str(name): int(x.shape[1]) for name, x in features.items()}
        edges = _read_edges(dataset, config)
        features.update(edges.items())
        edge_columns = {relation: int(x.shape[1]) if x.dim() > 1 else 1 for relation, x in edges.items()}
        inputs = ModelInputs(dataset.schema, node_type, columns, learned, link, edge_columns, edge_rows)
        if not inputs.is_homogeneous:
            _refuse_options(dataset, config)
            _check_reached(dataset, config, inputs)
        return cls(inputs, labels, features, times)


def _read_edges(dataset: Dataset, config: TrainConfig) -> dict[Relation, Tensor]:
    wanted, tables = config.model.edge_features, dict[Relation, Tensor]()
    if wanted == "none" or edges_unread(config) is not None:
        return tables
    for one in dataset.edge_sets:
        if (x := one.tables.get(EDGE_FEATURES)) is not None:
            tables[one.relation] = _checked(dataset, one, x)
    if wanted == "read" and not tables:
        raise TrainError(
            f"--edge-features read: the edges of {dataset.name} have no 'edge_attr'; leave it out"
        )
    return tables


def _checked(dataset: Dataset, rows: NodeSet | EdgeSet, x: Tensor) -> Tensor:
    """Returns ``x`` if models can read it as features; else raises `TrainError`."""
    is_node = isinstance(rows, NodeSet)
    what, own = ("node features", FEATURES) if is_node else ("edge features", EDGE_FEATURES)
    name = f"{dataset.name}: the {what} {own!r}{of_type(dataset, rows.group)}"
    if not x.is_floating_point() or x.dim() not in ((2,) if is_node else (1, 2)):
        raise TrainError(
            f"{name} are {str(x.dtype).removeprefix('torch.')} {list(x.shape)}, but models need "
            f"floating-point numbers [{'N' if is_node else 'E'}, F]; convert {own!r} to float32"
        )
    if x.dim() > 1 and not x.shape[1]:
        instead = "nodes have learned rows" if is_node else "no features are read"
        raise TrainError(
            f"{name} are {list(x.shape)}, with no column that a model could read; leave {own!r} out, then "
            f"{instead}"
        )
    return x


def _learned_types(
    dataset: Dataset, config: TrainConfig, features: Mapping[str | Relation, Tensor]
) -> list[str]:
    wanted, types = config.embedding.types, dataset.schema.node_types
    bare = [name for name in types if name not in features]
    if wanted == "auto":
        return bare
    named = {"all": types, "none": ()}.get(wanted, wanted) if isinstance(wanted, str) else wanted
    for name in named:
        if name not in types:
            raise TrainError(f"embedding.types names {name}, but {dataset.name} has {', '.join(types)}")
    for name in bare:
        if name not in named:
            raise TrainError(
                f"{dataset.name} has no node features 'x'{of_type(dataset, name)}, and no learned rows are "
                f"wanted for them; leave --embed out, or name the type in it"
            )
    return [name for name in types if name in named]


def _refuse_options(dataset: Dataset, config: TrainConfig) -> None:
    because = None
    if config.sampling.cache is not CacheKind.OFF:
        because = f"sampling.cache is {config.sampling.cache.value}"
    elif config.ranks.remote is not RemoteKind.EXACT:
        because = f"ranks.remote is {config.ranks.remote.value}"
    if because is not None:
        graph = "has named node types" if dataset.has_names else "has learned rows"
        raise TrainError(
            f"{because}, which is for homogeneous graphs with features, but {dataset.name} {graph}; leave "
            "it out"
        )


def _check_reached(dataset: Dataset, config: TrainConfig, inputs: ModelInputs) -> None:
    reached = {target for _, _, target in dataset.schema.relations}
    others = [name for name in dataset.schema.node_types if name not in reached]
    because = "no layer but the first can read them"
    if config.model.num_layers == 1:
        others = [name for name in others if name in inputs.output_types]
        because = "the layer computes no rows of them"
    if others:
        raise TrainError(
            f"{dataset.name}: no relation leads to {', '.join(others)}, so {because}; add --reverse, which "
            "adds the reverse of every relation"
        )


_SHARE = 0.5  # The share of the free memory that a copy of the features may take.
_CHUNK = 1 << 16  # rows converted at a time; then the pages of a mapped file can be dropped
NATIVE_TYPES = (torch.float16, torch.bfloat16, torch.float32)  # that layers read as they are


def feature_tables(
    features: Mapping[str | Relation, Tensor], config: TrainConfig
) -> tuple[dict[str | Relation, Tensor], int]:
    """Returns the features as the layers read them, by type and relation, and the bytes that were
    read from files into memory: at most half of a memory budget."""
    budget, tables, held = config.sampling.memory_budget, dict[str | Relation, Tensor](), 0
    for name, x in features.items():
        tables[name] = feature_table(x, config, None if budget is None else budget // 2 - held)
        if tables[name] is not x and is_mapped(x):
            held += tables[name].nbytes
    return tables, held


#: The state of an optimizer, in elements per learned element.
_STATE = {
    EmbeddingRule.ADAM: len(SparseAdam().initial),
    EmbeddingRule.ADAGRAD: len(Adagrad().initial),
    EmbeddingRule.SGD: len(SGD().initial),
}


def check_learned_fit(dataset: Dataset, config: TrainConfig, learned: Mapping[str, int], ranks: int) -> None:
    """Raises `TrainError` if learned rows and their optimizer state exceed the memory budget.
    ``learned``: columns by node type."""
    numbers = sum(dataset.nodes_of(name).num_nodes * columns for name, columns in learned.items())
    size = 4 * numbers * (1 + _STATE[config.embedding.rule]) // ranks
    budget = config.sampling.memory_budget
    if budget is not None and size > budget:
        raise TrainError(
            f"the learned rows of {', '.join(learned)} and the state of their optimizer take {size:,} bytes "
            f"on each rank, but the memory budget is {budget:,}; embeddings and optimizer state on disk are "
            f"not supported: give more with --memory-budget, or fewer columns with --embed-columns"
        )


def check_joined(
    config: TrainConfig, learned: Mapping[str, int], tables: Mapping[str | Relation, Tensor]
) -> None:
    """Raises `TrainError` if a type has learned rows and features that stay on disk, and the run
    computes all nodes, which joins both in memory."""
    links = config.task.kind is TaskKind.LINKS and not config.is_timed
    if not links and config.sampling.evaluation is not EvaluationKind.EXACT:
        return
    for name in learned:
        if name in tables and is_mapped(tables[name]):
            raise TrainError(
                f"{name} has learned rows and features that stay on disk, which inference of all nodes joins "
                f"in memory: embeddings on disk are not supported; give more with --memory-budget, or leave "
                f"{name} out of --embed"
            )


def feature_table(x: Tensor, config: TrainConfig, room: int | None = None) -> Tensor:
    """Returns the features as the layers read them, on huge pages if in memory. A table in a file
    is read into memory if it takes at most half of the free memory, and at most ``room`` bytes. If
    its dtype changes, half of all memory counts, so that results do not depend on what is free.
    Raises `TrainError` if the copy does not fit, or layers cannot read the table on disk."""
    dtype = feature_type(x, config)
    if isinstance(x, ops.QuantizedTensor):
        return _code_table(ops.QuantizedTensor(x.codes, x.decoding, dtype), room)
    if dtype is x.dtype and not is_mapped(x):
        table = x.contiguous()
        ops.advise_huge_pages(table)
        return table
    memory, size = machine.memory(), x.numel() * dtype.itemsize
    changes = dtype is not x.dtype
    if room is not None and size > room and is_mapped(x):
        return _left_in_file(x)
    if size <= _SHARE * (memory.total if changes else memory.available):
        if changes and size > memory.available:
            name = str(dtype).removeprefix("torch.")
            raise TrainError(
                f"the features as {name} take {size:,} bytes of memory, of which {memory.available:,} are "
                f"free; free some, or store the features as {name}"
            )
        return _copy(x, dtype)
    return _left_in_file(x)


def _code_table(x: ops.QuantizedTensor, room: int | None) -> ops.QuantizedTensor:
    if not is_mapped(x):
        codes = x.codes.contiguous()
        ops.advise_huge_pages(codes)
    elif x.nbytes <= _SHARE * machine.memory().available and (room is None or x.nbytes <= room):
        codes = _copy(x.codes, x.codes.dtype)
    else:
        return x
    return x.with_codes(codes)


def _left_in_file(x: Tensor) -> Tensor:
    if x.dtype not in NATIVE_TYPES:
        name = str(x.dtype).removeprefix("torch.")
        raise TrainError(
            f"the features are {name} and stay on disk, as they do not fit memory, but layers read them as "
            f"they are and compute in float32; store them as float32, float16 or bfloat16"
        )
    return x


def feature_type(x: Tensor, config: TrainConfig) -> torch.dtype:
    """Returns the dtype in which features are held and sent: bfloat16 in a bfloat16 run; else their
    own if native layers read it, or float32."""
    if config.run.precision is Precision.BFLOAT16:
        return torch.bfloat16
    return x.dtype if x.dtype in NATIVE_TYPES else torch.float32


def _copy(x: Tensor, dtype: torch.dtype) -> Tensor:
    table = torch.empty(x.shape, dtype=dtype)
    ops.advise_huge_pages(table)
    for target, source in zip(table.split(_CHUNK), x.split(_CHUNK), strict=True):
        target.copy_(source)
    return table


_SAMPLES = 1 << 20
_MUCH, _FEW_SAMPLES = 4 << 30, 1 << 12  # arrays of more bytes have fewer elements sampled
_LARGE = 1 << 30  # mapped arrays of more bytes are not read through the page cache
_LARGE_CSC = 256 << 20  # the same for edges by destination, which are read into memory too


def fingerprint_dataset(dataset: Dataset) -> dict[str, int]:
    """Returns the counts of a data set, and checksums that tell another data set apart: of up to a
    million evenly spaced elements per array, 4,096 beyond 4 GiB, whatever the integers' dtype."""
    columns = 0
    for nodes in dataset.node_sets:
        x = nodes.tables.get(FEATURES)
        columns += int(x.shape[1]) if x is not None and x.dim() == 2 else 0
    rows = (one.tables.get(name) for one in dataset.edge_sets for name in (EDGE_FEATURES, LABELS))
    return {
        "num_nodes": dataset.num_nodes,
        "num_edges": dataset.num_edges,
        "num_features": columns,
        "num_classes": sum(nodes.num_classes for nodes in dataset.node_sets),
        "checksum": _checksum(_arrays(dataset)),
        "edge_checksum": _checksum(one for one in rows if one is not None),  # releases before had none
    }


def _checksum(arrays: Iterable[Tensor]) -> int:
    found = 0
    for array in arrays:
        found = zlib.crc32(_evenly_spaced(array).numpy().tobytes(), found)
    return found


def _arrays(dataset: Dataset) -> Iterator[Tensor]:
    for edges in dataset.edge_sets:
        if (csc := edges.csc) is None:
            yield from edges.edge_index
            continue
        for one in (csc.indptr, csc.indices, csc.edge_ids):
            if one is not None:  # of large ones few pages are read
                yield one[:: -(-one.numel() // _FEW_SAMPLES)] if one.nbytes > _LARGE_CSC else one
    for nodes in dataset.node_sets:
        if FEATURES in nodes.tables:
            x = nodes.tables[FEATURES]
            yield from (x.codes, x.decoding) if isinstance(x, ops.QuantizedTensor) else (x,)
        yield nodes.tables.get(LABELS, torch.tensor(-1).expand(nodes.num_nodes))
        yield from (dataset.split(name, nodes.name) for name in SPLITS)
    for edges in dataset.edge_sets:
        for _, links in sorted(edges.links.items()):
            yield from (array for _, array in sorted(links.arrays().items()))


def _evenly_spaced(array: Tensor) -> Tensor:
    flat = array.reshape(-1)
    samples = _SAMPLES if array.nbytes <= _MUCH else _FEW_SAMPLES
    step = max(1, -(-flat.numel() // samples))
    place = DiskTable.of(flat) if flat.nbytes > _LARGE else None
    if place is None:
        taken = flat[::step]
    else:
        at = torch.arange(0, flat.numel(), step)
        taken, reader = torch.empty(len(at), dtype=flat.dtype), DiskReader(place)
        reader.read(at, taken, gap=0)
        reader.close()
    return taken.to(torch.float32 if taken.is_floating_point() else torch.int64).contiguous()
