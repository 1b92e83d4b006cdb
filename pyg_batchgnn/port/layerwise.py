"""The output of a captured model for all nodes: layer by layer, each node once.

A captured ``forward`` is cut at its convolutions; what follows one row by row is of its layer. Rows
that a later layer reads as its sources go through tables that all ranks read.
"""

from __future__ import annotations

import inspect
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch_geometric.nn.dense.linear import is_uninitialized_parameter

from pyg_batchgnn import nn
from pyg_batchgnn.port import rules
from pyg_batchgnn.port.batches import ArgumentTensor, Bound
from pyg_batchgnn.port.call import Call, Graph, Tracing
from pyg_batchgnn.port.capture import Captured, CapturedFunction
from pyg_batchgnn.port.execution import Frame, run_step, take
from pyg_batchgnn.port.program import Program, ProgramStep, module_of, rate_of
from pyg_batchgnn.port.recording import (
    FIXED,
    BatchEdges,
    Counter,
    Edges,
    Nodes,
    Ref,
    Refusal,
    has_counts,
    mapped,
    refs,
)
from pyg_batchgnn.port.structure import RelationName, TypeName, UnsampledGraph, sampled_batch
from pyg_batchgnn.port.traced import TracedModel, must_be_called
from pyg_batchgnn.types import NewRows, OwnedNodes, Relation, Schema


class LayerwiseError(ValueError):
    """A model cannot be computed layer by layer, with each node by itself."""

    def __init__(self, fact: str, remedy: str = "call the model on the whole graph") -> None:
        super().__init__(f"{fact}; {remedy}")


def inference(
    model: torch.nn.Module,
    loader: Any,
    memory_budget: int | str | None = None,
    progress_bar: bool = False,
    scratch: str | Path | None = None,
    edge_values: Sequence[str] = (),
) -> Any:
    """Returns the output of a model for all nodes, layer by layer: each node once, from all its
    neighbours. Collective over ranks.

    >>> inference(accelerate(model), loader).shape  # a row for each node of the graph
    torch.Size([100, 3])

    Args:
        model: a model after `accelerate`. ``forward`` takes rows, edges, and attributes of the
            data's edges by name (``edge_attr``, ``edge_weight_dict``). Everything but convolutions
            must compute each row by itself.
        loader: a loader of this package, of any fanouts and seed nodes.
        memory_budget: bytes (or a text like "2GiB") for the nodes computed at once and the rows of
            layers; None chooses.
        progress_bar: shows the progress.
        scratch: the folder of rows that do not fit memory; see `AllNodes`.
        edge_values: parameters with a default value that get attributes of edges, too.

    Returns:
        What ``forward`` returns, with [n, C] rows of the nodes that this process owns. Tensors that
            do not fit memory are mapped from files that vanish with them.

    Raises:
        TypeError: the model was not accelerated, or ``loader`` is none of this package.
        LayerwiseError: a ValueError: a part of the model mixes rows, has hooks, or was not
            captured.
    """
    if not isinstance(model, TracedModel):
        raise TypeError(
            f"inference takes a model that accelerate made fast, got a {type(model).__name__}; call "
            f"accelerate(model) first"
        )
    nodes = nn.nodes_of(loader, memory_budget, progress_bar, scratch)
    with nn.evaluating(model), torch.no_grad():
        call, names = _some_call(model, nodes.schema, nodes, edge_values)

        def compute(captured: Captured, values: Sequence[Any]) -> list[Any]:
            layers = _Layers(model, nodes, captured.made, call.inputs(captured.made, values), names)
            steps = [layers.step(level) for level in range(1, layers.last + 1)]
            nn.infer_layers(steps, nodes, node_types=layers.node_types, inputs=layers.inputs)
            return layers.output()

        return _captured(model, call).run(model.users_forward, model, call.arguments(), compute)


#: By the address of a tensor that stands for values of edges, their name and the relation.
_Names = Mapping[int, tuple[str, RelationName]]


