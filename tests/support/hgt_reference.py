"""Sampling by budgets in plain Python: slow, obvious, and the definition of a right answer.

It goes on from `tests.support.typed_reference`, whose graphs, seeds and weighted draws it uses, and
can be read beside docs/concepts/sampling-contract.md.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from pyg_batchgnn.data import Relation
from pyg_batchgnn.sample import HGTPlan, Replacement
from tests.support.reference_sampler import fold, fold_all, reference_picks, words
from tests.support.typed_reference import (
    Allowed,
    Edge,
    ReferenceGraph,
    ReferenceMinibatch,
    ReferenceSeed,
    names_key,
    seeds_key,
    weighted_picks,
)

HGT = int.from_bytes(b"hgt", "little")


@dataclass
class BudgetReference:
    """Samples minibatches of one graph by one plan."""

    graph: ReferenceGraph
    plan: HGTPlan
    seed: int
    epoch: int

    def sample(self, seeds: Sequence[ReferenceSeed]) -> ReferenceMinibatch:
        """Samples one minibatch; seeds of a type keep their order."""
        schema, samples = self.graph.schema, dict(self.plan.samples)
        key = fold_all([self.seed, self.epoch, seeds_key(schema, seeds), HGT])
        node = {t: [one.node for one in seeds if one.type == t] for t in schema.node_types}
        latest = {t: list(dict.fromkeys(nodes)) for t, nodes in node.items()}  # each node once
        per_hop = {t: [len(nodes)] for t, nodes in node.items()}
        budget: dict[str, dict[int, float]] = {t: {} for t in schema.node_types}
        for hop in range(self.plan.num_hops):
            for relation in sorted(schema.relations, key=names_key):
                source, _, target = relation
                for w in latest[target]:
                    edges = self._neighbours(key, relation, w)
                    for edge in edges:
                        if edge.source not in node[source]:
                            held = budget[source].get(edge.source, 0.0)
                            budget[source][edge.source] = held + 1.0 / len(edges)
            for t in schema.node_types:
                latest[t] = self._drawn(key, hop, t, samples[t][hop], budget[t])
                node[t] += latest[t]
                per_hop[t].append(len(latest[t]))
                budget[t] = {v: value for v, value in budget[t].items() if v not in latest[t]}
        return self._with_edges(key, node, per_hop)

    def _neighbours(self, key: int, relation: Relation, node: int) -> list[Edge]:
        """The in-edges of a node that count, in ascending input edge id."""
        edges = self.graph.in_edges[relation].get(node, [])
        relation_key = self._named(fold(key, 0), relation)
        cap = -1 if self.plan.neighbor_cap is None else self.plan.neighbor_cap
        picks = reference_picks(len(edges), cap, Replacement.WITHOUT, words(fold(relation_key, node)))
        return [edges[place] for place in sorted(picks)]

    def _drawn(self, key: int, hop: int, name: str, wanted: int, budget: dict[int, float]) -> list[int]:
        """The candidates that are sampled, in the order of the draws."""
        if wanted == -1 or len(budget) <= wanted:
            return list(budget)
        draw_key = self._named(fold(fold(key, 1), hop), (name,))
        offered = [Edge(v, 0, weight=value * value) for v, value in budget.items()]
        drawn = weighted_picks(Allowed(offered, None), wanted, Replacement.WITHOUT, words(draw_key))
        return [one.source for one in drawn]

    def _named(self, key: int, names: Sequence[str]) -> int:
        return key if self.graph.schema.is_plain else fold(key, names_key(names))

    def _with_edges(
        self, key: int, node: dict[str, list[int]], per_hop: dict[str, list[int]]
    ) -> ReferenceMinibatch:
        """Adds all edges that count between the sampled nodes."""
        relations = self.graph.schema.relations
        out = ReferenceMinibatch(
            {t: [(0, v) for v in nodes] for t, nodes in node.items()},
            per_hop,
            *({r: list[int]() for r in relations} for _ in range(4)),
        )
        for relation in relations:
            source, _, target = relation
            for w in node[target]:
                for edge in self._neighbours(key, relation, w):
                    if edge.source in node[source]:
                        out.source[relation].append(node[source].index(edge.source))
                        out.edge[relation].append(edge.number)
                out.ends[relation].append(len(out.source[relation]))
        return out
