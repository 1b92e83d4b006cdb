"""The models of PyG that `accelerate` makes native."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, ClassVar

import torch
import torch_geometric.nn
from torch import Tensor
from torch_geometric.loader import NeighborLoader
from torch_geometric.nn.models.basic_gnn import BasicGNN

from pyg_batchgnn import nn, ops
from pyg_batchgnn.nn.models import LayerEnd, last_rows, run_layers, wrong_hops
from pyg_batchgnn.port.conditions import can_run, drops, left_to_pyg, takes_row_statistics
from pyg_batchgnn.port.inputs import (
    Accelerated,
    are_plain_edges,
    is_plain,
    is_symbolic,
    is_traced,
    refuse_batch,
    seeds_of,
)
from pyg_batchgnn.port.prefixes import PrefixEdges, known_prefixes, sorted_prefixes, with_drawn_keys


class AcceleratedModel(Accelerated, BasicGNN):
    """A model of PyG that `accelerate` made native.

    It is called as PyG's model is, with the same results, or as ``model(batch)``.
    """

    stands_for: ClassVar[type[BasicGNN]]

    #: True once a loss used other rows than the seeds.
    _uses_all_rows = False

    def forward(
        self,
        x: Any,
        edge_index: Any = None,
        edge_weight: Tensor | None = None,
        edge_attr: Tensor | None = None,
        batch: Tensor | None = None,
        batch_size: int | None = None,
        num_sampled_nodes_per_hop: list[int] | None = None,
        num_sampled_edges_per_hop: list[int] | None = None,
    ) -> Tensor:
        """Returns what PyG's model does, or for ``model(batch)`` the rows of the seed nodes.

        Weights and features of edges that a batch holds are used only if they are given:
        ``model(batch, edge_weight=batch.edge_weight)``.

        Args:
            x: [N, in_channels]; or a batch of a loader, in PyG's form or a native minibatch, whose
                features ``x`` are read.
            edge_index: the edges; left out for a batch.
            edge_weight: [E], for GCN.
            edge_attr: [E, edge_dim], for GAT.
            batch: for norms that take it.
            batch_size: for norms that take it.
            num_sampled_nodes_per_hop: leaves out rows layer by layer, as in PyG.
            num_sampled_edges_per_hop: leaves out edges layer by layer, as in PyG.

        Returns:
            As in PyG; [S, out_channels] for a batch.

        Raises:
            TypeError: a batch and edges were given.
        """
        values = EdgeValues(
            edge_weight if self.supports_edge_weight else None, edge_attr if self.supports_edge_attr else None
        )
        if is_symbolic(x, edge_index):  # torch.fx follows PyG's loop over the layers
            followed: Tensor = super().forward(
                x,
                edge_index,
                edge_weight,
                edge_attr,
                batch,
                batch_size,
                num_sampled_nodes_per_hop,
                num_sampled_edges_per_hop,
            )
            return followed
        if edge_index is None:
            return self._of_batch(x, values)
        refuse_batch(x, edge_index)
        nodes, edges = num_sampled_nodes_per_hop, num_sampled_edges_per_hop
        if self._takes(x, edge_index, values):
            if nodes is None and edges is None:
                return self._of_all_rows(x, edge_index, values)
            if isinstance(nodes, list) and isinstance(edges, list):
                found = self._trimmed(x, _prefixes(x, edge_index, nodes, edges), values)
                if found is not None:
                    return found
        result: Tensor = super().forward(
            x, edge_index, edge_weight, edge_attr, batch, batch_size, nodes, edges
        )
        return result

    def inference(
        self,
        loader: Any,
        device: Any = None,
        embedding_device: Any = "cpu",
        progress_bar: bool = False,
        cache: bool = False,
        memory_budget: int | str | None = None,
    ) -> Tensor:
        """Returns the output of all nodes, layer by layer, each node once from all its neighbours.

        Weights and features of edges that the data holds are not used.

        Args:
            loader: a loader of this package, of any fanouts and seed nodes. PyG's own loaders go to
                PyG's method.
            device: as in PyG; the CPU where None.
            embedding_device: as in PyG.
            progress_bar: shows the progress.
            cache: as in PyG; not needed with a loader of this package.
            memory_budget: bytes (or a text like "2GiB") of the pieces that are computed at once;
                chosen where None.

        Returns:
            [n, out_channels], one row per node that this process owns.

        Raises:
            TypeError: ``loader`` is no loader.
            ValueError: a module looks at all rows of a call, such as `GraphNorm`; or a part of the
                model is left to PyG, whose method needs a loader of all nodes and of one hop.
        """
        if hasattr(loader, "all_nodes"):
            nn.check_cpu(device, embedding_device)
        inferred = infer(self, loader, memory_budget, progress_bar)
        if inferred is None:
            inferred = super().inference(loader, device, embedding_device, progress_bar, cache)
        return inferred

    def _takes(self, x: Any, edge_index: Any, values: EdgeValues) -> bool:
        given = [one for one in (values.weight, values.attr) if one is not None]
        return (
            is_plain(x, _dtype(self))
            and are_plain_edges(edge_index)
            and all(one.dim() < 3 and one.size(0) == edge_index.size(1) for one in given)
            and not is_traced()
            and self._runs(values)
        )

    def _runs(self, values: EdgeValues) -> bool:
        return (
            (values.weight is None or values.weight.dim() == 1)
            and (values.attr is None or self.convs[0].lin_edge is not None)
            and can_run(self)
        )

    def _trimmed(self, x: Tensor, prefixes: PrefixEdges | None, values: EdgeValues) -> Tensor | None:
        """Returns the output as with PyG's `trim_to_layer`, which normalises the edges of each
        layer by themselves. Returns None for counts that do not fit."""
        if prefixes is None or prefixes.hops < self.num_layers or hasattr(self, "jk"):
            return None
        all_rows = takes_row_statistics(self)
        graphs = []
        for place in range(self.num_layers):
            hops = prefixes.hops - place
            whole = all_rows or place == self.num_layers - 1
            graphs.append(prefixes.graph(place + 1, hops, padded=whole))
        return run(self, x, self._keyed(graphs)[0], values)

    def _of_all_rows(self, x: Tensor, edge_index: Tensor, values: EdgeValues) -> Tensor:
        prefixes = known_prefixes(edge_index)
        if prefixes is None or prefixes.num_nodes != x.size(0):
            graph = nn.whole_graph(edge_index, x.size(0), x.size(0))
            return run(self, x, [graph] * self.num_layers, values)
        graphs = [prefixes.graph(place + 1, prefixes.hops, padded=True) for place in range(self.num_layers)]
        fits = prefixes.hops == self.num_layers
        graphs, seed_graphs = self._keyed(graphs, _seed_layers(prefixes, self.num_layers) if fits else [])
        every: Callable[[Tensor], Tensor] = functools.partial(run, self, graphs=graphs, values=values)
        splits = torch.is_grad_enabled() and not self._uses_all_rows and not takes_row_statistics(self)
        if not splits or not fits:
            return every(x)
        seeds = run(self, x, seed_graphs, values)
        with torch.no_grad():
            rows = every(x)
        given = [one for one in (x, values.weight, values.attr) if one is not None]
        leaves = [one for one in (*given, *self.parameters()) if one.requires_grad]
        if not leaves:
            return rows
        again = with_this_autocast(functools.partial(every, x))
        return with_seed_rows(rows, seeds, leaves, again, self._note_all_rows)

    def _keyed(self, *passes: list[nn.LayerGraph]) -> list[list[nn.LayerGraph]]:
        """Gives layers the keys of this call's dropout, if there is any."""
        return with_drawn_keys(*passes) if drops(self) else list(passes)

    def _note_all_rows(self) -> None:
        self._uses_all_rows = True

    def _of_batch(self, batch: Any, values: EdgeValues) -> Tensor:
        if nn.is_sampled(batch):
            return self._of_minibatch(batch, values)
        x, edge_index = getattr(batch, "x", None), getattr(batch, "edge_index", None)
        if x is None or edge_index is None:
            raise TypeError(
                f"expected a batch with x and edge_index, or model(x, edge_index), got {type(batch).__name__}"
            )
        seeds = seeds_of(batch, x.size(0))
        prefixes = None
        if self._takes(x, edge_index, values):
            counts = getattr(batch, "num_sampled_nodes", None), getattr(batch, "num_sampled_edges", None)
            prefixes = _prefixes(x, edge_index, *counts)
        if prefixes is None or prefixes.hops != self.num_layers or seeds > prefixes.nodes_per_hop[0]:
            return self.forward(x, edge_index, values.weight, values.attr)[:seeds]
        out = run(self, x, self._keyed(_seed_layers(prefixes, self.num_layers))[0], values)
        return out if out.size(0) == seeds else ops.first_rows(out, seeds)

    def _of_minibatch(self, minibatch: Any, values: EdgeValues) -> Tensor:
        if "x" not in minibatch.block:
            raise ValueError("the minibatch carries no features 'x'; give them to the loader's data")
        hops, layers = nn.num_sampled_layers(minibatch), self.num_layers
        if hops not in (None, layers):
            raise wrong_hops(layers, hops)
        rows = nn.RowView(minibatch.block["x"], minibatch.row)
        if is_traced() or not self._runs(values):
            return self.forward(rows.gather(), minibatch.edge_index, values.weight, values.attr)[
                : minibatch.batch_size
            ]
        graphs = [nn.layer_graph(minibatch, place + 1) for place in range(layers)]
        out, seeds = run(self, rows, self._keyed(graphs)[0], values), minibatch.batch_size
        return out if out.size(0) == seeds else ops.first_rows(out, seeds)