def _some_call(
    model: TracedModel, schema: Schema, nodes: OwnedNodes, edge_values: Sequence[str]
) -> tuple[Call, _Names]:
    """Returns a call to trace: the first few nodes of each type, with some edges between."""
    plain = schema.is_plain
    names = [None] if plain else schema.node_types
    relations: Sequence[RelationName] = [None] if plain else schema.relations
    edge_index = torch.tensor([[2, 3], [0, 1]])
    structure = sampled_batch(
        {one: edge_index.clone() for one in relations},
        dict.fromkeys(names, 4),
        {one: [2, 2] for one in names},
        {one: [2] for one in relations},
    )
    assert structure is not None, "the edges lead from the last nodes to the first"
    x: dict[TypeName, Any] = {}
    for name, of_type in nodes.features.items():
        key, table = None if plain else name, of_type[nodes.rank]
        row = nodes.read(table, range(1)) if len(table) else table.new_zeros(1, table.size(1))
        angles = torch.arange(4 * row.size(1), dtype=torch.float64).view(4, -1)
        noise = torch.cos(angles) * (1 + row.abs().double().mean()) * row.is_floating_point()
        x[key] = ArgumentTensor(row + noise.to(row.dtype), Nodes(key, 1))
    edges = {one: ArgumentTensor(edge_index.clone(), BatchEdges(one, 1)) for one in relations}
    arguments, names_of = _arguments(model, x, edges, nodes, edge_values)
    if any(is_uninitialized_parameter(one) for one in model.parameters()):
        values = {name: mapped(one, lambda leaf: leaf.tensor()) for name, one in arguments.items()}
        model.users_forward(model, **values)
    for path, module in model.named_modules():
        if module is not model and must_be_called(module):
            raise LayerwiseError(f"{path} has hooks or is no longer as PyG made it")
    bound = Bound(arguments, structure, dict.fromkeys(names, 2))
    return Call(model, Tracing(model._batchgnn.trims), bound, list(model.modules())), names_of


def _captured(model: TracedModel, call: Call) -> CapturedFunction:
    function = CapturedFunction()

    def look(captured: Captured, values: Sequence[Any]) -> None:
        graph = call.translated(captured)
        wrong = graph.wrong or call.check(graph, call.inputs(graph, values))
        if wrong:
            raise Refusal(wrong)

    reason = call.look(function, look, exact=True)
    if reason is None:
        return function
    what = f"inference computes {type(model).__name__} layer by layer, but its forward was not captured"
    raise LayerwiseError(f"{what}, because {reason}")


def _arguments(
    model: TracedModel,
    x: Mapping[Any, Any],
    edges: Mapping[Any, Any],
    nodes: OwnedNodes,
    edge_values: Sequence[str],
) -> tuple[dict[str, Any], _Names]:
    kind = type(model).__name__
    parameters = list(inspect.signature(model.users_forward).parameters.values())[1:]
    by_place = [one for one in parameters if one.kind is one.POSITIONAL_OR_KEYWORD]
    required = [one.name for one in by_place if one.default is one.empty]
    takes = f"that of {kind} takes {', '.join(required) or 'nothing'}"
    if len(required) < 2:
        raise LayerwiseError(f"inference calls forward with rows and edges, but {takes}")
    if required[0] in _NO_FEATURES:
        fact = f"the first parameter of {kind} is {required[0]}"
        raise LayerwiseError(f"inference gives forward the features of nodes, but {fact}")
    given: dict[str, Mapping[Any, Any]] = {required[0]: x, required[1]: edges}
    named: dict[int, tuple[str, RelationName]] = {}
    if unknown := set(edge_values).difference(one.name for one in by_place):
        raise ValueError(f"edge_values names {min(unknown)}, which is no parameter of forward; leave it out")
    for name in dict.fromkeys((*required[2:], *edge_values)):
        try:
            tables = nodes.edge_tables(name.removesuffix("_dict"))
        except ValueError as error:
            fact = f"inference gives forward values of edges, but {takes}"
            raise LayerwiseError(fact, str(error)) from None
        of_edges: dict[Any, ArgumentTensor] = {}
        for relation, table in tables.items():
            key = relation if relation in edges else None
            values = torch.linspace(0.5, 1.0, 2 * table[:1].numel()).view(2, *table.shape[1:])
            of_edges[key] = ArgumentTensor(values.to(table.dtype), Edges(key, 1))
            named[id(of_edges[key].value)] = name.removesuffix("_dict"), key
        given[name] = of_edges
    return {name: one[None] if None in one else dict(one) for name, one in given.items()}, named


#: Attributes of batches that are values of nodes, but no features.
_NO_FEATURES = ("n_id", "n_id_dict", "input_id", "batch", "batch_dict", "y", "y_dict", "seed_time", "time")


