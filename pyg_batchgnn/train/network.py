"""The models that a configuration can ask for, and how they are applied to minibatches."""

from __future__ import annotations

import contextlib
import itertools
import tempfile
from collections.abc import Callable, Collection, Iterator, Mapping, Set
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from pyg_batchgnn import ops
from pyg_batchgnn.embed import Embedding
from pyg_batchgnn.nn import (
    DotProductDecoder,
    HeteroDictLinear,
    Linear,
    MLPDecoder,
    ModelOutput,
    NativeModel,
    OwnedNodes,
    Rows,
    TypedModel,
    features_by_type,
    in_batch_log_odds,
    to_hetero,
)
from pyg_batchgnn.nn import models as native
from pyg_batchgnn.train.config.choices import Decoder, ModelKind, Precision
from pyg_batchgnn.train.config.table import ModelConfig
from pyg_batchgnn.train.config.train_config import TrainConfig
from pyg_batchgnn.train.errors import as_train_error
from pyg_batchgnn.types import EDGE_FEATURES, Relation, Schema


@dataclass(frozen=True)
class ModelInputs:
    """What a model reads of each node type and relation, and what it predicts."""

    schema: Schema  # node types and relations
    node_type: str  # the predicted type; of links and edges the target type
    features: Mapping[str, int]  # columns of the features by node type; absent without features
    learned: Mapping[str, int]  # columns of the learned rows by node type; absent without
    link: Relation | None = None  # the relation of predicted links or edges; None for nodes
    edges: Mapping[Relation, int] = field(default_factory=dict)  # columns of edge features
    #: [E, F], features of the predicted edges, for the decoder; None unless edges are predicted
    edge_rows: Tensor | None = None

    @property
    def output_types(self) -> set[str]:
        """The types of which rows are computed: the predicted type, or both ends of a link."""
        return {self.node_type} if self.link is None else {self.link[0], self.link[2]}

    @property
    def is_homogeneous(self) -> bool:
        """True if the graph is homogeneous and has no learned rows."""
        return not self.schema.has_names and not self.learned

    def projected(self, hidden: int) -> dict[str, int]:
        both = {name: count + self.learned.get(name, 0) for name, count in self.features.items()}
        alone = {name: count for name, count in self.learned.items() if name not in both}
        return {**both, **{name: count for name, count in alone.items() if count != hidden}}

    def first_columns(self, hidden: int) -> int:
        """Returns the columns that the first layer reads. ``hidden``: columns between layers."""
        return self.features[self.node_type] if self.is_homogeneous else hidden


class TypedNet(nn.Module):
    """A model with a convolution per relation. Each type's features and learned rows, concatenated,
    are first projected to the columns that the model reads."""

    def __init__(self, inputs: ModelInputs, model: NativeModel) -> None:
        super().__init__()
        schema, hidden = inputs.schema, model.in_channels
        self.project = HeteroDictLinear(inputs.projected(hidden), hidden)
        with as_train_error(ValueError):
            self.layers: TypedModel = to_hetero(model, (schema.node_types, schema.relations))
        self._edges = inputs.edges
        for index, relation in itertools.product(range(model.num_layers), inputs.edges):
            conv: Any = self.layers.conv(index, relation)
            if conv.edge_dim != (columns := inputs.edges[relation]):  # that of another relation
                lin, conv.edge_dim = conv.lin_edge, columns
                conv.lin_edge = type(lin)(columns, lin.out_channels, bias=False, weight_initializer="glorot")
        self._freeze_unread(inputs.output_types)

    def inputs(self, features: Mapping[str, Rows], learned: Mapping[str, Tensor]) -> dict[str, Rows]:
        """Returns the first layer's input, [N_t, hidden] by node type. Arguments: rows by type."""
        rows = {name: _joined(x, learned.get(name)) for name, x in features.items()}
        rows |= {name: x for name, x in learned.items() if name not in features}
        return {**rows, **self.project(rows)}

    def _freeze_unread(self, types: Set[str]) -> None:
        """Freezes the parameters on which the output rows of ``types`` do not depend."""
        read = set(types)
        for index in reversed(range(self.layers.num_layers)):
            for relation in self.layers.relations:
                conv: Any = self.layers.conv(index, relation).requires_grad_(relation[2] in read)
                if self._edges and relation not in self._edges:
                    conv.lin_edge.requires_grad_(False)
                    conv.att_edge.requires_grad_(False)
            for name in self.layers.node_types:
                if (norm := self.layers.norm(index, name)) is not None:
                    norm.requires_grad_(name in read)
            read |= {source for source, _, target in self.layers.relations if target in read}
        for name, part in self.project.lins.items():
            part.requires_grad_(name in read)


