"""The drop-in for PyG's `HGTLoader`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Literal

from torch_geometric.data import Data, FeatureStore, GraphStore, HeteroData
from torch_geometric.loader import HGTLoader, NodeLoader

from pyg_batchgnn.loader.arguments import is_partitioned, refuse_unknown
from pyg_batchgnn.loader.input_nodes import InputRequest
from pyg_batchgnn.loader.local_setup import LocalSetup
from pyg_batchgnn.loader.options import (
    LoaderOptions,
    Size,
    refuse_what_does_not_go_together,
)
from pyg_batchgnn.loader.order import with_keyed_shuffle
from pyg_batchgnn.loader.sampling import as_seed
from pyg_batchgnn.loader.shell import MacrobatchShell
from pyg_batchgnn.loader.world import LocalWorld
from pyg_batchgnn.sample import NEIGHBOR_CAP, PygHGTSampler


class MacrobatchHGTLoader(MacrobatchShell, HGTLoader):
    """An `HGTLoader` that makes its minibatches in macrobatches and needs no torch-sparse.

    It takes what PyG's `HGTLoader` takes and yields what it yields, with the right edge ids. A
    minibatch is a pure function of (graph, ``num_samples``, seed, epoch, its seed nodes): the
    number of threads, workers and the sizes below change speed and memory, never a bit.
    docs/concepts/sampling-contract.md has the law. In native minibatches every layer computes all
    nodes from all edges, as PyG's layers do on PyG batches.

    Args:
        data: a ``HeteroData``, a ``Data``, which is a graph of one type, or a ``(FeatureStore,
            GraphStore)`` pair.
        num_samples: the nodes of each type that each hop samples: a list by hop for all types, or a
            dict of lists by type. -1 samples all candidates.
        input_nodes: "type", ("type", nodes) with None, a mask or ids, or a dict of several types.
            In a ``Data`` a mask, ids, or None for all nodes.
        is_sorted: ignored; edges that are sorted are used where they lie.
        neighbor_cap: at most this many in-edges of a node count in a relation. If a node has more,
            those that count are drawn once per minibatch. None for no cap.
        **kwargs: those of ``torch.utils.data.DataLoader``, and ``input_id``.

    The other arguments are those of `MacrobatchNeighborLoader`, and so are epochs, `set_epoch` and
    ``loader(index)``.

    Raises:
        NotImplementedError: a graph over ranks.
        TypeError, ValueError, IndexError: arguments that do not fit; the message gives value and
            remedy.
    """

    def __init__(
        self,
        data: Data | HeteroData | tuple[FeatureStore, GraphStore],
        num_samples: Any,
        input_nodes: Any = None,
        is_sorted: bool = False,
        transform: Callable[[Any], Any] | None = None,
        transform_sampler_output: Callable[[Any], Any] | None = None,
        filter_per_worker: bool | None = None,
        *,
        neighbor_cap: int | None = NEIGHBOR_CAP,
        macrobatch_size: Size = "auto",
        fetch_size: Size = "auto",
        memory_budget: int | str | None = None,
        prefetch: int = 0,
        seed: int | None = None,
        threads: int | None = None,
        export: Literal["pyg", "native"] = "pyg",
        features: Literal["auto", "in_place", "copy"] = "auto",
        attributes: Sequence[str] | None = None,
        **kwargs: Any,
    ) -> None:
        arguments = locals()  # by name, so that each is listed once, in the signature
        refuse_unknown(self, kwargs)
        if is_partitioned(data):
            raise NotImplementedError(
                "HGT sampling over ranks is not supported yet; give the graph whole, as a HeteroData, or use "
                "MacrobatchNeighborLoader"
            )
        self._options = LoaderOptions.of(arguments)
        world = LocalWorld()
        sampler = PygHGTSampler(
            data,
            num_samples,
            is_sorted,
            neighbor_cap=neighbor_cap,
            seed=world.seed(as_seed(seed)),
            threads=self._options.threads,
        )
        setup = LocalSetup(sampler, self._options, world)
        refuse_what_does_not_go_together(
            self._options, setup.choice, setup.direction, kwargs, transform_sampler_output
        )
        given = InputRequest(input_nodes, kwargs.pop("input_id", None))
        inputs = setup.take_inputs(given)
        # Past HGTLoader's constructor, which would make a sampler of its own.
        NodeLoader.__init__(
            self,
            data,
            sampler,
            **inputs.for_pyg(),
            transform=transform,
            transform_sampler_output=transform_sampler_output,
            filter_per_worker=filter_per_worker,
            **with_keyed_shuffle(kwargs, len(inputs)),
        )
        self.num_samples, self.input_nodes, self.input_id = num_samples, given.nodes, given.ids
        self._compose(setup)
