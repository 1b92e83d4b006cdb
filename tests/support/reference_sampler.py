"""The sampling contract in plain Python: slow, obvious, and the definition of a right answer.

Everything here is Python integers, lists and dicts, so that it can be checked by reading it beside
docs/concepts/sampling-contract.md. The compiled sampler must equal it bit for bit. All arithmetic
is modulo 2^64.

Sources: the mixing function and the increment are SplitMix64's (Steele, Lea and Flood, "Fast
splittable pseudorandom number generators", OOPSLA 2014); bounded() is Lemire's method ("Fast random
integer generation in an interval", ACM TOMACS 2019, algorithm 5); sampling without replacement is
Floyd's algorithm (Bentley and Floyd, "A sample of brilliance", CACM 1987).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import isqrt

from pyg_batchgnn.sample import Replacement

WORD = 2**64
GAMMA = 0x9E3779B97F4A7C15
SHUFFLE = int.from_bytes(b"SHUFFLE", "big")
FEISTEL_ROUNDS = 24


@dataclass(frozen=True)
class ReferenceMinibatch:
    """The right minibatch: the fields of `pyg_batchgnn.sample.Minibatch` as lists of integers."""

    node: list[int]
    indptr: list[int]
    indices: list[int]
    edge: list[int]
    nodes_per_hop: list[int]
    edges_per_hop: list[int]


# Keys and random words


def mix(z: int) -> int:
    """SplitMix64's bijection of 64-bit words."""
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9 % WORD
    z = (z ^ (z >> 27)) * 0x94D049BB133111EB % WORD
    return z ^ (z >> 31)


def fold(h: int, value: int) -> int:
    """The key `h` extended by one more value."""
    return mix(((h ^ (value % WORD)) + GAMMA) % WORD)


def fold_all(values: Sequence[int]) -> int:
    """The key of a sequence of values, starting from 0."""
    h = 0
    for value in values:
        h = fold(h, value)
    return h


def reference_key(seeds: Sequence[int]) -> int:
    """The minibatch key: a digest of the seed nodes in order, closed by their number."""
    return fold(fold_all(seeds), len(seeds))


def words(node_key: int) -> Iterator[int]:
    """The endless sequence of random words of one node."""
    t = 0
    while True:
        yield mix((node_key + (t + 1) * GAMMA) % WORD)
        t += 1


def bounded(word: Iterator[int], n: int) -> int:
    """Returns a uniform integer in [0, n); exact, because small low halves are rejected."""
    product = next(word) * n
    while product % WORD < (WORD - n) % n:
        product = next(word) * n
    return product // WORD


# The choice of neighbours of one node


def reference_picks(degree: int, fanout: int, replacement: Replacement, word: Iterator[int]) -> list[int]:
    """Positions in the adjacency list, in the order in which they are picked."""
    if fanout == -1:
        return list(range(degree))
    if degree == 0 or fanout == 0:
        return []
    if replacement is Replacement.WITH:
        return [bounded(word, degree) for _ in range(fanout)]
    if degree <= fanout:
        return list(range(degree))
    return floyd(degree, fanout, word)


def floyd(degree: int, fanout: int, word: Iterator[int]) -> list[int]:
    """`fanout` different positions out of `degree` (Floyd's algorithm)."""
    picked: dict[int, None] = {}  # a dict keeps the order of insertion
    for j in range(degree - fanout, degree):
        t = bounded(word, j + 1)
        picked[j if t in picked else t] = None
    return list(picked)


# One minibatch


def reference_sample(
    indptr: Sequence[int],
    indices: Sequence[int],
    edge_ids: Sequence[int] | None,
    seeds: Sequence[int],
    fanouts: Sequence[int],
    replacement: Replacement,
    seed: int,
    epoch: int,
) -> ReferenceMinibatch:
    """Samples one minibatch from a graph in CSC form.

    The in-neighbours of v are indices[indptr[v]:indptr[v + 1]]. `edge_ids[p]` is the input edge id
    of the edge at position p; None means that the position is the id.
    """
    node = list(seeds)
    local_id: dict[int, int] = {}
    for position, v in enumerate(seeds):
        local_id.setdefault(v, position)  # as a source, the first occurrence stands for the node

    out = ReferenceMinibatch(
        node, indptr=[0], indices=[], edge=[], nodes_per_hop=[len(seeds)], edges_per_hop=[]
    )
    frontier = range(len(seeds))
    for hop, fanout in enumerate(fanouts):
        hop_key = fold_all([seed, epoch, reference_key(seeds), hop])
        nodes_before, edges_before = len(node), len(out.indices)
        for row in frontier:
            v = node[row]
            begin, end = int(indptr[v]), int(indptr[v + 1])
            for pick in reference_picks(end - begin, fanout, replacement, words(fold(hop_key, v))):
                position = begin + pick
                source = int(indices[position])
                if source not in local_id:
                    local_id[source] = len(node)
                    node.append(source)
                out.indices.append(local_id[source])
                out.edge.append(position if edge_ids is None else int(edge_ids[position]))
            out.indptr.append(len(out.indices))
        out.nodes_per_hop.append(len(node) - nodes_before)
        out.edges_per_hop.append(len(out.indices) - edges_before)
        frontier = range(nodes_before, len(node))
    return out


def reference_csc(
    sources: Sequence[int], destinations: Sequence[int], num_nodes: int
) -> tuple[list[int], list[int], list[int]]:
    """Returns (indptr, indices, edge_ids) of a list of edges, by ascending input edge id."""
    incoming: list[list[int]] = [[] for _ in range(num_nodes)]
    for edge, destination in enumerate(destinations):
        incoming[destination].append(edge)
    indptr, edge_ids = [0], []
    for edges in incoming:
        edge_ids.extend(edges)
        indptr.append(len(edge_ids))
    return indptr, [sources[edge] for edge in edge_ids], edge_ids


# The keyed permutation


def high_product(word: int, n: int) -> int:
    """A 64-bit word scaled to [0, n)."""
    return word * n // WORD


def feistel(x: int, a: int, b: int, round_keys: Sequence[int]) -> int:
    """Applies an unbalanced Feistel network: a bijection of range(a * b) as Z_a x Z_b."""
    left, right = divmod(x, b)
    for r, key in enumerate(round_keys):
        if r % 2 == 0:
            left = (left + high_product(fold(key, right), a)) % a
        else:
            right = (right + high_product(fold(key, left), b)) % b
    return left * b + right


def shuffled(i: int, n: int, seed: int, epoch: int) -> int:
    """Returns the value at position i: walks the network's cycle until it is in range(n)."""
    a = isqrt(n - 1) + 1  # ceil(sqrt(n))
    a += a % 2  # were a and b both odd, every round would be an even permutation
    b = -(-n // a)  # ceil(n / a)
    round_keys = [fold_all([seed, epoch, SHUFFLE, r]) for r in range(FEISTEL_ROUNDS)]
    x = feistel(i, a, b, round_keys)
    while x >= n:
        x = feistel(x, a, b, round_keys)
    return x


def reference_permutation(n: int, seed: int, epoch: int) -> list[int]:
    return [shuffled(i, n, seed, epoch) for i in range(n)]
