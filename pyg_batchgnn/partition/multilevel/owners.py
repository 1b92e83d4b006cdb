"""The owners of nodes by policies that balance any loads."""

from __future__ import annotations

import contextlib
import ctypes
import sysconfig
from collections.abc import Callable, Iterator
from ctypes.util import find_library
from itertools import pairwise
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from pyg_batchgnn.comm import Communicator, MessageKind
from pyg_batchgnn.data import Dataset
from pyg_batchgnn.ops import MergedLists, WeightedGraph, fold_key
from pyg_batchgnn.partition.limits import Balance, read_limits, warn_of_unmet
from pyg_batchgnn.partition.multilevel.rank_graph import RankGraph, gather_graph, symmetric_graph
from pyg_batchgnn.partition.multilevel.scheme import cut_by_levels
from pyg_batchgnn.partition.policy import Metis, TwoLevel
from pyg_batchgnn.partition.reading import ReadingSlice
from pyg_batchgnn.partition.release import release_memory


def balanced_owners(
    comm: Communicator, part: ReadingSlice, dataset: Dataset, policy: TwoLevel, parts: int, seed: int
) -> Tensor:
    """Returns the parts of this rank's nodes, [n] int32, by a `TwoLevel` policy. Collective."""
    hosts = hosts_of_parts(comm, parts) if policy.hosts is None else policy.hosts
    if parts % hosts:
        raise ValueError(f"{parts} parts cannot be spread evenly over {hosts} hosts; choose a multiple")
    release_memory()
    limits = read_limits(comm, part, dataset, policy, parts)
    release_memory()
    graph = symmetric_graph(comm, part, limits.weight)
    release_memory()
    cut = cut_by_metis if isinstance(policy, Metis) else cut_by_levels
    owner = cut_by_hosts(graph, limits.balance, hosts, fold_key(0, seed), cut)
    del graph
    release_memory()
    warn_of_unmet(comm, limits, owner)
    return owner


_EDGES = 1 << 20  # edges that are processed together

#: Cuts a graph into balanced parts; returns [n] int32, the parts of this rank's nodes. Collective.
Cut = Callable[[RankGraph, Balance, int], Tensor]


def cut_by_hosts(graph: RankGraph, balance: Balance, hosts: int, key: int, cut: Cut) -> Tensor:
    """Returns [n] int32, the parts of this rank's nodes. Collective. The graph is cut into hosts
    first, then each host's share into parts: few edges join hosts, and ranks of a host share
    memory. The first cut may use the square root of the allowed slack: the second needs room."""
    if hosts == 1 or hosts == balance.parts:
        return cut(graph, balance, key)
    host = cut(graph, Balance.of(hosts, balance.total, balance.slack.sqrt()), fold_key(key, hosts))
    each, part = balance.parts // hosts, torch.empty_like(host)
    for number in range(hosts):
        own = host == number
        inside = _graph_of(graph, own)
        release_memory()
        total = inside.lists.node_weight.sum(0, dtype=torch.int64)
        graph.comm.all_reduce(total, MessageKind.PARTITION)
        found = cut(inside, Balance.within(each, total, balance.limit), fold_key(key, hosts + 1 + number))
        part[own] = found + number * each
        del inside
        release_memory()
    return part


