"""The jobs of ranks in test_typed.py: the stores of typed graphs."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from pyg_batchgnn.comm import Communicator, MessageKind
from pyg_batchgnn.data import Dataset
from pyg_batchgnn.partition import Part
from pyg_batchgnn.store import DistFeatureStore, DistGraphStore
from pyg_batchgnn.store.directory import edge_targets, internal_ids_by_type
from pyg_batchgnn.store.dist_features import group_name
from tests.partition.job_partition import CASES as PLAIN
from tests.partition.job_partition import graph
from tests.support.reference_partition import internal_ids_by_type as all_internal_ids
from tests.support.reference_partition import split_dataset
from tests.support.tiers import ALL
from tests.support.typed_datasets import CASES, typed_dataset


def data_sets() -> list[Dataset]:
    typed = [typed_dataset(*case) for case in (CASES if ALL else CASES[:2])]
    return typed + [graph(seed, nodes, edges, skew=skew) for seed, nodes, edges, skew in PLAIN]


def owners(dataset: Dataset, ranks: int) -> list[Tensor]:
    draw = torch.Generator().manual_seed(1)
    return [
        torch.randint(min(at % 2, ranks - 1), ranks, (nodes.num_nodes,), generator=draw)
        for at, nodes in enumerate(dataset.node_sets)
    ]


def parts(comm: Communicator) -> list[tuple[Dataset, Part]]:
    return [(one, split_dataset(one, owners(one, comm.size), comm.size, comm.rank)) for one in data_sets()]


def some(size: int, rank: int) -> Tensor:
    draw = torch.Generator().manual_seed(rank)
    return torch.randint(max(size, 1), (7 * rank + 3 if size else 0,), generator=draw)


def reads_and_writes(comm: Communicator) -> None:
    for dataset, part in parts(comm):
        for share in (True, False):
            store = DistFeatureStore(part, comm, share=share)
            for one in dataset.sets:
                masks = {f"{name}_mask" for name in getattr(one, "splits", {})}
                group = group_name(one.group, dataset.schema)
                named = [a for a in store.get_all_tensor_attrs() if a.group_name == group]
                assert {a.attr_name for a in named} == {*one.tables, *masks}
                index = some(one.num_rows, comm.rank)
                for name, table in one.tables.items():
                    found = store.get_tensor(group, name, index=index)
                    assert torch.equal(found, table[index])
                    assert store.get_tensor_size(group, name) == tuple(table.shape)
                    more = (table + 1).to(table.dtype)
                    store.put_tensor(more[index], group, name, index=index)
                    changed = torch.cat([some(one.num_rows, rank) for rank in range(comm.size)])
                    wanted = table.clone()
                    wanted[changed] = more[changed]
                    found = store.get_tensor(group, name, index=slice(None))
                    assert torch.equal(found, wanted)
                    store.put_tensor(table[index], group, name, index=index)
        if dataset.schema.has_names:
            with pytest.raises(KeyError, match="no node type 'venue'"):
                store.get_tensor("venue", "x", index=torch.arange(1))


def lookups(comm: Communicator) -> None:
    for dataset, part in parts(comm):
        internal = all_internal_ids(owners(dataset, comm.size), part.book)
        asked = {
            at: some(nodes.num_nodes, comm.rank)
            for at, nodes in enumerate(dataset.node_sets)
            if at != comm.rank
        }
        before = comm.counters.snapshot()
        found = internal_ids_by_type(part, comm, asked)
        spent = (comm.counters.snapshot() - before)[MessageKind.LOOKUP]
        assert spent.rounds == (2 if comm.size > 1 else 0) and found.keys() == asked.keys()
        for at, ids in asked.items():
            assert torch.equal(found[at], internal[at][ids])
        graph = DistGraphStore(part, comm)
        attrs = graph.get_all_edge_attrs()
        assert [attr.edge_type for attr in attrs] == list(dataset.schema.relations)
        for number, (attr, one) in enumerate(zip(attrs, dataset.edge_sets, strict=True)):
            own = part.relations[number].explicit_edge_ids()
            edges = torch.stack(graph.get_edge_index(attr))
            assert torch.equal(edges, one.edge_index[:, own].long())
            assert torch.equal(comm.all_gather(own).rows.sort().values, torch.arange(one.num_edges))
            ids = some(one.num_edges, comm.rank)
            targets = internal[dataset.schema.target_types[number]][one.edge_index[1][ids].long()]
            assert torch.equal(edge_targets(part, comm, ids, relation=number), targets)
        with pytest.raises((IndexError, KeyError)):
            graph.get_edge_index(("a", "b", "c"), "coo")