def _dtype(model: torch.nn.Module) -> torch.dtype:
    return next(model.parameters()).dtype


def _prefixes(x: Tensor, edge_index: Tensor, nodes: Any, edges: Any) -> PrefixEdges | None:
    if not isinstance(nodes, list) or not isinstance(edges, list) or sum(nodes) != x.size(0):
        return None
    known = known_prefixes(edge_index)
    if known is not None and known.nodes_per_hop == nodes and known.edges_per_hop == edges:
        return known
    return sorted_prefixes(edge_index, nodes, edges)


def _seed_layers(prefixes: PrefixEdges, layers: int) -> list[nn.LayerGraph]:
    """Returns the layers with the rows that the seeds need, normalised as the whole batch is."""
    hops = prefixes.hops
    return [
        prefixes.graph(place + 1, hops - place, padded=False, normalised_by=hops)
        for place in range(layers)
    ]


class AcceleratedGraphSAGE(AcceleratedModel, torch_geometric.nn.GraphSAGE):
    stands_for = torch_geometric.nn.GraphSAGE


class AcceleratedGCN(AcceleratedModel, torch_geometric.nn.GCN):
    stands_for = torch_geometric.nn.GCN


class AcceleratedGIN(AcceleratedModel, torch_geometric.nn.GIN):
    stands_for = torch_geometric.nn.GIN