def hosts_of_parts(comm: Communicator, parts: int) -> int:
    """Returns how many hosts get parts: as many as the ranks' hosts, if there is a part per rank
    and each host has equally many consecutive ranks; else 1."""
    hosts = len(set(comm.hosts))
    even = parts == comm.size and parts % hosts == 0
    first = [comm.hosts.index(host) for host in dict.fromkeys(comm.hosts)]
    together = even and comm.hosts == [comm.hosts[at] for at in first for _ in range(parts // hosts)]
    return hosts if together else 1


def _graph_of(graph: RankGraph, own: Tensor) -> RankGraph:
    comm, lists = graph.comm, graph.lists
    counts = comm.all_gather(own.sum().view(1), MessageKind.PARTITION).rows
    bounds = torch.cat([torch.zeros(1, dtype=torch.int64), counts.cumsum(0)])
    number = torch.where(own, own.cumsum(0) - 1 + bounds[comm.rank], -1).to(graph.id_dtype)
    found = _lists_among(lists, own, graph.with_ghosts(number))
    return RankGraph.of(comm, bounds, found, lists.node_weight[own])


def _lists_among(lists: WeightedGraph, own: Tensor, number: Tensor) -> MergedLists:
    """Returns the lists of the nodes ``own`` [n] bool. ``number``: new id of each node, or -1."""
    degrees, ids, weights = list[Tensor](), list[Tensor](), list[Tensor]()
    marks = torch.arange(0, lists.num_edges + _EDGES, _EDGES)
    cuts = torch.searchsorted(lists.indptr, marks).clamp(max=lists.num_nodes).tolist()
    for rows in (slice(*ends) for ends in pairwise([0, *cuts[1:-1], lists.num_nodes])):
        degree = lists.indptr[rows.start : rows.stop + 1].diff()
        edges = slice(*lists.indptr[[rows.start, rows.stop]].tolist())
        there = number[lists.indices[edges]]
        kept = (there >= 0) & own[rows].repeat_interleave(degree)
        row = torch.arange(len(degree)).repeat_interleave(degree)[kept]
        degrees.append(torch.bincount(row, minlength=len(degree))[own[rows]])
        ids.append(there[kept])
        if lists.edge_weight is not None:
            weights.append(lists.edge_weight[edges][kept])
    indptr = torch.cat([torch.zeros(1, dtype=torch.int64), torch.cat(degrees).cumsum(0)])
    joined = torch.cat(ids)
    del ids
    if lists.edge_weight is None:
        return MergedLists(indptr, joined, torch.empty(0, dtype=torch.int32), 1)
    return MergedLists(indptr, joined, torch.cat(weights), 0)


#: The length of METIS's array of options. Their meaning differs between releases, so all keep their
#: defaults, the seed included.
_OPTIONS = 40


def cut_by_metis(graph: RankGraph, balance: Balance, key: int) -> Tensor:  # noqa: ARG001
    """Returns [n] int32, the parts of this rank's nodes, by METIS. Collective. Rank 0 holds the
    whole graph meanwhile. ``key`` is not used: METIS has its own seed. Raises `CommError` on every
    rank if the library is not installed or fails."""
    comm = graph.comm
    whole = gather_graph(graph, range(1))

    def work() -> Tensor:
        if comm.rank != 0:
            return torch.empty(graph.total, dtype=torch.int32)
        return _Library.load().part(whole, balance.slack, balance.parts)

    part = comm.run_together(work, catch=(ImportError, RuntimeError))
    comm.broadcast(part, 0, MessageKind.PARTITION)
    return part[graph.first : graph.first + graph.lists.num_nodes].clone()


def has_metis() -> bool:
    """Returns True if the METIS library is installed."""
    try:
        _Library.load()
    except ImportError:
        return False
    return True


class _Library:
    """The shared library METIS 5. ``integer``: the dtype of its integers, as it was built."""

    def __init__(self, file: str) -> None:
        self._library = ctypes.CDLL(file)
        filled = np.zeros(_OPTIONS, dtype=np.int64)
        self._library.METIS_SetDefaultOptions(filled.ctypes.data_as(ctypes.c_void_p))
        self.integer = np.dtype(np.int64 if filled[-1] == -1 else np.int32)

    @classmethod
    def load(cls) -> _Library:
        for file in _candidates():
            # A file that cannot be loaded, or the library of another release.
            with contextlib.suppress(OSError, AttributeError):
                return cls(file)
        raise ImportError(
            'the policy "metis" needs the METIS library, which is not installed; install it with '
            'pip install cmeel-metis, or choose the policy "multilevel", which needs no other package'
        )

    def part(self, graph: WeightedGraph, slack: Tensor, parts: int) -> Tensor:
        if parts == 1 or graph.num_nodes == 0:
            return torch.zeros(graph.num_nodes, dtype=torch.int32)
        weight = graph.edge_weight
        edge_weight = None if weight is None else self._array(weight)
        allowed = np.maximum(slack.numpy(), 1.001).astype(np.float32)
        part, cut = np.empty(graph.num_nodes, dtype=self.integer), self._number(0)
        code = self._library.METIS_PartGraphKway(
            *map(_pointer, (self._number(graph.num_nodes), self._number(slack.numel()))),
            *map(_pointer, (self._array(graph.indptr), self._array(graph.indices))),
            *(_pointer(self._array(graph.node_weight)), None, _pointer(edge_weight)),
            *(_pointer(self._number(parts)), None, _pointer(allowed), None),
            *(_pointer(cut), _pointer(part)),
        )
        if code != 1:  # METIS_OK
            raise RuntimeError(f"METIS_PartGraphKway failed with code {code} on {graph.num_nodes} nodes")
        return torch.from_numpy(part.astype(np.int32, copy=False))

    def _array(self, values: Tensor) -> np.ndarray:
        return np.ascontiguousarray(values.numpy(), dtype=self.integer)

    def _number(self, value: int) -> np.ndarray:
        return np.array([value], dtype=self.integer)


def _candidates() -> Iterator[str]:
    """Yields files that may be the library; the last ones are found by starting processes."""
    folder = Path(sysconfig.get_paths()["purelib"]) / "cmeel.prefix" / "lib"
    for needed in folder.glob("libGKlib.*"):  # METIS needs it, and does not know where it is
        with contextlib.suppress(OSError):
            ctypes.CDLL(str(needed), mode=ctypes.RTLD_GLOBAL)
    yield from map(str, sorted(folder.glob("libmetis.*")))
    if (system := find_library("metis")) is not None:
        yield system


def _pointer(array: np.ndarray | None) -> ctypes.c_void_p | None:
    return None if array is None else array.ctypes.data_as(ctypes.c_void_p)
