"""The comparison of a new program with the graph that it was made of: rows and gradients.

The graph is run as it is, on all rows, with the plain ``forward`` of leaves; so nothing of the
user's code runs twice. Both are run on small parts of the batch, in float64, with copies of the
parameters that have random numbers in the place of zeros: a factor of zero hides rows that are
wrong.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor
from torch.nn.utils.stateless import _reparametrize_module
from torch.overrides import TorchFunctionMode
from torch_geometric.nn.conv import MessagePassing

from pyg_batchgnn.port import foreign, rules
from pyg_batchgnn.port.batches import ArgumentTensor
from pyg_batchgnn.port.capture import Captured, run_graph
from pyg_batchgnn.port.execution import Frame, run
from pyg_batchgnn.port.leaves import calm
from pyg_batchgnn.port.modules import Accelerated
from pyg_batchgnn.port.program import Program
from pyg_batchgnn.port.recording import BatchEdges, Count, Edges, Nodes, Ref, SeedIds, form_of
from pyg_batchgnn.port.structure import Copies, SampledBatch, Structure, UnsampledGraph, prefix, sampled_batch

#: Tensors of more elements are compared in their own dtype, without a copy.
_MOST_ELEMENTS = 1 << 24


def difference(trial: Trial, structure: Structure) -> str | None:
    """Returns how a program's rows or gradients differ from its graph's; None if they do not."""
    generator = torch.random.get_rng_state()
    try:
        small = list(small_batches(structure, trial.random))
        for batches, wide in ((small, True), (small, False), ([None], False)):
            if batches:
                try:
                    return trial.difference(batches, structure, wide)
                except _NoReferenceError as error:
                    reason = str(error)
        return f"its graph cannot be run by itself: {reason}"
    finally:
        torch.random.set_rng_state(generator)


class _NoReferenceError(Exception):
    """The captured graph itself fails on a part of the batch, or in float64."""


class _WithoutDropout(TorchFunctionMode):
    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func in rules.DROPOUTS:
            return args[0] if args else kwargs["input"]
        return func(*args, **(kwargs or {}))


@dataclass
class Trial:
    captured: Captured
    program: Program
    model: torch.nn.Module
    leaves: list[ArgumentTensor]  # the tensors of the arguments
    _values: Sequence[Any]  # of the placeholders, in the call that captured the graph
    _ids: Mapping[Any, Any] = field(default_factory=dict)  # by type, those of the nodes
    random: torch.Generator = field(default_factory=lambda: torch.Generator().manual_seed(5))

    def difference(self, batches: Sequence[Any], structure: Structure, wide: bool) -> str | None:
        grads = torch.is_grad_enabled() and not torch.is_inference_mode_enabled()
        for batch in batches:
            modes = torch.inference_mode(False), torch.set_grad_enabled(grads)
            # layers of the user's own were captured in the mode that they have
            layers = (one for one in self.model.modules() if isinstance(one, MessagePassing))
            kept = set(filter(foreign.is_users, layers))
            calmed = calm(self.model, kept.__contains__)
            with modes[0], modes[1], torch.autocast("cpu", enabled=False), calmed:
                tensors = [*self.model.named_parameters(), *self.model.named_buffers()]
                clones = {id(one): self._clone(one, wide) for _, one in tensors}
                learn = {
                    id(one): torch.nn.Parameter(clones[id(one)]) for _, one in tensors if one.requires_grad
                }
                clones |= learn
                named = {name: clones[id(one)] for name, one in tensors}
                hooks = torch.autograd.graph.saved_tensors_hooks(lambda one: one, lambda one: one)
                with _reparametrize_module(self.model, named), _WithoutDropout(), hooks:
                    reason = self._differs(batch, batch.structure if batch else structure, clones, wide)
            if reason is not None:
                return reason
        return None

    def _clone(self, one: Tensor, wide: bool) -> Tensor:
        made = one.detach()
        if made.numel() > _MOST_ELEMENTS:
            return made
        made = made.clone()
        if made.is_floating_point():
            made = made.double() if wide else made
            noise = torch.rand(made.shape, generator=self.random, dtype=torch.float64) + 0.5
            made = torch.where(made == 0, noise.to(made.dtype), made)
        return made

    def _differs(
        self, batch: SmallBatch | None, structure: Structure, clones: Mapping[int, Tensor], wide: bool
    ) -> str | None:
        try:
            inputs = self._inputs(batch, structure, clones, wide)
            buffers = [
                one for one in clones.values() if not one.requires_grad and one.numel() <= _MOST_ELEMENTS
            ]
            before = [one.clone() for one in buffers]
            expected = run_graph(self.captured, inputs, self.model, _pygs)
            for one, value in zip(buffers, before, strict=True):
                one.data.copy_(value)  # if ``forward`` wrote to it
        except Exception as error:
            raise _NoReferenceError(f"{type(error).__name__}: {error}") from error
        outputs = zip(expected, self.program.outputs, strict=True)
        expected = [self._first(one, output, structure) for one, output in outputs]
        try:
            ids = self._ids if batch is None else batch.ids(self._ids)
            frame = Frame(self.program, self.model, structure, {}, drops=False)
            found = run(frame, inputs, Copies(structure, ids, least=0.0))
        except Exception as error:
            return f"its rows could not be computed by themselves: {type(error).__name__}: {error}"
        tolerance = 1e-6 if wide else 3e-2
        for one, other in zip(expected, found, strict=True):
            if not _is_close(one, other, tolerance):
                return "its result differed from that of the plain forward"
        leaves = [one for one in (*inputs, *clones.values()) if _learns(one)]
        if leaves and not self._same_gradients(expected, found, leaves, tolerance):
            return "its gradients differed from those of the plain forward"
        return None

    def _inputs(
        self, batch: SmallBatch | None, structure: Structure, clones: Mapping[int, Tensor], wide: bool
    ) -> list[Any]:
        made: list[Any] = []
        for value, one in zip(self._values, self.captured.inputs, strict=True):
            place, dim = one.place, one.dim
            if one.leaf is not None:
                made.append(self._leaf(self.leaves[one.leaf], batch, wide))
            elif isinstance(place, Count):
                made.append(place.form.value(structure.counter))
            elif isinstance(place, ArgumentTensor) and dim is not None:
                form = form_of(place.axis, dim)
                made.append(value if form is None else form.value(structure.counter))
            elif isinstance(value, Tensor):
                made.append(clones[id(value)] if id(value) in clones else self._clone(value, wide))
            else:
                made.append(0.7 if isinstance(value, float) and value == 0.0 else value)
        return made

    def _leaf(self, leaf: ArgumentTensor, batch: SmallBatch | None, wide: bool) -> Tensor:
        value = leaf.tensor().detach() if batch is None else batch.value(leaf)
        if value.is_floating_point() and wide:
            value = value.double()
        needs = isinstance(leaf.value, Tensor) and leaf.value.requires_grad
        return value.clone().requires_grad_() if needs and torch.is_grad_enabled() else value.clone()

    def _first(self, one: Any, output: tuple[Any, int], structure: Structure) -> Any:
        leaf, hops = output
        axis = self.program.axes[leaf.number] if isinstance(leaf, Ref) else None
        return one[: prefix(structure, "nodes", axis.name, hops)] if isinstance(axis, Nodes) else one

    def _same_gradients(
        self, expected: Sequence[Any], found: Sequence[Any], leaves: Sequence[Tensor], tolerance: float
    ) -> bool:
        pairs = [each for each in zip(expected, found, strict=True) if _learns(each[0])]
        if not pairs:
            return not any(map(_learns, found))
        if not all(other.requires_grad for _, other in pairs):
            return False
        upstream = [
            torch.randn(one.shape, generator=self.random, dtype=torch.float64).to(one.dtype)
            for one, _ in pairs
        ]
        options = {"allow_unused": True, "materialize_grads": True, "retain_graph": True}
        both = [torch.autograd.grad(one, leaves, upstream, **options) for one in zip(*pairs, strict=True)]
        sizes = [float(one.abs().nan_to_num().amax()) for one in both[0] if one.numel()]
        floor = max(sizes, default=0.0) * (1e-12 if tolerance < 1e-3 else 1e-5)  # zero up to rounding
        return all(_is_close(one, other, tolerance, floor) for one, other in zip(*both, strict=True))


def _pygs(module: Any) -> Callable[..., Any]:
    if isinstance(module, Accelerated):
        return functools.partial(module.stands_for.forward, module)
    return module


def _learns(one: Any) -> bool:
    return isinstance(one, Tensor) and one.requires_grad


def _is_close(one: Any, other: Any, tolerance: float, floor: float = 0.0) -> bool:
    if not isinstance(one, Tensor) or not isinstance(other, Tensor):
        return bool(one == other)
    if one.shape != other.shape or one.dtype != other.dtype:
        return False
    if not one.is_floating_point():
        return torch.equal(one, other)
    wide = one.detach().double()
    scale = float(wide.abs().nan_to_num().amax()) if wide.numel() else 0.0
    far, other = tolerance * scale + 1e-12 + floor, other.detach().double()
    return torch.allclose(other, wide, rtol=tolerance, atol=far, equal_nan=True)


@dataclass
class SmallBatch:
    structure: Structure  # its nodes and edges
    nodes: Mapping[Any, Tensor]  # by type, the rows of its nodes in the batch
    edges: Mapping[Any, Tensor]  # by relation, the places of its edges
    edge_index: Mapping[Any, Tensor]  # by relation
    links: int = 0  # how many links it keeps; their ends are among its seeds

    def value(self, leaf: ArgumentTensor) -> Tensor:
        axis = leaf.axis
        if isinstance(axis, BatchEdges):
            return self.edge_index[axis.name]
        value = leaf.tensor().detach()
        if isinstance(axis, Nodes):
            return value[self.nodes[axis.name][: prefix(self.structure, "nodes", axis.name, axis.hops)]]
        if isinstance(axis, Edges):
            return value[self.edges[axis.name]]
        if isinstance(axis, SeedIds):
            return self._links(axis, value)
        return value

    def ids(self, ids: Mapping[Any, Any]) -> dict[Any, Tensor]:
        known = {name: one for name, one in ids.items() if isinstance(one, Tensor) and name in self.nodes}
        return {name: one[self.nodes[name]] for name, one in known.items()}

    def _links(self, axis: SeedIds, value: Tensor) -> Tensor:
        kept, name = value[..., : self.links], axis.name
        if isinstance(name, tuple):
            names = [name[0], name[2]] if value.dim() == 2 else [name[0]]
        else:
            names = [name if name in self.nodes else next(iter(self.nodes))]
        seeds = [max(1, self.structure.counter(("nodes", one, 0))) for one in names]
        return kept % torch.tensor(seeds, dtype=kept.dtype).view([-1] + [1] * (kept.dim() - 1))


def small_batches(structure: Structure, random: torch.Generator) -> Iterator[SmallBatch]:
    """Yields small parts of a batch, in several sizes; a sample's last has a seed node twice."""
    for number in range(2):
        if isinstance(structure, SampledBatch):
            yield _sampled(structure, number, random)
        elif isinstance(structure, UnsampledGraph):
            yield _unsampled(structure, number)