def edge_features(batch: Any, relations: Collection[Relation]) -> dict[Relation, Tensor]:
    """Returns [edges, columns], the features of a minibatch's edges, by relation that has some."""
    found = {}
    for relation in relations:
        rows = batch.attributes.get(batch.schema.edge_groups[batch.schema.relation_number(relation)])
        if rows is not None:
            found[relation] = rows.gather(EDGE_FEATURES)
    return found


def _joined(x: Rows, learned: Tensor | None) -> Rows:
    if learned is None:
        return x
    values = x if isinstance(x, Tensor) else x.gather()
    return torch.cat([values, learned.to(values.dtype)], dim=1)


class NativeNetwork:
    """Applies a native model to a `Minibatch`, whose seed, epoch and key determine dropout. Weights
    and logits are float32. ``model``: the module with the parameters."""

    def __init__(self, model: Any, precision: Precision, inputs: ModelInputs) -> None:
        self.model = model
        self.precision = precision
        self.node_type = inputs.node_type  # of the seed nodes
        self.edges = inputs.edges  # the relations whose features of edges are read
        self._edge_values = [EDGE_FEATURES] if inputs.edges else []

    def outputs_by_type(self, batch: Any) -> dict[str, ModelOutput]:
        """Returns the forward pass's output for the seeds, by node type."""
        edge_attr = next(iter(edge_features(batch, self.edges).values()), None)
        with self._autocast():
            return {self.node_type: self.model.outputs(batch, edge_attr=edge_attr)}

    def infer_by_type(self, nodes: OwnedNodes, node_types: Collection[str]) -> dict[str, ModelOutput]:
        """Returns outputs of this rank's nodes of these types, from all neighbours; collective."""
        with self._autocast():
            return {name: self.model.infer(nodes, self._edge_values) for name in node_types}

    def outputs(self, batch: Any) -> ModelOutput:
        return self.outputs_by_type(batch)[self.node_type]

    def infer(self, nodes: OwnedNodes) -> ModelOutput:
        return self.infer_by_type(nodes, [self.node_type])[self.node_type]

    @property
    def embedded_types(self) -> list[str]:
        return [self.node_type]

    def infer_embeddings(self, nodes: OwnedNodes, node_types: Collection[str]) -> dict[str, Tensor]:
        """Returns the last layer's input, [n, columns] by type, of this rank's nodes of these
        types, from all neighbours; collective. Networks of pairs return what the decoder reads."""
        return {name: one.hidden for name, one in self.infer_by_type(nodes, node_types).items()}

    def _autocast(self) -> torch.autocast:
        return torch.autocast("cpu", torch.bfloat16, enabled=self.precision is Precision.BFLOAT16)

    def seeds(self, batch: Any) -> Tensor:
        """Returns [S] int64, the seeds' ids, in the order of the output's rows."""
        nodes = batch.nodes_of(self.node_type)
        seeds: Tensor = nodes.node[: nodes.nodes_per_hop[0]]
        return seeds

    def leave_out(self, batch: Any) -> None:
        """Joins the collective calls of `outputs` for a minibatch without seeds: here none."""

    def fetched(self, batch: Any, name: str) -> Tensor:
        """Returns [S, ...], the seeds' rows of an attribute that came with the minibatch."""
        rows: Tensor = batch.attributes_of(self.node_type).gather(name, len(self.seeds(batch)))
        return rows


