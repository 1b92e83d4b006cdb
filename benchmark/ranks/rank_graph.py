"""A rank's partition in memory, its loaders and its networks."""

from __future__ import annotations

import dataclasses
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from pyg_batchgnn import AggregationCache, MacrobatchNeighborLoader
from pyg_batchgnn.comm import Communicator
from pyg_batchgnn.data import Group
from pyg_batchgnn.nn.models import SAGE, to_hetero
from pyg_batchgnn.ops import InEdges
from pyg_batchgnn.partition import Part, load_partition
from pyg_batchgnn.store import DistFeatureStore, DistGraphStore, replicate_topology

Answer = dict[str, Any]


class RankGraph:
    """A partition in memory, with stores for both kinds of topology."""

    def __init__(self, comm: Communicator, options: Answer) -> None:
        self.comm, self.options = comm, options
        self.part = in_memory(load_partition(options["partition"], comm))
        self.features = DistFeatureStore(self.part, comm)
        self.topology = replicate_topology(self.part, comm) if options.get("hybrid") else None

    @cached_property
    def seed_group(self) -> Group:
        """The node type that has training nodes."""
        splits = self.part.splits
        return next(one for one in self.part.schema.node_groups if "train" in splits.get(one, {}))

    @property
    def seed_type(self) -> str:
        """The name of `seed_group`."""
        return str(self.seed_group.name)

    def classes(self) -> int:
        """Returns the number of all ranks' together."""
        return int(self.comm.max(int(self.part.attributes[self.seed_group]["y"].max()))) + 1

    def sage(self) -> torch.nn.Module:
        """Returns SAGE with a layer per fanout, and per relation where there are several types.

        It returns the logits of the seed nodes alone.
        """
        part, options = self.part, self.options
        torch.manual_seed(0)
        columns, layers = part.attributes[self.seed_group]["x"].shape[1], len(options["fanouts"])
        model = SAGE(columns, options["hidden"], layers, self.classes(), dropout=0.5)
        schema = part.schema
        if not schema.has_names:
            return model
        return LogitsOfType(to_hetero(model, (schema.node_types, schema.relations)), self.seed_type)

    def seeds(self) -> Tensor:
        """Returns the training nodes of all ranks, every n-th where fewer are asked for."""
        part, group = self.part, self.seed_group
        own = part.original_ids(part.schema.type_number(self.seed_type))[part.splits[group]["train"]]
        rows = self.comm.all_gather(own).rows.sort().values
        wanted = min(self.options.get("seeds") or rows.numel(), rows.numel())
        return rows[torch.arange(wanted) * rows.numel() // wanted]

    def loader(self, macrobatch: int, **arguments: Any) -> MacrobatchNeighborLoader:
        """Returns a loader of native minibatches, ``macrobatch`` of them made together (0: all)."""
        options = self.options
        size = macrobatch or 1 << 20
        seeds = self.seeds()
        return MacrobatchNeighborLoader(
            (self.features, DistGraphStore(self.part, self.comm, self.topology)),
            options["fanouts"],
            (self.seed_type, seeds) if self.part.schema.has_names else seeds,
            batch_size=options["batch_size"],
            shuffle=True,
            seed=0,
            threads=1,
            export="native",
            macrobatch_size=size,
            schedule="local",
            **{"fetch_size": size, **arguments},
        )

    def aggregates(self, kind: str, memory_budget: int | None = None) -> AggregationCache:
        """Makes an aggregation cache; collective."""
        stores = self.features, DistGraphStore(self.part, self.comm)
        return AggregationCache.build(stores, kind, memory_budget=memory_budget, threads=1)


class LogitsOfType(torch.nn.Module):
    """A typed model's logits of one type, as DistributedDataParallel needs its module's output."""

    def __init__(self, model: torch.nn.Module, node_type: str) -> None:
        super().__init__()
        self.model, self.node_type = model, node_type

    def forward(self, minibatch: Any) -> Tensor:
        """Returns [S, classes]."""
        logits: Tensor = self.model(minibatch)[self.node_type]
        return logits


def in_memory(part: Part) -> Part:
    """A part whose arrays are mapped from files, copied."""
    copied: Part = _copied(part)
    return copied


def _copied(value: Any) -> Any:
    """Returns a value of dataclasses and dicts with copies of its tensors."""
    if isinstance(value, Tensor):
        return value.clone()
    if isinstance(value, dict):
        return {name: _copied(one) for name, one in value.items()}
    if isinstance(value, tuple):
        return tuple(map(_copied, value))
    if isinstance(value, (Part, InEdges)):
        fields = {one.name: _copied(getattr(value, one.name)) for one in dataclasses.fields(value)}
        return dataclasses.replace(value, **fields)
    return value
