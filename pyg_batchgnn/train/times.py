"""The times of a run with ``time_attr``: of nodes, edges and links."""

from __future__ import annotations

import torch
from torch import Tensor

from pyg_batchgnn.data import Clock, Dataset, EdgeSet, FolderKeys
from pyg_batchgnn.train.config.train_config import TrainConfig
from pyg_batchgnn.train.errors import TrainError
from pyg_batchgnn.train.link_tasks import PredictedLinks
from pyg_batchgnn.types import Group

_ALWAYS = torch.iinfo(torch.int64).min  # the time of nodes that exist always
_NEVER = torch.iinfo(torch.int64).max


def times_of(dataset: Dataset, config: TrainConfig) -> dict[Group, Tensor]:
    """Returns the times of nodes and edges, [rows] int64 by group; empty in a run without
    ``time_attr``. Raises `TrainError` if no type has the attribute, or one has no int64 times."""
    name = config.sampling.time_attr
    if name is None:
        return {}
    found = {one.group: one.tables[name] for one in dataset.sets if name in one.tables}
    if not found:
        known = sorted({key for one in dataset.sets for key, table in one.tables.items() if is_time(table)})
        there = f"it has int64 attributes {', '.join(known)}" if known else "it has no int64 attribute"
        raise TrainError(f"sampling.time_attr is {name}, but {dataset.name} has no such attribute; {there}")
    for group, table in found.items():
        if not is_time(table):
            kind = f"{str(table.dtype).removeprefix('torch.')} {list(table.shape)}"
            raise TrainError(
                f"{dataset.name}: the times {name!r} of {group} are {kind}; store one int64 for each, in a "
                f"unit that keeps what matters"
            )
    return found


def freeze_of(config: TrainConfig) -> int | None:
    """Returns the time after which nothing is sampled, or None. Raises `DatasetError`."""
    if config.sampling.freeze is None:
        return None
    keys = FolderKeys.of(config.run.dataset)
    return (Clock() if keys is None else keys.clock).moment(str(config.sampling.freeze))


def is_time(table: Tensor) -> bool:
    return table.dtype is torch.int64 and table.numel() == len(table)


def of_type(dataset: Dataset, group: Group | str) -> str:
    return f" of type {str(group)!r}" if dataset.has_names else ""


def link_times(dataset: Dataset, links: PredictedLinks, split: str, name: str) -> Tensor:
    """Returns [n] int64, the times of a split's links: their own attribute ``name``, else the
    edges'. Raises `TrainError` if there are none, or if a link is no edge or several edges."""
    found = links.split(split)
    if not len(found):
        return torch.empty(0, dtype=torch.int64)
    what = f"{dataset.name}: the links of {split}"
    if name in found.tables:
        table = found.tables[name]
        if not is_time(table):
            kind = f"{str(table.dtype).removeprefix('torch.')} {list(table.shape)}"
            raise TrainError(f"{what} have {name!r} as {kind}; store one int64 for each")
        return table.reshape(-1)
    edges = dataset.edges_of(links.relation)
    if name not in edges.tables:
        raise TrainError(
            f"{what} have no attribute {name!r}, and neither have the edges of {'-'.join(links.relation)}; "
            f"put the time of each link into links/.../{split}/{name}.npy"
        )
    return _times_of_pairs(edges, found.index, links.num_targets, name, what)


def _times_of_pairs(edges: EdgeSet, index: Tensor, num_targets: int, name: str, what: str) -> Tensor:
    times = edges.tables[name].reshape(-1)
    if index.shape == edges.edge_index.shape and torch.equal(index.long(), edges.edge_index.long()):
        return times
    keys, wanted = (ends[0].long() * num_targets + ends[1].long() for ends in (edges.edge_index, index))
    keys, order = keys.sort(stable=True)
    first, last = torch.searchsorted(keys, wanted), torch.searchsorted(keys, wanted, right=True)
    bad = (last - first != 1).nonzero().view(-1)
    if len(bad):
        at = int(bad[0])
        count = int(last[at] - first[at])
        raise TrainError(
            f"{what} have no attribute {name!r}, and link {index[:, at].tolist()} is {count} edges, so its "
            f"time is not known; put the time of each link beside the links, as {name}.npy"
        )
    return times[order[first]]


def first_times_of(dataset: Dataset, node_type: str, name: str) -> Tensor | None:
    """Returns [N] int64, the time from which each node of a type exists: its own time, else its
    first timed edge's. A node without either exists always; None if all do."""
    nodes = dataset.nodes_of(node_type)
    if name in nodes.tables:
        return nodes.tables[name].reshape(-1)
    if not any(name in one.tables for one in dataset.edge_sets):
        return None
    first = torch.full((nodes.num_nodes,), _NEVER)
    for edges in dataset.edge_sets:
        if name not in edges.tables:
            continue
        for row, end in enumerate((edges.relation[0], edges.relation[2])):
            if end == node_type:
                at = edges.edge_index[row].to(torch.int64)
                first.scatter_reduce_(0, at, edges.tables[name].reshape(-1), "amin")
    return torch.where(first == _NEVER, _ALWAYS, first)


def latest_time(dataset: Dataset, links: PredictedLinks, name: str) -> int:
    tables = [one.tables[name] for one in dataset.sets if name in one.tables]
    tables += [one.tables[name] for one in links.splits.values() if name in one.tables]
    return max(int(table.max()) for table in tables if table.numel())