class TypedNetwork(NativeNetwork):
    def __init__(
        self, model: TypedNet, precision: Precision, inputs: ModelInputs, embedding: Embedding | None
    ) -> None:
        super().__init__(model, precision, inputs)
        self._embedding = embedding

    def outputs_by_type(self, batch: Any) -> dict[str, ModelOutput]:
        learned, edge_attr = self._learned(batch), edge_features(batch, self.edges)
        with self._autocast():
            inputs = self.model.inputs(features_by_type(batch), learned)
            found: dict[str, ModelOutput] = self.model.layers.outputs(
                batch, x=inputs, edge_attr=edge_attr or None
            )
            return found

    def infer_by_type(self, nodes: OwnedNodes, node_types: Collection[str]) -> dict[str, ModelOutput]:
        with self._autocast():
            found: dict[str, ModelOutput] = self.model.layers.infer(
                nodes, node_types, self._projected, self._edge_values
            )
            return found

    @property
    def embedded_types(self) -> list[str]:
        relations = self.model.layers.relations
        return sorted({self.node_type, *(one for one, _, target in relations if target == self.node_type)})

    def infer_embeddings(self, nodes: OwnedNodes, node_types: Collection[str]) -> dict[str, Tensor]:
        with self._autocast():
            found: dict[str, Tensor] = self.model.layers.infer_hidden(
                *(nodes, [self.node_type], self._projected, self._edge_values), hidden_types=node_types
            )
            return found

    def leave_out(self, batch: Any) -> None:
        """Takes part in fetching learned rows, of which an empty minibatch reads none."""
        self._learned(batch)

    def _projected(self, rows: Mapping[str, Tensor]) -> dict[str, Tensor]:
        return {**rows, **self.model.project(rows)}

    def _learned(self, batch: Any) -> dict[str, Tensor]:
        return {} if self._embedding is None else self._embedding(batch)


PairDecoder = DotProductDecoder | MLPDecoder


def pairs_of(batch: Any) -> tuple[tuple[Tensor, Tensor], int]:
    """Returns the minibatch's pairs, (sources, targets) as [S] int64 positions among the seeds of
    their types, and the number of links. Links come first, then the negatives of each link."""
    if not batch.links:
        nothing = torch.empty(0, dtype=torch.int64)
        return (nothing, nothing), 0
    found = batch.links[0]
    count = len(found.input_id)
    if hasattr(found, "index"):
        return (found.index[0], found.index[1]), count
    negative = found.negative.view(count, -1) if count else found.negative.view(0, 1)
    sources = found.source.unsqueeze(1).expand_as(negative)
    source = torch.cat([found.source, sources.reshape(-1)])
    return (source, torch.cat([found.target, negative.reshape(-1)])), count


class PairNetwork:
    """An encoder followed by a decoder of pairs; methods are as in `NativeNetwork`."""

    def __init__(self, encoder: NativeNetwork, decoder: Any, relation: Relation) -> None:
        self.model = nn.ModuleDict({"encoder": encoder.model, "decoder": decoder})
        self.encoder = encoder
        self.decoder = decoder
        self.relation = relation

    def ends(self, batch: Any) -> list[Tensor]:
        """Returns the encoder's rows of the sources and the targets of pairs, [S, columns] each."""
        rows, (ends, _) = self.encoder.outputs_by_type(batch), pairs_of(batch)
        # Unlike those of an index, the gradients of an embedding are added in a fixed order.
        return [
            F.embedding(end, rows[self.relation[at]].logits) for at, end in zip((0, 2), ends, strict=True)
        ]

    def seeds(self, batch: Any) -> Tensor:
        """Returns [P] int64, the links' ids in the loader's input: positions, or edge ids."""
        return batch.links[0].input_id if batch.links else torch.empty(0, dtype=torch.int64)

    def leave_out(self, batch: Any) -> None:
        self.encoder.leave_out(batch)

    @property
    def embedded_types(self) -> list[str]:
        return list(dict.fromkeys((self.relation[0], self.relation[2])))

    def infer_embeddings(self, nodes: OwnedNodes, node_types: Collection[str]) -> dict[str, Tensor]:
        return {name: one.logits for name, one in self.encoder.infer_by_type(nodes, node_types).items()}


