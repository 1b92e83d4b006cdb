"""Links in PyG's form, as a PyG sampler is given them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import torch
from torch_geometric.sampler import EdgeSamplerInput, NegativeSampling

from pyg_batchgnn.data import Relation
from pyg_batchgnn.sample.link_seeds import LinkSeeder, LinkStart
from pyg_batchgnn.sample.links import Links
from pyg_batchgnn.sample.negative_pools import negative_plan
from pyg_batchgnn.sample.negatives import LateNegatives, check_early_links
from pyg_batchgnn.sample.pyg_output import Direction
from pyg_batchgnn.sample.pyg_parts import PygParts
from pyg_batchgnn.sample.seed_edges import SeedEdges
from pyg_batchgnn.store import first_times

#: Seeders are kept for at most this many negatives and relations.
_KEPT = 64


@dataclass(frozen=True, eq=False)
class _Kept:
    """A seeder that is kept for the next minibatch.

    Attributes:
        negatives: what it draws, which the seeder's key names by its address.
        seeder: the seeder.
    """

    negatives: NegativeSampling | None
    seeder: LinkSeeder


@dataclass
class LinkRules:
    """The rules by which links are sampled.

    Attributes:
        exclude_existing: True if negatives must not be edges.
        exclude_seed_edges: False, True, "reverse", or a dict from relations to their reverses.
        late_negatives: what is done about links that are earlier than every node.
    """

    exclude_existing: bool = False
    exclude_seed_edges: Any = False
    late_negatives: LateNegatives = LateNegatives.WARN
    _has_warned: bool = field(default=False, repr=False)
    _parts: PygParts | None = field(default=None, repr=False)
    _kept: dict[tuple[Relation, int], _Kept] = field(default_factory=dict, repr=False)

    def __post_init__(self) -> None:
        if not isinstance(self.exclude_existing, bool):
            raise TypeError(f"exclude_existing must be True or False, got {self.exclude_existing!r}")

    def joined(self, exclude_existing: bool, exclude_seed_edges: Any, late_negatives: str) -> LinkRules:
        """Returns these rules with those of a loader that uses their sampler.

        Raises:
            TypeError: ``exclude_existing`` is no boolean.
            ValueError: both say which seed edges are excluded, and differ, or there is no such word
                for late negatives.
        """
        own, other = self.exclude_seed_edges or False, exclude_seed_edges or False
        if own is not False and other is not False and own != other:
            raise ValueError(
                f"exclude_seed_edges={exclude_seed_edges!r}, but neighbor_sampler has "
                f"{self.exclude_seed_edges!r}; leave one of them out"
            )
        both = LinkRules(exclude_existing).exclude_existing or self.exclude_existing
        wanted = exclude_seed_edges if own is False else self.exclude_seed_edges
        late = LateNegatives.parse(late_negatives)
        return LinkRules(both, wanted, self.late_negatives if late is LateNegatives.WARN else late)

    def start(
        self,
        inputs: EdgeSamplerInput,
        neg_sampling: NegativeSampling | None,
        parts: PygParts,
        epoch: int,
    ) -> LinkStart:
        """Returns the seeds of one minibatch of links.

        Args:
            inputs: the links.
            neg_sampling: their negatives, or None.
            parts: the parts of the sampler.
            epoch: the epoch.

        Raises:
            ValueError: a negative cannot be drawn, or would be later than its link and must not.
                The message names its link.
        """
        relations = parts.graph.schema.relations
        if inputs.input_type is None and len(relations) != 1:
            raise ValueError(
                f"the links came without input_type, but the graph has the edge types {list(relations)}; "
                f"give EdgeSamplerInput(..., input_type=...)"
            )
        relation = inputs.input_type or relations[0]
        index = torch.arange(inputs.row.numel()) if inputs.input_id is None else inputs.input_id
        ends = inputs.row.long(), inputs.col.long()
        links = Links(relation, *ends, index, inputs.label, inputs.time)
        seeder = self._seeder(relation, neg_sampling, parts)
        if not self._has_warned and relation in seeder.negatives:
            checked = [(relation, inputs.time, seeder.negatives[relation])]
            self._has_warned = check_early_links(checked, self.late_negatives, stacklevel=3)
        return seeder.start([links], parts.macrobatch.seed, epoch)

    def _seeder(
        self, relation: Relation, neg_sampling: NegativeSampling | None, parts: PygParts
    ) -> LinkSeeder:
        """Returns the seeder of a relation, which is kept for the next minibatch."""
        if self._parts is not parts:
            self._parts, self._kept = parts, {}
        key = relation, id(neg_sampling)
        if key not in self._kept:
            if len(self._kept) == _KEPT:
                del self._kept[next(iter(self._kept))]
            self._kept[key] = _Kept(neg_sampling, self._made(relation, neg_sampling, parts))
        return self._kept[key].seeder

    def _made(self, relation: Relation, neg_sampling: NegativeSampling | None, parts: PygParts) -> LinkSeeder:
        """Makes the seeder of a relation."""
        graph, times = parts.graph, parts.times
        plans = {}
        if neg_sampling is not None:
            first = None if times is None else first_times(times, graph)
            plans[relation] = negative_plan(neg_sampling, relation, graph, first, self.exclude_existing)
        excluded = SeedEdges.wanted(self.exclude_seed_edges, graph.schema, [relation])
        if excluded is not None and parts.form.direction is Direction.BACKWARD:
            excluded = excluded.reversed()
        is_disjoint = parts.macrobatch.plan.disjoint or times is not None
        return LinkSeeder(graph.schema, plans, is_disjoint, excluded)
