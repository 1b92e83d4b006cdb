"""Sampling by budgets in the form of PyG's `HGTSampler`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NoReturn

from torch_geometric.sampler.base import SubgraphType

from pyg_batchgnn.sample.hgt import HGTSampler
from pyg_batchgnn.sample.hgt_plan import NEIGHBOR_CAP, HGTPlan
from pyg_batchgnn.sample.pyg_nodes import PygNodeSampler
from pyg_batchgnn.sample.pyg_output import PygForm
from pyg_batchgnn.sample.pyg_parts import graph_of, index_dtype, names_of


class PygHGTSampler(PygNodeSampler):
    """PyG's `HGTSampler`, with keyed samples and without torch-sparse.

    Args:
        data: a ``Data``, a ``HeteroData``, or a ``(FeatureStore, GraphStore)`` pair.
        num_samples: the nodes of each type that each hop samples: a list by hop for all types, or a
            dict of lists by type. -1 samples all candidates.
        is_sorted, share_memory: ignored; edges that are sorted are used where they lie, and worker
            processes read the same memory.
        neighbor_cap: at most this many in-edges of a node count in a relation. If a node has more,
            those that count are drawn once per minibatch. None for no cap.
        seed: the key of every random choice.
        threads: at most this many threads work; torch's number if None.
        epoch: the epoch, or a function that returns it.

    Samples also depend on ``epoch``, which PyG's loaders do not know of. Assign it between epochs,
    or give a function.

    Raises:
        TypeError, ValueError, IndexError: arguments that do not fit the graph.
    """

    def __init__(
        self,
        data: Any,
        num_samples: Any,
        is_sorted: bool = False,  # noqa: ARG002  (what is sorted is found out)
        share_memory: bool = False,  # noqa: ARG002  (nothing is copied for workers)
        *,
        neighbor_cap: int | None = NEIGHBOR_CAP,
        seed: int = 0,
        threads: int | None = None,
        epoch: int | Callable[[], int] = 0,
    ) -> None:
        graph = graph_of(data)
        plan = HGTPlan.from_pyg(num_samples, graph.schema.node_types, neighbor_cap)
        self._macrobatch = HGTSampler(graph, plan, seed, threads)
        self._form = PygForm(names_of(data), SubgraphType.induced, index_dtype(data))
        self.epoch = epoch

    @property
    def macrobatch(self) -> HGTSampler:
        """The sampler that this one stands around."""
        return self._macrobatch

    @property
    def form(self) -> PygForm:
        """The form of the samples."""
        return self._form

    def sample_from_edges(self, *_args: Any, **_kwargs: Any) -> NoReturn:
        """Raises NotImplementedError: sampling by budgets begins with nodes."""
        raise NotImplementedError(
            "HGT sampling begins with nodes, not with links; use PygNeighborSampler for links"
        )