class EdgeDecoder(nn.Module):
    """A perceptron with one hidden layer, on the rows of both ends and the edge's own features."""

    def __init__(self, columns: int, edge_columns: int, outputs: int) -> None:
        super().__init__()
        self.hidden = Linear(2 * columns + edge_columns, columns)
        self.score = Linear(columns, outputs)

    def forward(self, source: Tensor, target: Tensor, rows: Tensor) -> ModelOutput:
        """Returns [S, outputs] and the hidden layer [S, columns]. ``source``, ``target``: [S,
        columns], the ends' rows. ``rows``: [S, edge_columns], the edges' features."""
        hidden = self.hidden.with_relu(torch.cat([source, target, rows.to(source.dtype)], dim=1))
        return ModelOutput(self.score(hidden), hidden)


class EdgeNetwork(PairNetwork):
    """Predicts labels of edges. ``rows``: [E, F], the features of all edges."""

    def __init__(
        self, encoder: NativeNetwork, decoder: EdgeDecoder, relation: Relation, rows: Tensor
    ) -> None:
        super().__init__(encoder, decoder, relation)
        self._rows = rows

    def outputs(self, batch: Any) -> ModelOutput:
        own = self._rows[:0] if not batch.links else ops.gather_rows(self._rows, self.seeds(batch))
        output: ModelOutput = self.decoder(*self.ends(batch), own)
        return output


class LinkNetwork(PairNetwork):
    def outputs(self, batch: Any) -> ModelOutput:
        source, target = self.ends(batch)
        log_q = getattr(batch.links[0], "log_q", None) if batch.links else None
        if log_q is None:
            return ModelOutput(self.decoder(source, target), target)
        return ModelOutput(in_batch_log_odds(source, target, log_q, batch.links[0].hits), target)

    def labels(self, batch: Any) -> Tensor:
        (source, _), links = pairs_of(batch)
        return torch.arange(len(source)) < links


RowNetwork: TypeAlias = NativeNetwork | EdgeNetwork  # predicts labels of nodes or edges
GraphNetwork: TypeAlias = RowNetwork | LinkNetwork  # a model, and how it is applied to minibatches


@contextlib.contextmanager
def pyg_files_removed() -> Iterator[None]:
    """Removes the Python modules that PyG writes to the folder of temporary files, in every
    process, for each class of convolution that is made in the block."""
    before = tempfile.tempdir
    with tempfile.TemporaryDirectory(prefix="pyg_batchgnn-") as folder:
        tempfile.tempdir = folder
        try:
            yield
        finally:
            tempfile.tempdir = before


_NATIVE: Mapping[ModelKind, Callable[..., native.NativeModel]] = {
    ModelKind.SAGE: native.SAGE,
    ModelKind.GCN: native.GCN,
    ModelKind.GIN: native.GIN,
    ModelKind.GAT: native.GAT,
}


def build_network(
    config: TrainConfig, inputs: ModelInputs, columns: int, embedding: Embedding | None = None
) -> GraphNetwork:
    model, precision = config.model, config.run.precision
    rows = columns if inputs.edge_rows is None else model.hidden  # of the encoder
    shape = (inputs.first_columns(model.hidden), model.hidden, model.num_layers, rows)
    options = _options(model)
    if inputs.edges:
        options["edge_dim"] = next(iter(inputs.edges.values()))
    if not inputs.is_homogeneous and model.kind is ModelKind.GAT:
        options |= {"add_self_loops": False, "residual": True}
    with pyg_files_removed():
        native_model = _NATIVE[model.kind](*shape, **options)
        if inputs.is_homogeneous:
            network = NativeNetwork(native_model, precision, inputs)
        else:
            network = TypedNetwork(TypedNet(inputs, native_model), precision, inputs, embedding)
        if inputs.link is None:
            return network
        if (own := inputs.edge_rows) is not None:
            return EdgeNetwork(network, EdgeDecoder(rows, own.size(1), columns), inputs.link, own)
        decoder = DotProductDecoder() if config.task.decoder is Decoder.DOT else MLPDecoder(columns)
        return LinkNetwork(network, decoder, inputs.link)


def _options(model: ModelConfig) -> dict[str, Any]:
    if model.kind is ModelKind.GIN:
        # As BatchGNN sets it up (appendix E).
        return {"norm": "batch_norm", "inner_channels": model.hidden}
    if model.kind is ModelKind.GAT:
        return {"dropout": model.dropout, "heads": model.heads, "attention_dropout": 0.0}
    return {"dropout": model.dropout}
