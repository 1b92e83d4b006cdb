"""Sampling of typed graphs in plain Python: slow, obvious, and the definition of a right answer."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction

from pyg_batchgnn.data import Relation, Schema
from pyg_batchgnn.sample import Replacement, SamplingPlan, Subgraph, TemporalStrategy
from tests.support.reference_sampler import (
    GAMMA,
    WORD,
    fold,
    fold_all,
    mix,
    reference_key,
    reference_picks,
    words,
)

LABOR_TAG = int.from_bytes(b"labor", "little")


@dataclass(frozen=True)
class Edge:
    source: int
    number: int  # its input edge id
    time: int | None = None
    weight: float | None = None


@dataclass(frozen=True)
class Allowed:
    """The in-edges of a node that may be picked, and those of its list that lie before them."""

    edges: list[Edge]
    before: list[Edge] | None


@dataclass(frozen=True)
class ReferenceGraph:
    """The in-edges of each node, by relation, in ascending input edge id."""

    schema: Schema
    num_nodes: Mapping[str, int]
    in_edges: Mapping[Relation, Mapping[int, list[Edge]]]


@dataclass(frozen=True)
class ReferenceSeed:
    """A seed; its example and time matter in disjoint sampling only."""

    type: str
    node: int
    example: int = 0
    time: int | None = None


@dataclass
class ReferenceMinibatch:
    node: dict[str, list[tuple[int, int]]]  # (example, node)
    nodes_per_hop: dict[str, list[int]]
    ends: dict[Relation, list[int]]  # the number of edges up to each expanded row
    source: dict[Relation, list[int]]
    edge: dict[Relation, list[int]]
    edges_per_hop: dict[Relation, list[int]]


@dataclass
class ReferenceSampler:
    """Samples minibatches of one graph by one plan. ``excluded`` holds (relation, example or None
    for all, source or the code ~e of an edge, target)."""

    graph: ReferenceGraph
    plan: SamplingPlan
    seed: int
    epoch: int
    disjoint: bool
    excluded: set[tuple[Relation, int | None, int, int]] = field(default_factory=set)

    def sample(self, seeds: Sequence[ReferenceSeed], key: int | None = None) -> ReferenceMinibatch:
        """Samples one minibatch; seeds of a type keep their order."""
        schema, plan = self.graph.schema, self.plan
        key = seeds_key(schema, seeds) if key is None else key
        latest = {one.example: one.time for one in seeds}
        out = ReferenceMinibatch(
            {
                t: [(s.example if self.disjoint else 0, s.node) for s in seeds if s.type == t]
                for t in schema.node_types
            },
            {t: [sum(s.type == t for s in seeds)] for t in schema.node_types},
            *({r: list[int]() for r in schema.relations} for _ in range(4)),
        )
        local = {t: dict[tuple[int, int], int]() for t in schema.node_types}
        for t, nodes in out.node.items():
            for row, name in enumerate(nodes):
                local[t].setdefault(name, row)
        frontier = {t: range(len(nodes)) for t, nodes in out.node.items()}
        for hop in range(plan.num_hops):
            before = {t: len(nodes) for t, nodes in out.node.items()}
            for relation in schema.relations:
                source_type, _, target_type = relation
                edges_before = len(out.source[relation])
                for row in frontier[target_type]:
                    example, node = out.node[target_type][row]
                    node_key = self._node_key(key, hop, relation, example, node)
                    allowed = self._allowed(relation, example, node, latest)
                    fanout = plan.fanouts_of(relation)[hop]
                    if plan.labor is None:
                        picks = self._picks(allowed, fanout, words(node_key))
                    else:
                        picks = self._labor_picks(allowed.edges, fanout, self._source_key(key, hop, relation))
                    for edge in picks:
                        name = (example, edge.source)
                        if name not in local[source_type]:
                            local[source_type][name] = len(out.node[source_type])
                            out.node[source_type].append(name)
                        out.source[relation].append(local[source_type][name])
                        out.edge[relation].append(edge.number)
                    out.ends[relation].append(len(out.source[relation]))
                out.edges_per_hop[relation].append(len(out.source[relation]) - edges_before)
            for t, nodes in out.node.items():
                out.nodes_per_hop[t].append(len(nodes) - before[t])
                frontier[t] = range(before[t], len(nodes))
        if plan.subgraph is Subgraph.INDUCED:
            self._induce(out, local, latest)
        return out

    def _node_key(self, key: int, hop: int, relation: Relation, example: int, node: int) -> int:
        node_key = fold_all([self.seed, self.epoch, key, hop])
        if not self.graph.schema.is_plain:
            node_key = fold(node_key, names_key(relation))
        node_key = fold(node_key, node)
        return fold(node_key, example) if self.disjoint else node_key

    def _source_key(self, key: int, hop: int, relation: Relation) -> int:
        parts = {"hop": [key, hop, LABOR_TAG], "layers": [key, LABOR_TAG], "epoch": [LABOR_TAG]}
        source_key = fold_all([self.seed, self.epoch, *parts[str(self.plan.labor)]])
        return source_key if self.graph.schema.is_plain else fold(source_key, names_key(relation[:1]))

    def _labor_picks(self, edges: list[Edge], fanout: float, source_key: int) -> list[Edge]:
        """The edges of the smallest words, of equal ones the first; in the order of the list."""
        if fanout == -1:
            return edges
        if isinstance(fanout, float):
            fanout = max(1, math.ceil(fanout * len(edges) - 1e-9)) if edges else 0
        drawn_from = [edge for edge in edges if edge.weight is None or edge.weight > 0]

        def rank(edge: Edge) -> float:
            word = mix((source_key + (edge.source + 1) * GAMMA) % WORD)
            return word if edge.weight is None else exponential(word) / edge.weight

        least = {edge.number for edge in sorted(drawn_from, key=rank)[: int(fanout)]}  # a stable sort
        return [edge for edge in edges if edge.number in least]

    def _allowed(
        self, relation: Relation, example: int, node: int, latest: Mapping[int, int | None]
    ) -> Allowed:
        """The in-edges that may be picked, by (time, input edge id) if the relation has times."""
        edges = sorted(self.graph.in_edges[relation].get(node, []), key=lambda edge: edge.time or 0)
        seed_time, window, early = latest.get(example), self.plan.time_window, list[Edge]()
        if window is not None:
            early = [edge for edge in edges if edge.time is not None and edge.time < seed_time - window]
        timely = [edge for edge in edges if edge.time is None or edge.time <= seed_time]
        fitting = [edge for edge in timely if edge not in early]
        hidden = {
            source
            for of, number, source, target in self.excluded
            if of == relation and target == node and (not self.disjoint or number in (None, example))
        }
        if hidden:
            return Allowed([edge for edge in fitting if not hidden & {edge.source, ~edge.number}], None)
        return Allowed(fitting, early)

    def _picks(self, allowed: Allowed, fanout: float, word: Iterator[int]) -> list[Edge]:
        edges, before = allowed.edges, allowed.before
        if fanout == -1:
            return edges
        if isinstance(fanout, float):
            fanout = max(1, math.ceil(fanout * len(edges) - 1e-9)) if edges else 0
        if self.plan.temporal is TemporalStrategy.LAST and edges and edges[0].time is not None:
            cut = max(len(edges) - fanout, 0)
            before = None if before is None else before + edges[:cut]
            edges = edges[cut:]
        if not edges or edges[0].weight is None:
            places = reference_picks(len(edges), int(fanout), self.plan.replacement, word)
            return [edges[place] for place in places]
        return weighted_picks(Allowed(edges, before), int(fanout), self.plan.replacement, word)

    def _induce(
        self,
        out: ReferenceMinibatch,
        local: Mapping[str, Mapping[tuple[int, int], int]],
        latest: Mapping[int, int | None],
    ) -> None:
        """Replaces the picked edges by all allowed ones between sampled nodes."""
        for relation in self.graph.schema.relations:
            ends, source, number = list[int](), list[int](), list[int]()
            for example, node in out.node[relation[2]]:
                edges = self._allowed(relation, example, node, latest).edges
                for edge in sorted(edges, key=lambda edge: edge.number):
                    row = local[relation[0]].get((example, edge.source))
                    if row is not None:
                        source.append(row)
                        number.append(edge.number)
                ends.append(len(source))
            out.ends[relation], out.source[relation], out.edge[relation] = ends, source, number
            out.edges_per_hop[relation] = []


def weighted_picks(
    allowed: Allowed, fanout: int, replacement: Replacement, word: Iterator[int]
) -> list[Edge]:
    """Draws in proportion to the weights, without replacement one after another."""
    weights = [float(edge.weight or 0) for edge in allowed.edges]
    positive = [place for place, weight in enumerate(weights) if weight > 0]
    if not positive or fanout == 0:
        return []
    sums, before = sums_of(allowed)
    if replacement is Replacement.WITH:
        return [allowed.edges[drawn(sums, word, before)] for _ in range(fanout)]
    if len(positive) <= fanout:
        return [allowed.edges[place] for place in positive]
    picked: list[int] = []
    left = list(range(len(weights)))
    while len(picked) < fanout:  # once, unless many draws hit what is picked already
        for _ in range(4 * (fanout - len(picked)) + 16):
            place = left[drawn(sums, word, before)]
            if place not in picked:
                picked.append(place)
            if len(picked) == fanout:
                break
        left = [place for place in left if place not in picked]
        sums, before = running_sums([weights[place] for place in left]), 0.0
    return [allowed.edges[place] for place in picked]


def exponential(word: int) -> float:
    """-log(u) of the number u in (0, 1] of a word, with every rounding as written."""

    def fma(a: float, b: float, c: float) -> float:
        return float(Fraction(a) * Fraction(b) + Fraction(c))

    f, e = math.frexp((float(word >> 11) + 0.5) * 2.0**-53)
    if f < 0.5**0.5:
        f, e = 2 * f, e - 1
    s = (f - 1) / (f + 1)
    z, total = s * s, 1 / 21
    for odd in range(19, 0, -2):
        total = fma(z, total, 1 / odd)
    return fma(-e, math.log(2), -2 * s * total)


def sums_of(allowed: Allowed) -> tuple[list[float], float]:
    """The sums of the allowed weights, and the sum that lies before them."""
    weights = [float(edge.weight or 0) for edge in allowed.edges]
    if allowed.before:
        earlier = running_sums([float(edge.weight or 0) for edge in allowed.before])
        sums = running_sums(weights, earlier[-1])
        if sums[-1] - earlier[-1] > sums[-1] * 2.0**-20:
            return sums, earlier[-1]
    return running_sums(weights), 0.0


def running_sums(weights: Sequence[float], total: float = 0.0) -> list[float]:
    sums = []
    for weight in weights:
        total += weight
        sums.append(total)
    return sums


def drawn(sums: Sequence[float], word: Iterator[int], before: float) -> int:
    """The first place whose sum exceeds before + u * (total - before)."""
    u, total = (next(word) >> 11) * 2.0**-53, sums[-1]
    x = float(Fraction(before) + Fraction(u) * Fraction(total - before))
    if x >= total:
        x = math.nextafter(total, 0.0)
    return next(place for place, value in enumerate(sums) if value > x)


def names_key(names: Sequence[str]) -> int:
    """The digest of a type or a relation: each name's length and bytes, eight to a word."""
    key = 0
    for name in names:
        data = name.encode()
        key = fold(key, len(data))
        for begin in range(0, len(data), 8):
            key = fold(key, int.from_bytes(data[begin : begin + 8].ljust(8, b"\0"), "little"))
    return key


def seeds_key(schema: Schema, seeds: Sequence[ReferenceSeed]) -> int:
    """The digest of the seeds, type by type in ascending order of their names."""
    nodes = {t: [one.node for one in seeds if one.type == t] for t in schema.node_types}
    if len(schema.node_types) == 1:
        return reference_key(nodes[schema.node_types[0]])
    key = 0
    for name in sorted((t for t in nodes if nodes[t]), key=str.encode):
        key = fold(fold(key, names_key((name,))), reference_key(nodes[name]))
    return key
