"""The owners of nodes by policies that balance any loads."""

from __future__ import annotations

from torch import Tensor

from pyg_batchgnn.comm import Communicator
from pyg_batchgnn.data import Dataset
from pyg_batchgnn.ops import fold_key
from pyg_batchgnn.partition.balanced import Metis, TwoLevel
from pyg_batchgnn.partition.limits import read_limits
from pyg_batchgnn.partition.multilevel.hosts import cut_by_hosts, hosts_of_parts
from pyg_batchgnn.partition.multilevel.metis import cut_by_metis
from pyg_batchgnn.partition.multilevel.scheme import cut_by_levels
from pyg_batchgnn.partition.multilevel.symmetrise import symmetric_graph
from pyg_batchgnn.partition.reading import ReadingSlice
from pyg_batchgnn.partition.release import release_memory
from pyg_batchgnn.partition.unmet import warn_of_unmet


def balanced_owners(
    comm: Communicator, part: ReadingSlice, dataset: Dataset, policy: TwoLevel, parts: int, seed: int
) -> Tensor:
    """Returns the part of every node of the slice, [n] int32. Collective."""
    hosts = hosts_of_parts(comm, parts) if policy.hosts is None else policy.hosts
    if parts % hosts:
        raise ValueError(f"{parts} parts cannot be spread evenly over {hosts} hosts; choose a multiple")
    release_memory()
    limits = read_limits(comm, part, dataset, policy, parts)
    release_memory()
    graph = symmetric_graph(comm, part, limits.weight)
    release_memory()
    cut = cut_by_metis if isinstance(policy, Metis) else cut_by_levels
    owner = cut_by_hosts(graph, limits.goal, hosts, fold_key(0, seed), cut)
    del graph
    release_memory()
    warn_of_unmet(comm, limits, owner)
    return owner
