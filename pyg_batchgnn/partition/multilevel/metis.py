"""METIS, where its library is installed: the graph is gathered on rank 0 and cut there."""

from __future__ import annotations

import contextlib
import ctypes
import sysconfig
from collections.abc import Iterator
from ctypes.util import find_library
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from pyg_batchgnn.comm import MessageKind
from pyg_batchgnn.ops import WeightedGraph
from pyg_batchgnn.partition.goal import Goal
from pyg_batchgnn.partition.multilevel.gather import gather_graph
from pyg_batchgnn.partition.multilevel.rank_graph import RankGraph

#: The entries of METIS's array of options. What each is for differs between releases, so all keep
#: their defaults, the seed among them.
_OPTIONS = 40
_OK = 1


def cut_by_metis(graph: RankGraph, goal: Goal, key: int) -> Tensor:  # noqa: ARG001
    """Returns the parts of this rank's nodes as METIS finds them, [n] int32. Collective.

    Rank 0 holds the whole graph meanwhile. The key is not used: METIS has a seed of its own.

    Raises:
        CommError: on every rank, where the library is not installed or fails.
    """
    comm = graph.comm
    whole = gather_graph(graph, range(1))

    def work() -> Tensor:
        if comm.rank != 0:
            return torch.empty(graph.total, dtype=torch.int32)
        return _Library.load().part(whole, goal.slack, goal.parts)

    part = comm.run_together(work, catch=(ImportError, RuntimeError))
    comm.broadcast(part, 0, MessageKind.PARTITION)
    return part[graph.first : graph.first + graph.lists.num_nodes].clone()


def has_metis() -> bool:
    """Returns whether the METIS library is installed."""
    try:
        _Library.load()
    except ImportError:
        return False
    return True


class _Library:
    """The shared library of METIS 5.

    Attributes:
        integer: the type of its integers, which depends on how it was built.
    """

    def __init__(self, file: str) -> None:
        self._library = ctypes.CDLL(file)
        filled = np.zeros(_OPTIONS, dtype=np.int64)
        self._library.METIS_SetDefaultOptions(filled.ctypes.data_as(ctypes.c_void_p))
        self.integer = np.dtype(np.int64 if filled[-1] == -1 else np.int32)

    @classmethod
    def load(cls) -> _Library:
        """Returns the library of the package cmeel-metis, or the system's.

        Raises:
            ImportError: there is none.
        """
        for file in _candidates():
            # A file that cannot be loaded, or the library of another release.
            with contextlib.suppress(OSError, AttributeError):
                return cls(file)
        raise ImportError(
            'the policy "metis" needs the METIS library, which is not installed; install it with '
            'pip install cmeel-metis, or choose the policy "multilevel", which needs no other package'
        )

    def part(self, graph: WeightedGraph, slack: Tensor, parts: int) -> Tensor:
        """Cuts a graph by METIS_PartGraphKway. Returns [N] int32."""
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
        if code != _OK:
            raise RuntimeError(f"METIS_PartGraphKway failed with code {code} on {graph.num_nodes} nodes")
        return torch.from_numpy(part.astype(np.int32, copy=False))

    def _array(self, values: Tensor) -> np.ndarray:
        return np.ascontiguousarray(values.numpy(), dtype=self.integer)

    def _number(self, value: int) -> np.ndarray:
        return np.array([value], dtype=self.integer)


def _candidates() -> Iterator[str]:
    """Yields the files that may be the library. The search for the system's starts processes."""
    folder = Path(sysconfig.get_paths()["purelib"]) / "cmeel.prefix" / "lib"
    for needed in folder.glob("libGKlib.*"):  # METIS needs it, and does not know where it is
        with contextlib.suppress(OSError):
            ctypes.CDLL(str(needed), mode=ctypes.RTLD_GLOBAL)
    yield from map(str, sorted(folder.glob("libmetis.*")))
    if (system := find_library("metis")) is not None:
        yield system


def _pointer(array: np.ndarray | None) -> ctypes.c_void_p | None:
    return None if array is None else array.ctypes.data_as(ctypes.c_void_p)
