"""Typed data sets with odd shapes: types without nodes, relations without edges, attributes of some
types only."""

from __future__ import annotations

from collections.abc import Sequence

import hypothesis.strategies as st
import numpy as np
import torch
from torch import Tensor

from pyg_batchgnn.data import Dataset, EdgeSet, NodeSet, Relation, Schema
from tests.support.typed_graphs import SCHEMAS


def typed_dataset(seed: int, schema: Schema, nodes: Sequence[int], edges: Sequence[int]) -> Dataset:
    """Returns a data set, the same for the same arguments. ``nodes``: of each type; fewer numbers
    are repeated. ``edges``: of each relation, likewise; none where an end has no nodes."""
    random = np.random.default_rng(seed)
    node_sets = [
        _nodes(random, name, nodes[at % len(nodes)], at) for at, name in enumerate(schema.node_types)
    ]
    counts = {one.name: one.num_nodes for one in node_sets}
    edge_sets = [
        _edges(random, relation, counts, edges[at % len(edges)], at)
        for at, relation in enumerate(schema.relations)
    ]
    return Dataset(f"typed {seed}", tuple(node_sets), tuple(edge_sets))


def _nodes(random: np.random.Generator, name: str, count: int, at: int) -> NodeSet:
    order = torch.from_numpy(random.permutation(count))
    tables = {
        "x": torch.from_numpy(random.standard_normal((count, 2 + at), dtype=np.float32)),
        "y": torch.from_numpy(random.integers(0, 5, count)),
        "time": torch.from_numpy(random.integers(0, 1 << 40, count)),
    }
    kept = [("x", "y", "time"), (), ("time",), ("x",)][at % 4]
    train, val = order[: count // 2], order[count // 2 : count * 3 // 4]
    splits = [{"train": train, "val": val}, {}, {"train": train}][at % 3]
    return NodeSet(name, count, {key: tables[key] for key in kept}, splits, 5 if "y" in kept else 0)


def _edges(
    random: np.random.Generator, relation: Relation, nodes: dict[str, int], count: int, at: int
) -> EdgeSet:
    ends = [nodes[relation[0]], nodes[relation[2]]]
    count = count if min(ends) else 0
    pairs = [(random.random(count) ** 2 * end).astype(np.int64) for end in ends]
    edge_index = torch.from_numpy(np.stack(pairs))
    tables: dict[str, Tensor] = {
        "weight": torch.from_numpy(random.random(count)),
        "edge_attr": torch.from_numpy(random.standard_normal((count, 3)).astype(np.float16)),
    }
    kept = [("weight", "edge_attr"), (), ("weight",)][at % 3]
    dtype = [torch.int64, torch.int32][at % 2]
    return EdgeSet(relation, edge_index.to(dtype), {key: tables[key] for key in kept})


#: seed, schema, nodes of each type, edges of each relation
CASES = [
    (1, SCHEMAS[3], (40, 60, 5, 3), (200, 200, 300, 50)),
    (2, SCHEMAS[3], (1, 0, 30, 0), (40,)),
    (3, SCHEMAS[2], (30, 3), (90,)),
    (4, SCHEMAS[1], (50,), (100, 0)),
    (5, Schema(("a", "b"), ()), (7, 9), (0,)),
    (6, SCHEMAS[3], (0,), (5,)),
]


@st.composite
def typed_datasets(draw: st.DrawFn) -> Dataset:
    nodes, edges = st.sampled_from([0, 1, 2, 7, 30]), st.sampled_from([0, 1, 20, 150])
    return typed_dataset(
        draw(st.integers(0, 99)),
        draw(st.sampled_from(SCHEMAS)),
        draw(st.lists(nodes, min_size=4, max_size=4)),
        draw(st.lists(edges, min_size=5, max_size=5)),
    )
