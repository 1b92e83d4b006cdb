"""The entries that PyG's loaders put into batches that begin with links."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from torch_geometric.sampler import HeteroSamplerOutput

from pyg_batchgnn.data import Relation
from pyg_batchgnn.sample.negatives import NegativeMode
from pyg_batchgnn.sample.pyg_info import add_ids
from pyg_batchgnn.sample.pyg_output import PygOutput


@dataclass(frozen=True)
class LinkInfo:
    """The entries of batches that begin with links; see `SampleInfo`.

    Attributes:
        relations: the relations of the links, each with the form of its negatives.
        timed: True if links have times.

    Raises:
        ValueError: the triplets of two relations would have the same entries.
    """

    relations: Sequence[tuple[Relation, NegativeMode | None]]
    timed: bool = False

    def __post_init__(self) -> None:
        triplets = [relation for relation, mode in self.relations if mode is NegativeMode.TRIPLET]
        for number, one in enumerate(triplets):
            for other in triplets[:number]:
                _refuse_shared_entries(other, one, self.timed)

    def add(self, batch: Any, out: PygOutput) -> None:
        """Adds the entries; see `SampleInfo`."""
        add_ids(batch, out)
        for relation, mode in self.relations:
            # Metadata are a dict by relation if there are several.
            metadata = out.metadata[relation] if isinstance(out.metadata, dict) else out.metadata
            source = link = target = batch
            if isinstance(out, HeteroSamplerOutput):
                source, link, target = batch[relation[0]], batch[relation], batch[relation[2]]
            link.input_id = metadata[0]
            if mode is NegativeMode.TRIPLET:
                _add_triplets(source, target, metadata)
                _remove(batch, link, relation)
            else:
                link.edge_label_index, link.edge_label, link.edge_label_time = metadata[1:4]


def _add_triplets(source: Any, target: Any, metadata: Sequence[Any]) -> None:
    source.src_index, target.dst_pos_index, target.dst_neg_index = metadata[1:4]
    source.seed_time = target.seed_time = metadata[4]


def _refuse_shared_entries(one: Relation, other: Relation, timed: bool) -> None:
    """Raises ValueError if the triplets of two relations would have the same entries.

    The entries belong to the types of the ends: ``src_index`` to that of the sources, for instance,
    and ``seed_time`` to both.
    """
    shared = {a for a, b in ((one[0], other[0]), (one[2], other[2])) if a == b}
    if timed:
        shared |= {one[0], one[2]} & {other[0], other[2]}
    if shared:
        raise ValueError(
            f"two triplet relations share an end type: {one} and {other} have {sorted(shared)}, whose store "
            f"in a batch holds the triplets of one relation only; use neg_sampling='binary' for one of "
            f"them, a loader for each, or export='native'"
        )


def _remove(batch: Any, link: Any, relation: Relation) -> None:
    """Removes attributes of the base data that say what triplets say otherwise."""
    if link is batch or relation in batch.edge_types:
        for name in ("edge_label_index", "edge_label_time"):
            if name in link:
                del link[name]
