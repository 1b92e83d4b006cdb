"""The edges of a minibatch's own links, which sampling can leave out."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from pyg_batchgnn.data import Relation, Schema, reverse_of, stored_reverse
from pyg_batchgnn.sample.links import Links
from pyg_batchgnn.sample.seeds import ExcludedPairs


@dataclass(frozen=True)
class SeedEdges:
    """The relations whose edges are excluded between the ends of a minibatch's links.

    All parallel edges of a pair are excluded, whatever their ids. In disjoint sampling an example
    leaves out its own pair alone, otherwise a minibatch leaves out the pairs of all its links.

    Attributes:
        relations: for each relation that has links, those in which (source, target) is excluded,
            and those in which (target, source) is.
    """

    relations: Mapping[Relation, tuple[tuple[Relation, ...], tuple[Relation, ...]]]

    @classmethod
    def wanted(cls, wanted: Any, schema: Schema, linked: Sequence[Relation]) -> SeedEdges | None:
        """Returns what ``exclude_seed_edges`` says; None if nothing is excluded.

        Args:
            wanted: False, True, "reverse" or a dict from relations to their reverses.
            schema: the node types and relations of the graph.
            linked: the relations that have links.

        Raises:
            TypeError, ValueError: another form, or a relation whose reverse is not known.
        """
        if wanted is False or wanted is None:
            return None
        if wanted is True:
            return cls.forward(schema, linked)
        if wanted == "reverse":
            return cls.both_ways(schema, linked)
        if isinstance(wanted, Mapping):
            reverses = {
                named_relation(schema, one): named_relation(schema, other) for one, other in wanted.items()
            }
            if unknown := [one for one in reverses if one not in (*schema.relations, *linked)]:
                raise ValueError(
                    f"exclude_seed_edges names {unknown[0]}, which the graph does not have; it has "
                    f"{list(schema.relations)}"
                )
            return cls.both_ways(schema, linked, reverses)
        raise TypeError(
            f"exclude_seed_edges must be True, 'reverse', or a dict from edge types to their reverses, "
            f"got {wanted!r}"
        )

    @classmethod
    def forward(cls, schema: Schema, linked: Sequence[Relation]) -> SeedEdges:
        """Excludes the links in their own relation, if the graph has it."""
        return cls({one: (_known(schema, one), ()) for one in linked})

    @classmethod
    def both_ways(
        cls, schema: Schema, linked: Sequence[Relation], reverse: Mapping[Relation, Relation] | None = None
    ) -> SeedEdges:
        """Excludes the links, and their reverses.

        Args:
            schema: the node types and relations of the graph.
            linked: the relations that have links.
            reverse: the relation in which each one's reverses lie. None: the same relation in a
                graph of one relation, else the one whose name is the same but for "rev_" in front.

        Raises:
            ValueError: no reverse relation is known for a relation, or one does not fit.
        """
        found = {one: _reverse(schema, one, reverse) for one in linked}
        return cls({one: (_known(schema, one), (found[one],)) for one in linked})

    def reversed(self) -> SeedEdges:
        """Returns the same exclusions for a sampler that works on the reversed graph.

        Its relations have the numbers that they have in the graph, but lead from the target of a
        link to its source.
        """
        return SeedEdges({one: (backward, forward) for one, (forward, backward) in self.relations.items()})

    def of(self, links: Sequence[Links], is_disjoint: bool) -> dict[Relation, ExcludedPairs]:
        """Returns what a minibatch of these links leaves out, by relation."""
        pairs: dict[Relation, list[Tensor]] = defaultdict(list)
        examples: dict[Relation, list[Tensor]] = defaultdict(list)
        first = 0
        for one in links:
            ends = torch.stack([one.source, one.target])
            number = torch.arange(first, first + one.count)
            forward, backward = self.relations[one.relation]
            for relation, excluded in [*((r, ends) for r in forward), *((r, ends.flip(0)) for r in backward)]:
                pairs[relation].append(excluded)
                examples[relation].append(number)
            first += one.count
        return {
            relation: ExcludedPairs(
                torch.cat(every, dim=1), torch.cat(examples[relation]) if is_disjoint else None
            )
            for relation, every in pairs.items()
        }


def named_relation(schema: Schema, names: Sequence[str]) -> Relation:
    """Returns the relation of two or three names.

    Two names are of its ends: the only relation between them, else the one called "to".
    """
    if len(names) == 3:
        return names[0], names[1], names[2]
    found = [one for one in schema.relations if (one[0], one[2]) == (names[0], names[1])]
    return found[0] if len(found) == 1 else (names[0], "to", names[1])


def _known(schema: Schema, relation: Relation) -> tuple[Relation, ...]:
    return (relation,) if relation in schema.relations else ()


def _reverse(schema: Schema, relation: Relation, given: Mapping[Relation, Relation] | None) -> Relation:
    source, _, target = relation
    if given is None and schema.is_plain:
        return schema.relations[0]
    if given is None:
        stored = stored_reverse(schema, relation)
        if stored is None:
            raise ValueError(
                f"exclude_seed_edges='reverse' finds no relation {reverse_of(relation)} that reverses "
                f"{relation}; {_instead(schema, relation)}"
            )
        return stored
    if relation not in given:
        raise ValueError(f"exclude_seed_edges names no reverse of {relation}; it has {list(given)}")
    found = given[relation]
    if found not in schema.relations or (found[0], found[2]) != (target, source):
        raise ValueError(
            f"exclude_seed_edges says that {found} reverses {relation}, but it is no relation of the graph "
            f"from {target!r} to {source!r}; its relations are {list(schema.relations)}"
        )
    return found


def _instead(schema: Schema, relation: Relation) -> str:
    """Returns what to give for a relation whose reverse is not known by its name."""
    back = [one for one in schema.relations if (one[0], one[2]) == (relation[2], relation[0])]
    if not back:
        return "the graph has none from its target to its source: give True"
    likely = relation if relation in back else back[0]
    return f"give a dict that names the relation in which its reverses lie, like {{{relation}: {likely}}}"
