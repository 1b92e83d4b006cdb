"""The least that a training step needs: the rows that it gathers and its matrix products.

The formulae are in README.md. All layers aggregate first and multiply after, which is the cheaper
order for sampled minibatches, where sources outnumber destinations several times. Rows that lie in
a run (the prefix of destinations in a hidden layer) count as input of the product, not as gathers.
"""

from __future__ import annotations

from dataclasses import dataclass

from benchmark.networks.recipe import HEADS, widths


@dataclass(frozen=True)
class Gather:
    """Rows read in random order.

    Attributes:
        rows: how many are read.
        table_rows: of the table that they are read from.
        columns: elements of a row.
    """

    rows: float
    table_rows: int
    columns: int


@dataclass(frozen=True)
class Product:
    """The matrix products of 2 m k n operations each.

    Attributes:
        role: ``forward`` [m, k] x [k, n]; ``weight``, its gradient [n, m] x [m, k]; ``input``, the
            gradient [m, n] x [n, k].
        m, k, n: rows, input columns and output columns of the layer's product.
        times: how many of this shape.
    """

    role: str
    m: int
    k: int
    n: int
    times: int = 1

    @property
    def operations(self) -> float:
        """The number of floating point operations of all of them."""
        return 2.0 * self.m * self.k * self.n * self.times


@dataclass(frozen=True)
class MinibatchCounts:
    """The mean nodes discovered and edges sampled at each hop, from the seeds onwards."""

    nodes_per_hop: tuple[float, ...]
    edges_per_hop: tuple[float, ...]

    def layer(self, layer: int) -> tuple[int, int, float]:
        """Sources N, destinations D and edges E of ``layer``, counted from 1 nearest the input."""
        hops = len(self.edges_per_hop) - layer + 1
        destinations = sum(self.nodes_per_hop[:hops])
        sources = destinations + self.nodes_per_hop[hops]
        return round(sources), round(destinations), sum(self.edges_per_hop[:hops])


@dataclass(frozen=True)
class Needs:
    """Everything that a step of one model gathers and multiplies, sampling's loads apart."""

    gathers: list[Gather]
    products: list[Product]


def trained(m: int, k: int, n: int, needs_input: bool, times: int = 1) -> list[Product]:
    """Returns a product, its weight's gradient and, if something before it learns, its input's."""
    roles = ("forward", "weight", "input") if needs_input else ("forward", "weight")
    return [Product(role, m, k, n, times) for role in roles]


def _attention(counts: MinibatchCounts, layer: int, k: int, n: int, table: int, last: bool) -> Needs:
    """GAT: logits from every source's row, then a weighted sum a head, then a product a head.

    Backward, the gradient of an edge's weight is a product of two rows, so the sources' rows are
    gathered again; the gradient of a source gathers rows as wide as all heads' inputs.
    """
    sources, destinations, edges = counts.layer(layer)
    first = layer == 1
    all_rows = edges + sources + destinations if first else edges  # logits and self loops, in no order
    gathers = [Gather(2 * all_rows, table, k)]
    if not first:
        gathers.append(Gather(edges, destinations, HEADS * k))
    columns = n if last else n // HEADS
    return Needs(gathers, trained(destinations, k, columns, needs_input=True, times=HEADS))


def _mean_and_root(counts: MinibatchCounts, layer: int, k: int, n: int, table: int) -> Needs:
    """SAGE: the neighbours' mean and the destination's own row, each with a product of its own."""
    _, destinations, edges = counts.layer(layer)
    first = layer == 1
    gathers = [Gather(edges + (destinations if first else 0), table, k)]
    if not first:
        gathers.append(Gather(edges, destinations, k))
    return Needs(gathers, trained(destinations, k, n, not first, times=2))


def _sum(counts: MinibatchCounts, layer: int, k: int, table: int, products: list[Product]) -> Needs:
    """GCN and GIN: one sum over neighbours and the destination's own row."""
    _, destinations, edges = counts.layer(layer)
    first = layer == 1
    gathers = [Gather(edges + (destinations if first else 0), table, k)]
    if not first:
        gathers.append(Gather(edges, destinations, k))
    return Needs(gathers, products)


def needs(
    model: str, counts: MinibatchCounts, graph_rows: int, features: int, hidden: int, classes: int
) -> Needs:
    """Returns what a step of ``model`` needs on minibatches of ``counts``.

    Args:
        model: one of ``networks.recipe.MODELS``.
        counts: of the minibatches.
        graph_rows: rows of the feature table, which the first layer reads in place.
        features, hidden, classes: widths.
    """
    layers = len(counts.edges_per_hop)
    gathers: list[Gather] = []
    products: list[Product] = []
    for layer, (k, n) in enumerate(widths(features, hidden, classes, layers), start=1):
        sources, destinations, _ = counts.layer(layer)
        first, table = layer == 1, graph_rows if layer == 1 else sources
        if model == "sage":
            found = _mean_and_root(counts, layer, k, n, table)
        elif model == "gcn":
            found = _sum(counts, layer, k, table, trained(destinations, k, n, not first))
        elif model == "gin":
            perceptron = trained(destinations, k, hidden, not first) + trained(destinations, hidden, n, True)
            found = _sum(counts, layer, k, table, perceptron)
        else:
            found = _attention(counts, layer, k, n, table, layer == layers)
        gathers += found.gathers
        products += found.products
    return Needs(gathers, products)