class AcceleratedGAT(AcceleratedModel, torch_geometric.nn.GAT):
    stands_for = torch_geometric.nn.GAT


# The loop over the layers #########################################################################


@dataclass(frozen=True)
class EdgeValues:
    """Weights or features of the edges, in the order of ``edge_index``.

    Attributes:
        weight: [E], for GCN.
        attr: [E, edge_dim], for GAT.
    """

    weight: Tensor | None = None
    attr: Tensor | None = None

    def of(self, graph: nn.LayerGraph) -> dict[str, Tensor]:
        found = {}
        if self.weight is not None:
            found["edge_weight"] = self.weight[: (graph.whole or graph).num_edges]
        if self.attr is not None:
            found["edge_attr"] = self.attr[: graph.num_edges]
        return found


def run(
    model: BasicGNN, x: Tensor | nn.RowView, graphs: Sequence[nn.LayerGraph], values: EdgeValues
) -> Tensor:
    """Returns the model's output for the targets of the last layer.

    Args:
        x: the rows of the sources of the first layer.
        graphs: the edges of each layer. The targets of one are the sources of the next.
    """

    def compute(index: int, rows: Tensor | nn.RowView) -> Tensor:
        return compute_layer(model, index, rows, graphs[index], values.of(graphs[index]))

    knowledge = getattr(model, "jk", None)
    _, results = run_layers(compute, len(graphs), x, keep_all=knowledge is not None)
    out = last_rows(results, graphs[-1].num_targets, knowledge)
    return model.lin(out) if hasattr(model, "lin") else out


def compute_layer(
    model: BasicGNN,
    index: int,
    x: Tensor | nn.RowView,
    graph: nn.LayerGraph,
    values: Mapping[str, Tensor] = MappingProxyType({}),
) -> Tensor:
    """Returns the rows of layer ``index``, counted from 0, with what follows it.

    Norms, activations and dropouts of other classes than torch's own are called as they are.
    ``values`` are arguments of the convolution.
    """
    conv = model.convs[index]

    def convolve(update: nn.Update | None) -> Tensor:
        rows: Tensor = conv(x, graph, **({} if update is None else {"update": update}), **values)
        return rows

    if index == model.num_layers - 1 and model.jk_mode is None:
        return convolve(None)
    is_torchs = type(model.dropout) is torch.nn.Dropout
    drop = model.dropout.p if is_torchs and model.dropout.training else 0.0
    end = LayerEnd(model.norms[index], model.act, model.act_first, drop, conv.training)
    out = end.apply(convolve, lambda: (graph.dropout_key(), graph.node))
    return out if is_torchs else model.dropout(out)


