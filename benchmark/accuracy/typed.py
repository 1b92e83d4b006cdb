"""Typed graphs and links: native layers, and PyG's with the same weights at the start.

Both train on the minibatches of this package's loaders, and a pair has the same ones. Types without
features get random ones, which are the same everywhere.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import cache
from typing import Any

import torch
import torch_geometric.nn as pyg
from torch import Tensor
from torch_geometric.data import HeteroData

from benchmark.accuracy.tasks import LinkTask, Relation, TypedTask
from benchmark.networks.basic import KINDS
from benchmark.networks.recipe import DROPOUT, HEADS, LinkTrainer, StepTrainer
from pyg_batchgnn import MacrobatchLinkNeighborLoader, MacrobatchNeighborLoader, nn
from pyg_batchgnn.data import Dataset, load_dataset
from pyg_batchgnn.train.link_tasks import RankCounts

#: Links that are ranked together.
_PIECE = 1024
_NATIVE: dict[str, Callable[..., nn.NativeModel]] = {"sage": nn.SAGE, "gat": nn.GAT}
_OPTIONS: dict[str, dict[str, Any]] = {
    "sage": {},
    "gat": {"heads": HEADS, "add_self_loops": False, "residual": True},  # no loops between two types
}


@cache
def named_graph(name: str) -> Dataset:
    """Returns a data set with names of types, also a homogeneous one."""
    return replace(load_dataset(name), has_names=True)


@cache
def graph_data(name: str) -> HeteroData:
    """Returns the edges of a graph, and features of every type."""
    dataset = named_graph(name)
    known = {one.name: one.tables["x"].float() for one in dataset.node_sets if "x" in one.tables}
    columns = next(iter(known.values())).size(1)
    data = dataset.without_attributes().to_pyg()
    for number, nodes in enumerate(dataset.node_sets):
        generator = torch.Generator().manual_seed(number)
        drawn = torch.randn(nodes.num_nodes, columns, generator=generator)
        data[nodes.name].x = known.get(nodes.name, drawn)
    return data


class TypedSide:
    """A typed model on the layers of one side.

    Args:
        side: ``native``, or ``ours`` for PyG's layers.
        task: of the comparison.
        outputs: the columns of the output.
        seed: of the initial weights.

    Attributes:
        model: the model.
        data: the graph.
        loading: the arguments of the loader.
    """

    def __init__(self, side: str, task: TypedTask | LinkTask, outputs: int, seed: int) -> None:
        self.data = graph_data(task.dataset)
        dropout = task.dropout if isinstance(task, TypedTask) else DROPOUT
        options, metadata = {"dropout": dropout, **_OPTIONS[task.model]}, self.data.metadata()
        shape = (next(iter(self.data.x_dict.values())).size(1), task.hidden, len(task.fanouts), outputs)
        torch.manual_seed(seed)
        native = nn.to_hetero(_NATIVE[task.model](*shape, **options), metadata)
        self._is_native, self.model = side == "native", native
        if not self._is_native:
            self.model = pyg.to_hetero(KINDS[task.model](*shape, **options), metadata)
            self.model.load_state_dict(native.state_dict())
        self.loading: dict[str, Any] = {
            "num_neighbors": list(task.fanouts),
            "replace": task.replace,
            "batch_size": task.batch_size,
            "shuffle": True,
            "seed": seed,
            "threads": 1,
            "export": "native" if self._is_native else "pyg",
        }

    def rows(self, batch: Any) -> dict[str, Tensor]:
        """Returns the output by node type, seed nodes first."""
        found: dict[str, Tensor]
        found = self.model(batch) if self._is_native else self.model(batch.x_dict, batch.edge_index_dict)
        return found

    def everywhere(self) -> dict[str, Tensor]:
        """Returns the output of all nodes by node type, from all neighbours."""
        found: dict[str, Tensor] = self.model(self.data.x_dict, self.data.edge_index_dict)
        return found

    def seeds(self, batch: Any, node_type: str) -> Tensor:
        """Returns the ids of the seed nodes of a type."""
        if self._is_native:
            nodes = batch.nodes_of(node_type)
            return nodes.node[: nodes.nodes_per_hop[0]]
        found: Tensor = batch[node_type].n_id[: batch[node_type].batch_size]
        return found

    def pairs(self, batch: Any, relation: Relation) -> tuple[Tensor, Tensor]:
        """Returns the rows of sources above those of targets, and the labels of pairs."""
        if self._is_native:
            (links,) = batch.links
            return links.index, links.label
        return batch[relation].edge_label_index, batch[relation].edge_label


class TypedTraining:
    """The training of classes of nodes on one side; see `worker.Training`."""

    def __init__(self, side: str, task: TypedTask, seed: int) -> None:
        nodes = named_graph(task.dataset).nodes_of(task.node_type)
        self._type, self._y, self._splits = task.node_type, nodes.tables["y"], nodes.splits
        self._side = TypedSide(side, task, nodes.num_classes, seed)
        self.model = self._side.model
        self._trainer = StepTrainer(self.model)
        self.minibatches = MacrobatchNeighborLoader(
            self._side.data, input_nodes=(task.node_type, nodes.splits["train"]), **self._side.loading
        )

    def step(self, batch: Any) -> None:
        """Trains on a minibatch."""
        seeds = self._side.seeds(batch, self._type)
        self._trainer.step(self._side.rows(batch)[self._type][: len(seeds)], self._y[seeds])

    def measure(self) -> tuple[float, float]:
        """Returns the validation and the test accuracy."""
        right = self._side.everywhere()[self._type].argmax(dim=1) == self._y
        validation, test = (float(right[self._splits[part]].float().mean()) for part in ("val", "test"))
        return validation, test


class LinkTraining:
    """The training of links on one side; see `worker.Training`."""

    def __init__(self, side: str, task: LinkTask, seed: int) -> None:
        self._task, self._side = task, TypedSide(side, task, task.hidden, seed)
        self.model = self._side.model
        self._trainer = LinkTrainer(self.model)
        known = named_graph(task.dataset).edges_of(task.relation).links
        links = known["train"].index.long()
        chosen = torch.randperm(links.size(1), generator=torch.Generator().manual_seed(0))[: task.links]
        self._ranked = [known[part].index.long() for part in ("val", "test")]
        self.minibatches = MacrobatchLinkNeighborLoader(
            self._side.data,
            edge_label_index=(task.relation, links[:, chosen]),
            neg_sampling="binary",
            exclude_seed_edges={task.relation: task.reverse},
            **self._side.loading,
        )

    def step(self, batch: Any) -> None:
        """Trains on a minibatch."""
        rows, (index, label) = self._side.rows(batch), self._side.pairs(batch, self._task.relation)
        source, _, target = self._task.relation
        self._trainer.step(rows[source][index[0]], rows[target][index[1]], label)

    def measure(self) -> tuple[float, float]:
        """Returns the validation and the test MRR."""
        rows = self._side.everywhere()
        validation, test = (self._mrr(rows, links) for links in self._ranked)
        return validation, test

    def _mrr(self, rows: dict[str, Tensor], links: Tensor) -> float:
        """Ranks the target of each link among others, drawn evenly and always the same."""
        source, target = (rows[one] for one in (self._task.relation[0], self._task.relation[2]))
        shape, generator = (links.size(1), self._task.negatives), torch.Generator().manual_seed(0)
        others = torch.randint(target.size(0), shape, generator=generator)
        found = []
        for pairs, drawn in zip(links.T.split(_PIECE), others.split(_PIECE), strict=True):
            ends = torch.cat([pairs[:, 1:], drawn], dim=1)
            scores = (source[pairs[:, :1]] * target[ends]).sum(dim=-1)
            found.append(RankCounts.among_own(scores[:, 0], scores[:, 1:]).reciprocal())
        return float(torch.cat(found).mean())