@dataclass
class _Value:
    level: int  # the layer that makes it; 0 for what follows from the features row by row
    #: its columns in the table of sources, by the layer that makes the table
    columns: dict[int, tuple[int, int]] = field(default_factory=dict)
    #: [n, ...], if a later layer reads the rows of its own targets, or they are returned
    made: NewRows | None = None
    rows: Tensor | None = None  # the same, once the layer has computed all of them

    def finished(self, rank: int) -> Tensor | None:
        if self.rows is None and self.made is not None:
            self.rows = self.made.finish()[rank]
        return self.rows


class _Layers:
    def __init__(
        self, model: TracedModel, nodes: OwnedNodes, graph: Graph, inputs: Sequence[Any], names: _Names
    ) -> None:
        self._model, self._nodes, self._schema = model, nodes, nodes.schema
        self._recording, self._inputs = graph.recording, inputs
        self._program = Program(self._recording, model, seeds=True, layerwise=True)
        self._values: dict[int, _Value] = {}
        self._levels: dict[int, list[ProgramStep]] = {}
        self._last_use: dict[int, int] = {}
        self._sources: dict[int, dict[TypeName, list[int]]] = {}
        self._of_edges: list[ProgramStep] = []  # steps that make values of edges
        by_place = ((number, id(one)) for number, one in zip(self._recording.inputs, inputs, strict=True))
        #: the name and the relation of the inputs that are values of edges
        self._edge_values = {number: names[place] for number, place in by_place if place in names}
        self._order()

    def _order(self) -> None:
        if self._recording.decides or has_counts(self._recording.output):
            raise LayerwiseError(_USES_SIZES.format(""))
        for number in self._recording.inputs:
            if self._is_rows(number):
                self._values[number] = _Value(0)
        for step in self._program.steps:
            self._check(step)
            if any(isinstance(self._program.axes[one], _OF_EDGES) for one in step.results(self._program)):
                self._of_edges.append(step)
                continue
            read = [self._values[one].level for one in step.reads if one in self._values]
            fixed = self._recording.are_fixed(step.reads)
            convs = [call for call in step.calls if call.message_passing is not None]
            level = -1 if fixed else max(read, default=0) + bool(convs)
            self._levels.setdefault(level, []).append(step)
            for one in step.results(self._program):
                self._values[one] = _Value(level)
            for one in step.reads:
                self._last_use[one] = max(self._last_use.get(one, 0), level)
            for one in refs([(call.reads.sources, call.reads.rows) for call in convs]):
                name = self._name(one)
                of_type = self._sources.setdefault(level - 1, {}).setdefault(name, [])
                of_type += [] if one in of_type else [one]
        self.last = max(self._levels, default=0)
        if self.last < 1:
            raise LayerwiseError(_GOES_BY_CONVOLUTIONS.format(f"{type(self._model).__name__} has none"))
        for one in refs(self._recording.output):
            if isinstance(self._program.axes[one], _OF_EDGES):
                raise LayerwiseError(_GOES_BY_CONVOLUTIONS.format("forward returns values of edges"))
            self._last_use[one] = self.last + 1
        # Layers that read types which the layer before leaves as they are
        wanted = {level: {self._type(name) for name in of_type} for level, of_type in self._sources.items()}
        wanted[self.last] = set(self.node_types)
        for level, names in wanted.items():
            left = sorted(names - {target for _, _, target in self.convs(level)}) if level else []
            if left:
                where = f"layer {level} of {type(self._model).__name__}"
                raise LayerwiseError(_GOES_BY_CONVOLUTIONS.format(f"no edges lead to {left[0]} in {where}"))

    def _check(self, step: ProgramStep) -> None:
        values = dict(zip(self._recording.inputs, self._inputs, strict=True))
        if step.dropout is not None and rate_of(step.dropout[0], self._model, values) > 0.0:
            fact = f"inference is in evaluation mode, but a dropout is active ({step.dropout[0].where})"
            raise LayerwiseError(fact, "give it training=self.training")
        for part in step.parts or [step]:
            call = part.call
            if call.writes:
                fact = f"forward writes to a tensor of the model ({call.where})"
                raise LayerwiseError(f"inference computes nodes in pieces, but {fact}")
            if has_counts((call.args, call.kwargs)) and call.target not in rules.RESHAPES:
                raise LayerwiseError(_USES_SIZES.format(f" ({call.where})"))
            if call.by_row or call.message_passing is not None:
                continue
            axes = {self._program.axes[one] for one in part.reads} - {FIXED}
            if all(isinstance(one, BatchEdges) for one in axes):
                continue
            why = call.note or "it looks at other rows"
            raise LayerwiseError(f"inference computes every row by itself, but {why} ({call.where})")

    def _name(self, number: int) -> TypeName:
        axis: Any = self._program.axes[number]
        return axis.name

    def _type(self, name: TypeName) -> str:
        return self._schema.node_types[0] if name is None else name

    def _key(self, node_type: str) -> TypeName:
        return None if self._schema.is_plain else node_type

    def step(self, level: int) -> nn.LayerStep:
        names = dict.fromkeys(name for name, _ in self._edge_values.values())
        return nn.LayerStep(self.convs(level), self._computing(level), list(names), self._weights(level))

    def _convolutions(self, level: int) -> Iterator[tuple[Any, Any, Relation]]:
        for call in (one for step in self._levels.get(level, []) for one in step.calls):
            if call.message_passing is not None:
                axis: Any = self._program.axes[call.reads.edges.number]
                yield call, module_of(call, self._model), axis.name or self._schema.relations[0]

    def _weights(self, level: int) -> dict[Relation, str]:
        """Returns the name of the edge weights by which each relation's `GCNConv` normalises."""
        found: dict[Relation, str | None] = {}
        for call, conv, relation in self._convolutions(level):
            if not isinstance(conv, nn.GCNConv) or not conv.normalize:
                continue
            weight = refs(call.reads.values.get("edge_weight"))
            name = self._edge_values.get(weight[0], ("", None))[0] if weight else None
            if name == "" or found.setdefault(relation, name) != name:
                fact = f"which forward computes ({call.where})"
                raise LayerwiseError(f"a GCNConv divides by the weights of edges of other nodes, {fact}")
        return {relation: name for relation, name in found.items() if name is not None}

    def convs(self, level: int) -> dict[Relation, torch.nn.Module]:
        """Returns a convolution of each relation in a layer; of several the `GCNConv`."""
        found: dict[Relation, torch.nn.Module] = {}
        for _, conv, relation in self._convolutions(level):
            if relation not in found or isinstance(conv, nn.GCNConv):
                found[relation] = conv
        return found

    @property
    def node_types(self) -> list[str]:
        axes = [self._program.axes[one] for one in refs(self._recording.output)]
        return list(dict.fromkeys(self._type(one.name) for one in axes if isinstance(one, Nodes)))

    def inputs(self, chunk: Mapping[str, Tensor]) -> dict[str, Tensor]:
        ((name, rows),) = chunk.items()
        key = self._key(name)
        frame = self._frame(UnsampledGraph({}, {key: len(rows)}))
        self._give_inputs(frame, {key: rows})
        self._run(frame, 0, {key})
        return {name: self._table(frame, 0, key, rows)}

    def _give_inputs(self, frame: Frame, rows: Mapping[TypeName, Any]) -> None:
        for number in self._recording.inputs:
            axis = self._program.axes[number]
            if isinstance(axis, Nodes) and axis.name in rows:
                frame.values[number] = rows[axis.name]

    def _frame(self, structure: Any) -> Frame:
        frame = Frame(self._program, self._model, structure, {})
        frame.values.update(zip(self._recording.inputs, self._inputs, strict=True))
        for step in self._levels.get(-1, []):
            run_step(frame, step)
        return frame

    def _run(self, frame: Frame, level: int, types: Collection[TypeName]) -> None:
        for step in self._levels.get(level, []):
            names = {self._name(one) for one in step.results(self._program) if self._is_rows(one)}
            if not names or not names.isdisjoint(types):
                run_step(frame, step)

    def _is_rows(self, number: int) -> bool:
        return isinstance(self._program.axes[number], Nodes)

    def _table(self, frame: Frame, level: int, name: TypeName, otherwise: Tensor) -> Tensor:
        """Returns the rows that the next layer reads of a type's sources, columns side by side."""
        numbers = self._sources.get(level, {}).get(name, [])
        found = [take(frame, Ref(one), 0) for one in numbers]
        if any(one.dim() != 2 for one in found):
            raise LayerwiseError("inference keeps rows of two dimensions between layers")
        begin = 0
        for number, one in zip(numbers, found, strict=True):
            self._values[number].columns[level] = begin, begin + one.size(1)
            begin += one.size(1)
        if len(found) > 1:
            return torch.cat(found, dim=1)
        return found[0] if found else otherwise[:, :0]

    def _computing(self, level: int) -> Any:
        def compute(x: Mapping[str, nn.Rows], edges: Any) -> dict[str, Tensor]:
            structure = _Piece(edges, self._schema)
            frame, own = self._frame(structure), dict(edges.piece.targets)
            self._give_own(frame, own, level)
            self._give_sources(frame, x, level)
            for number in self._recording.inputs:
                axis = self._program.axes[number]
                if isinstance(axis, BatchEdges):
                    frame.values[number] = lambda relation=axis.name: structure.edge_index(relation)
            for number, (name, relation) in self._edge_values.items():
                by_relation = edges.piece.edge_values[name]
                frame.values[number] = by_relation.get(relation or self._schema.relations[0])
            for step in self._of_edges:
                for one in step.results(self._program):
                    frame.values[one] = partial(_made_by, frame, step, one)
            types = set(map(self._key, own))
            of_features = (number for number, value in self._values.items() if value.level == 0)
            if level == 1 or any(self._last_use.get(number, 0) >= level for number in of_features):
                self._run(frame, 0, types)
            self._give_sources(frame, x, level)
            self._run(frame, level, types)
            self._keep(frame, own, level)
            return {
                name: self._table(frame, level, self._key(name), torch.empty(len(span), 0))
                for name, span in own.items()
            }

        return compute

    def _give_own(self, frame: Frame, own: Mapping[str, range], level: int) -> None:
        for name, span in own.items():
            if name in self._nodes.features:
                own_rows = self._nodes.features[name][self._nodes.rank]
                self._give_inputs(frame, {self._key(name): partial(self._nodes.read, own_rows, span)})
        for number, value in self._values.items():
            rows = value.finished(self._nodes.rank) if 0 < value.level < level else None
            if rows is not None and (of_type := own.get(self._type(self._name(number)))) is not None:
                frame.values[number] = partial(self._nodes.read, rows, of_type)

    def _give_sources(self, frame: Frame, x: Mapping[str, nn.Rows], level: int) -> None:
        for name, rows in x.items():
            for number in self._sources.get(level - 1, {}).get(self._key(name), []):
                first, last = self._values[number].columns[level - 1]
                part = (rows.table if isinstance(rows, nn.RowView) else rows)[:, first:last]
                frame.values[number] = nn.RowView(part, rows.row) if isinstance(rows, nn.RowView) else part

    def _keep(self, frame: Frame, own: Mapping[str, range], level: int) -> None:
        returned = refs(self._recording.output)
        for number, value in self._values.items():
            used = value.level == level and self._last_use.get(number, 0) > level
            of_features = level == 1 and value.level == 0 and number in returned
            if not (used or of_features) or not self._is_rows(number):
                continue
            if (name := self._type(self._name(number))) not in own:
                continue
            rows = take(frame, Ref(number), 0)
            if value.made is None:
                value.made = self._nodes.keep(name, rows.shape[1:], rows.dtype)
            value.made.write(own[name].start, rows)

    def output(self) -> list[Any]:
        frame = self._frame(UnsampledGraph({}, {}))

        def value(leaf: Any) -> Any:
            if not isinstance(leaf, Ref):
                return leaf
            if self._program.axes[leaf.number] is FIXED:
                return frame.values[leaf.number]
            return self._values[leaf.number].finished(self._nodes.rank)

        return [value(one) for one in self._recording.output]