def _sampled(structure: SampledBatch, number: int, random: torch.Generator) -> SmallBatch:

    def some(count: int, like: Tensor) -> Tensor:
        return torch.randint(max(1, count), (like.numel(),), generator=random)

    nodes: dict[Any, Tensor] = {}
    edges: dict[Any, Tensor] = {}
    edge_index: dict[Any, Tensor] = {}
    per_hop: dict[Any, list[int]] = {}
    edges_per_hop: dict[Any, list[int]] = {}
    for name, of_type in structure.nodes.items():
        rows: list[Tensor] = []
        for hop, (first, count) in enumerate(_ranges(of_type.per_hop)):
            few = torch.arange(first, first + min(count, 3 + hop + number))
            rows.append(torch.cat([few, few[:1]]) if number and not hop else few)
        nodes[name], per_hop[name] = torch.cat(rows), list(map(len, rows))
    for relation, of_relation in structure.relations.items():
        source, _, target = relation or (None, None, None)
        ends, places = [torch.empty((2, 0), dtype=torch.int64)], [torch.empty(0, dtype=torch.int64)]
        each = zip(_ranges(per_hop[target]), _ranges(of_relation.edges_per_hop), strict=False)
        for hop, ((begin, new), (first, count)) in enumerate(each, 1):
            above = sum(per_hop[source][: hop + 1])
            targets = torch.arange(begin, begin + (new if count and above else 0))
            targets = targets.repeat_interleave((targets + 1) % 3)  # one, two or no in-edges
            ends.append(torch.stack([some(above, targets), targets]))
            places.append(first + some(count, targets))
        edge_index[relation], edges[relation] = torch.cat(ends, dim=1), torch.cat(places)
        edges_per_hop[relation] = list(map(len, places[1:]))
    counts = {name: len(rows) for name, rows in nodes.items()}
    made = sampled_batch(edge_index, counts, per_hop, edges_per_hop)
    assert made is not None, "edges by target, hop by hop"
    return SmallBatch(made, nodes, edges, edge_index, links=3 + 2 * number)


def _ranges(counts: Sequence[int]) -> list[tuple[int, int]]:
    return list(zip(itertools.accumulate(counts, initial=0), counts, strict=False))


def _unsampled(structure: UnsampledGraph, number: int) -> SmallBatch:
    nodes = {name: torch.arange(min(count, 17 + 6 * number)) for name, count in structure.nodes.items()}
    edges, edge_index = {}, {}
    for relation, index in structure.edge_index.items():
        source, _, target = relation or (None, None, None)
        counts = torch.tensor([[nodes[source].numel()], [nodes[target].numel()]])
        kept = min(index.size(1), 41 + 10 * number) if int(counts.min()) else 0
        edges[relation] = torch.arange(kept)
        edge_index[relation] = index[:, :kept] % counts.clamp(min=1).to(index.dtype)
    made = UnsampledGraph(edge_index, {name: one.numel() for name, one in nodes.items()})
    return SmallBatch(made, nodes, edges, edge_index)
