"""The least that a typed step needs: the rows that it gathers and its matrix products.

As in `benchmark.training.needs`, by relation: each aggregates first, and the own rows of a type's
targets are multiplied once. Attention has no self loops, and computes a source's logits where it
reads the row.
"""

from __future__ import annotations

from dataclasses import dataclass

from benchmark.networks.recipe import HEADS, widths
from benchmark.support.mag import Relation
from benchmark.training.needs import Gather, MinibatchCounts, Needs, trained


@dataclass(frozen=True)
class TypedCounts:
    """The mean nodes discovered and edges sampled at each hop, from the seeds onwards.

    Attributes:
        nodes: by node type.
        edges: by relation.
    """

    nodes: dict[str, list[float]]
    edges: dict[Relation, list[float]]

    def total(self) -> MinibatchCounts:
        """Returns the sums over types and relations."""
        nodes, edges = (zip(*found.values(), strict=True) for found in (self.nodes, self.edges))
        return MinibatchCounts(tuple(map(sum, nodes)), tuple(map(sum, edges)))


@dataclass(frozen=True)
class _Layer:
    """The sizes of a layer.

    Attributes:
        k, n: input and output columns.
        first: True if it reads features in place.
        last: True if it returns the logits.
        tables: by node type, the rows of the table that the layer reads.
        targets: by node type, the rows that it computes.
        edges: by relation, the edges of those that have any.
    """

    k: int
    n: int
    first: bool
    last: bool
    tables: dict[str, int]
    targets: dict[str, int]
    edges: dict[Relation, float]

    def sage(self) -> Needs:
        """SAGE: a mean per relation, and the targets' own rows."""
        gathers, products = [], []
        for name, (rows, into) in self.by_type().items():
            times = 1 + len(into)
            products += trained(rows, self.k, self.n, not self.first, times)
            if self.first:
                gathers.append(Gather(rows, self.tables[name], self.k))
            for relation in into:
                gathers.append(Gather(self.edges[relation], self.tables[relation[0]], self.k))
                if not self.first:
                    gathers.append(Gather(self.edges[relation], rows, self.k))
        return Needs(gathers, products)

    def gat(self) -> Needs:
        """GAT: sources' rows forward and backward, a weighted sum and a product per head.

        The targets' own rows give logits.
        """
        gathers, products = [], []
        columns = self.n if self.last else self.n // HEADS
        for name, (rows, into) in self.by_type().items():
            products += trained(rows, self.k, columns, True, HEADS * len(into))
            if self.first:
                gathers.append(Gather(2 * rows, self.tables[name], self.k))
            for relation in into:
                gathers.append(Gather(2 * self.edges[relation], self.tables[relation[0]], self.k))
                if not self.first:
                    gathers.append(Gather(self.edges[relation], rows, HEADS * self.k))
        return Needs(gathers, products)

    def by_type(self) -> dict[str, tuple[int, list[Relation]]]:
        """Returns the targets of each type that is computed, and the relations into it."""
        return {
            name: (rows, [one for one in self.edges if one[2] == name])
            for name, rows in self.targets.items()
            if rows
        }


def typed_needs(
    model: str, counts: TypedCounts, graph_rows: dict[str, int], features: int, hidden: int, classes: int
) -> Needs:
    """Returns what a step of "sage" or "gat" needs on minibatches of ``counts``.

    Args:
        model: the network.
        counts: of the minibatches.
        graph_rows: by node type, rows of the feature table, which the first layer reads in place.
        features, hidden, classes: widths.
    """
    count = len(next(iter(counts.edges.values())))
    gathers, products = [], []
    for number, (k, n) in enumerate(widths(features, hidden, classes, count), start=1):
        hops = count - number + 1
        sources = {name: round(sum(hop[: hops + 1])) for name, hop in counts.nodes.items()}
        layer = _Layer(
            k,
            n,
            number == 1,
            number == count,
            graph_rows if number == 1 else sources,
            {name: round(sum(hop[:hops])) for name, hop in counts.nodes.items()},
            {one: sum(hop[:hops]) for one, hop in counts.edges.items() if sum(hop[:hops])},
        )
        found = layer.sage() if model == "sage" else layer.gat()
        gathers += found.gathers
        products += found.products
    return Needs(gathers, products)