def _made_by(frame: Frame, step: ProgramStep, number: int) -> Any:
    run_step(frame, step)
    return frame.values[number]


_OF_EDGES = (Edges, BatchEdges)
_GOES_BY_CONVOLUTIONS = "inference goes from convolution to convolution, but {}"
_USES_SIZES = "inference computes nodes in pieces, but forward uses numbers of nodes or edges{}"


class _Piece:
    """Some nodes of a graph as a batch of one hop: targets are of hop 0, other sources of hop 1."""

    hops = 1

    def __init__(self, edges: Any, schema: Schema) -> None:
        self._edges, self._schema = edges, schema

    def counter(self, counter: Counter) -> int:
        kind, name, hop = counter
        if kind == "edges":
            found = self._graph(name)
            return 0 if hop == 0 or found is None else found.num_edges
        rows = self._edges.rows(self._schema.node_types[0] if name is None else name)
        return rows.num_targets if hop == 0 else max(0, rows.num_sources - rows.num_targets)

    def _graph(self, relation: RelationName) -> nn.LayerGraph | None:
        return self._edges.graph(self._schema.relations[0] if relation is None else relation)

    def graph(self, relation: RelationName, *_: Any) -> nn.LayerGraph:
        found = self._graph(relation)
        assert found is not None, "a piece has the edges of its relations"
        return found

    def edge_index(self, relation: RelationName) -> Tensor:
        graph = self.graph(relation)
        return torch.stack([graph.indices.long(), graph.targets])