# Outputs of all nodes of a batch whose gradient comes from the seed nodes alone ###################
#
# Most scripts compute the output of every node of a batch and keep the rows of the seeds. The rows
# of the seeds are computed with what the backward pass needs. The other rows are values only. If a
# gradient of other rows arrives, the layers are computed once more for it.


def with_seed_rows(
    values: Tensor,
    seeds: Tensor,
    leaves: Sequence[Tensor],
    again: Callable[[], Tensor],
    used: Callable[[], None],
) -> Tensor:
    """Puts the rows of the seeds above the values of the other rows.

    Args:
        values: [N, C], without a gradient; overwritten.
        seeds: [S, C], the rows of the seeds, with their gradient.
        leaves: the tensors that take a gradient from the other rows.
        again: computes all rows once more, with gradients of the leaves.
        used: is called if a gradient of other rows arrived.

    Returns:
        [N, C], in the memory of ``values``.
    """
    result: Tensor = _SeedRows.apply(values, seeds, again, used, *leaves)
    return result


def with_this_autocast(compute: Callable[[], Tensor]) -> Callable[[], Tensor]:
    dtype, enabled = torch.get_autocast_dtype("cpu"), torch.is_autocast_enabled("cpu")

    def again() -> Tensor:
        with torch.autocast("cpu", dtype, enabled=enabled):
            return compute()

    return again


class _SeedRows(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        values: Tensor,
        seeds: Tensor,
        again: Callable[[], Tensor],
        used: Callable[[], None],
        *leaves: Tensor,
    ) -> Tensor:
        values[: seeds.size(0)] = seeds
        ctx.mark_dirty(values)
        ctx.count, ctx.again, ctx.used, ctx.leaves = seeds.size(0), again, used, leaves
        return values

    @staticmethod
    @ops.first_order
    def backward(ctx: Any, *grads: Tensor) -> tuple[Any, ...]:
        (grad,) = grads
        seeds, rest = grad[: ctx.count], grad[ctx.count :]
        nothing = (None,) * len(ctx.leaves)
        if not rest.any():
            return None, seeds, None, None, *nothing
        ctx.used()
        with torch.enable_grad():
            out = ctx.again()
        others = torch.cat([torch.zeros_like(seeds), rest])
        found = torch.autograd.grad(out, ctx.leaves, others, allow_unused=True)
        return None, seeds, None, None, *found


# The inference of all nodes #######################################################################


def infer(model: BasicGNN, loader: Any, memory_budget: int | str | None, progress: bool) -> Tensor | None:
    """Returns the output of all nodes, or None if PyG's method computes it. ``loader``: PyG's
    method takes PyG's loaders, and every loader if a part of the model is left to PyG."""
    if not hasattr(loader, "all_nodes"):
        if not isinstance(loader, NeighborLoader):
            raise TypeError(
                f"inference takes a MacrobatchNeighborLoader or PyG's NeighborLoader, got "
                f"{type(loader).__name__}"
            )
        return None
    nn.check_row_wise(model.modules())
    left = left_to_pyg(model)
    if left is not None:
        _check_for_pyg(model, loader, left)
        return None
    nodes = nn.nodes_of(loader, memory_budget, progress)
    return nn.infer_model(model, nodes, functools.partial(compute_layer, model)).rows


def _check_for_pyg(model: BasicGNN, loader: NeighborLoader, left: str) -> None:
    """Refuses what PyG's ``inference`` cannot compute; it only asserts what it needs."""
    hops, seeds, nodes = len(loader.node_sampler.num_neighbors), len(loader.dataset), loader.data.num_nodes
    if model.jk_mode not in (None, "last"):
        raise ValueError(
            f"{left}, and PyG's inference knows no jk={model.jk_mode!r}; call the model on the whole graph"
        )
    if hops != 1 or seeds != nodes:
        raise ValueError(
            f"{left}, and PyG's inference needs a loader of all {nodes} nodes and of one hop, but this one "
            f"has {seeds} seed nodes and {hops} hops; give it num_neighbors=[-1] and input_nodes=None"
        )
    if model.training:
        raise ValueError(f"{left}, and PyG's inference needs evaluation mode; call model.eval() before")
