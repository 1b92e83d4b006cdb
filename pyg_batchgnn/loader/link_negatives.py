"""PyG's forms of ``neg_sampling``, and what ours adds to them, as plans of negatives."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from torch import Tensor
from torch_geometric.sampler import NegativeSampling

from pyg_batchgnn.data import Relation, Schema
from pyg_batchgnn.loader.input_links import by_relation
from pyg_batchgnn.loader.link_inputs import RelationLinks
from pyg_batchgnn.sample import LateNegatives


@dataclass(frozen=True, eq=False)
class NegativeRequest:
    """The user's wishes about negatives and the edges of links, as given to the loader.

    Attributes:
        sampling: ``neg_sampling`` in one of PyG's forms, or a dict of such by edge type.
        ratio: ``neg_sampling_ratio``: binary negatives per link; None or 0 for none.
        exclude_existing: True if negatives must not be edges.
        exclude_seed_edges: False, True, "reverse" or a dict from edge types to their reverses.
        late: what is done about links that are earlier than every node.
    """

    sampling: Any = None
    ratio: float | None = None
    exclude_existing: bool = False
    exclude_seed_edges: Any = False
    late: LateNegatives = LateNegatives.WARN

    def for_pyg(self) -> NegativeSampling | None:
        """Returns PyG's description of the negatives; None for none, or if it is by edge type."""
        if self.ratio:
            return NegativeSampling("binary", self.ratio)
        return None if _is_by_type(self.sampling) else _cast(self.sampling)

    def by_relation(self, schema: Schema, links: Sequence[RelationLinks]) -> dict[Relation, NegativeSampling]:
        """Returns PyG's description of the negatives of each relation that gets any.

        Raises:
            TypeError, ValueError: another form, or ``exclude_existing`` without negatives.
        """
        relations = {one.relation: None for one in links}
        if self.ratio:
            given = dict.fromkeys(relations, NegativeSampling("binary", self.ratio))
        elif _is_by_type(self.sampling):
            given = by_relation("neg_sampling", self.sampling, schema, relations)
        else:
            given = dict.fromkeys(relations, self.sampling)
        found = {one: _cast(value) for one, value in given.items() if value is not None}
        if self.exclude_existing and not found:
            raise ValueError(
                "exclude_existing=True is about negatives, but neg_sampling gives none: give for instance "
                "neg_sampling='binary', or leave exclude_existing out"
            )
        return found


def _cast(given: Any) -> NegativeSampling | None:
    """Returns PyG's description of negatives from one of its forms."""
    mode = given[0] if isinstance(given, (tuple, list)) and given else given
    if isinstance(mode, str) and mode not in ("binary", "triplet"):
        raise ValueError(f"neg_sampling must be 'binary' or 'triplet', got {given!r}")
    return NegativeSampling.cast(given)


def _is_by_type(sampling: Any) -> bool:
    return isinstance(sampling, Mapping) and "mode" not in sampling


def labelled(links: RelationLinks, sampling: NegativeSampling | None) -> Tensor | None:
    """Returns the labels of links, of which negatives take the label 0.

    Labels whose minimum is 0 move up by 1, as in PyG, if there are binary negatives. A warning says
    so.

    Raises:
        ValueError: labels beside triplets.
    """
    if sampling is None or links.label is None:
        return links.label
    if sampling.is_triplet():
        raise ValueError(
            "edge_label and neg_sampling='triplet' do not go together: triplets tell links from negatives by "
            "src_index, dst_pos_index and dst_neg_index; leave edge_label out"
        )
    if links.label.numel() == 0 or links.label.min() != 0:
        return links.label
    warnings.warn(
        f"edge_label of {links.relation} begins with 0, which is the label of negatives: all labels of links "
        f"move up by 1, as in PyG; give labels that begin with 1 to keep them",
        stacklevel=6,
    )
    return links.label + 1
