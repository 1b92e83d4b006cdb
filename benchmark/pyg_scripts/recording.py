"""Records what a script sees: the losses of its steps, and the schema of every batch.

The schema of a batch is compared with that of the batch which PyG's own code makes of the same
sample: ``filter_fn`` of PyG's loaders, with this package's sampler, needs neither pyg-lib nor
torch-sparse.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from typing import Any

import torch
from torch import Tensor
from torch_geometric.data import HeteroData
from torch_geometric.loader import NodeLoader
from torch_geometric.loader.link_loader import LinkLoader
from torch_geometric.sampler import EdgeSamplerInput, NodeSamplerInput


class EnoughError(Exception):
    """Ends a script that has made all steps that were asked for."""


@dataclass
class Record:
    """The losses and the batches of a script.

    Attributes:
        losses: the value of each scalar that a script called ``backward`` of.
        batches: the number of batches that loaders handed out.
        schema: what the first batch had, by name: dtype and shape, or the value of a number.
        different: the batches whose schema is not that of PyG's batch, with what is different.
    """

    losses: list[float] = field(default_factory=list)
    batches: int = 0
    schema: dict[str, Any] = field(default_factory=dict)
    different: list[str] = field(default_factory=list)

    def see(self, loader: Any, batch: Any) -> None:
        """Records a batch."""
        found = schema_of(batch)
        if not self.batches:
            self.schema = found
        self.batches += 1
        wanted = schema_of(batch_by_pyg(loader, batch))
        names = [name for name in found.keys() | wanted.keys() if found.get(name) != wanted.get(name)]
        self.different += [
            f"batch {self.batches}, {name}: {found.get(name)}, by PyG {wanted.get(name)}" for name in names
        ]

    def as_dict(self) -> dict[str, Any]:
        """Returns the record for JSON."""
        return asdict(self)


def schema_of(batch: Any) -> dict[str, Any]:
    """Returns the names, dtypes and shapes of everything that a batch holds."""
    stores = {"": batch._store} if not isinstance(batch, HeteroData) else _stores(batch)
    return {
        f"{store}.{name}".lstrip("."): [str(value.dtype), list(value.shape)]
        if isinstance(value, Tensor)
        else value
        if isinstance(value, (int, list))
        else type(value).__name__
        for store, held in stores.items()
        for name, value in held.items()
    }


def _stores(batch: HeteroData) -> dict[str, Any]:
    named = {**batch._node_store_dict, **batch._edge_store_dict}
    every = {name if isinstance(name, str) else "__".join(name): store for name, store in named.items()}
    return {"": batch._global_store, **every}


def batch_by_pyg(loader: Any, batch: Any) -> Any:
    """Returns the batch that PyG's own code makes around the same seeds or links."""
    if isinstance(loader, LinkLoader):
        sampler, kind = loader.link_sampler, loader.input_data.input_type
        sampler.epoch = loader.epoch
        given = _links(loader, batch, kind)
        return LinkLoader.filter_fn(loader, sampler.sample_from_edges(given, loader.neg_sampling))
    sampler, kind = loader.node_sampler, loader.input_data.input_type
    sampler.epoch = loader.epoch
    seeds = batch if kind is None else batch[kind]
    time = seeds.seed_time if "seed_time" in seeds else None
    given = NodeSamplerInput(seeds.input_id, seeds.n_id[: seeds.batch_size], time, kind)
    return NodeLoader.filter_fn(loader, sampler.sample_from_nodes(given))


def _links(loader: Any, batch: Any, kind: Any) -> EdgeSamplerInput:
    """Returns the links that a batch begins with."""
    source, link, target = (batch,) * 3 if kind is None else (batch[kind[0]], batch[kind], batch[kind[2]])
    count = link.input_id.numel()
    label, time = loader.input_data.label, loader.input_data.time
    if "edge_label_index" in link:
        row, col = link.edge_label_index[:, :count]
        label = None if label is None else link.edge_label[:count]
        time = None if time is None else link.edge_label_time[:count]
    else:
        row, col = source.src_index, target.dst_pos_index
        time = None if time is None else source.seed_time
    return EdgeSamplerInput(link.input_id, source.n_id[row], target.n_id[col], label, time, kind)


def recorded(loader: type, record: Record) -> type:
    """Returns a loader that shows a record what it hands out."""

    class Recorded(loader):
        def __iter__(self) -> Iterator[Any]:
            for batch in super().__iter__():
                record.see(self, batch)
                yield batch

    Recorded.__name__ = loader.__name__
    return Recorded


def record_losses(record: Record, steps: int | None) -> None:
    """Lets a record see each loss; ends the script after a number of steps, if one is given."""
    backward = torch.Tensor.backward

    def recording(self: Tensor, *args: Any, **kwargs: Any) -> None:
        backward(self, *args, **kwargs)
        record.losses.append(float(self.detach()))
        if steps is not None and len(record.losses) >= steps:
            raise EnoughError

    torch.Tensor.backward = recording  # type: ignore[method-assign]
