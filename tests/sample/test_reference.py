"""The reference sampler on cases small enough to be worked out by hand, and on published values."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice

import pytest

from pyg_batchgnn.sample import Replacement
from tests.support import reference_sampler as ref

WITH, WITHOUT = Replacement.WITH, Replacement.WITHOUT


def scaled(*values: tuple[int, int]) -> Iterator[int]:
    """Yields words on which bounded(n) gives v: the middle of the v-th of n intervals."""
    return iter([(2 * v + 1) * 2**63 // n for v, n in values])


def test_words_are_splitmix64() -> None:
    """The first outputs of SplitMix64 seeded with 0 and with 1234567, as published."""
    assert list(islice(ref.words(0), 3)) == [0xE220A8397B1DCDAF, 0x6E789E6AA1B965F4, 0x06C45D188009454F]
    assert list(islice(ref.words(1234567), 3)) == [
        6457827717110365317,
        3203168211198807973,
        9817491932198370423,
    ]


def test_fold_of_zero_is_the_first_word_of_splitmix64() -> None:
    assert ref.fold(0, 0) == 0xE220A8397B1DCDAF
    assert ref.fold_all([]) == 0
    assert ref.fold_all([7, 8]) == ref.fold(ref.fold(0, 7), 8)


def test_key_depends_on_order_and_number_of_seeds() -> None:
    keys = [ref.reference_key(seeds) for seeds in ([], [0], [0, 0], [1, 2], [2, 1], [1, 2, 2], [2**40])]
    assert len(set(keys)) == len(keys)
    assert ref.reference_key([]) == ref.fold(0, 0)
    assert ref.reference_key([5]) == ref.fold(ref.fold(0, 5), 1)


@pytest.mark.parametrize(
    ("words", "n", "value", "used"),
    [
        ([2**63 + 1], 10, 5, 1),  # just above the middle of the range of words falls in the middle of [0, 10)
        ([2**64 - 1], 10, 9, 1),
        ([1], 10, 0, 1),  # low half 10 is not below n
        ([0, 2**63 + 1], 10, 5, 2),  # 2^64 mod 10 = 6, low halves below that are rejected
        ([2**63, 0, 2**63 + 1], 10, 5, 3),
        ([pow(5, -1, 2**64)], 5, 4, 1),  # low half 1 is below n but not below 2^64 mod 5 = 1: kept
        ([0], 8, 0, 1),  # a power of two divides 2^64: nothing to reject
        ([0], 1, 0, 1),
        ([0, 3], 2**63 + 1, 1, 2),  # 2^64 mod (2^63 + 1) = 2^63 - 1: half of the words are rejected
    ],
)
def test_bounded(words: list[int], n: int, value: int, used: int) -> None:
    left = iter(words)
    assert ref.bounded(left, n) == value
    assert len(list(left)) == len(words) - used


def test_floyd_by_hand() -> None:
    # d = 5, k = 3: j = 2, 3, 4. t = 1 is new; t = 1 is taken, so 3; t = 3 is taken, so 4.
    assert ref.floyd(5, 3, scaled((1, 3), (1, 4), (3, 5))) == [1, 3, 4]
    # All new.
    assert ref.floyd(5, 3, scaled((2, 3), (0, 4), (4, 5))) == [2, 0, 4]
    # The last j may be drawn itself: an upper bound of j instead of j + 1 would never give it.
    assert ref.floyd(2, 1, scaled((1, 2))) == [1]


@pytest.mark.parametrize(
    ("degree", "fanout", "replacement", "picks"),
    [
        (0, 3, WITH, []),
        (0, -1, WITHOUT, []),
        (4, 0, WITH, []),
        (4, 0, WITHOUT, []),
        (4, -1, WITH, [0, 1, 2, 3]),
        (4, -1, WITHOUT, [0, 1, 2, 3]),
        (4, 4, WITHOUT, [0, 1, 2, 3]),
        (4, 9, WITHOUT, [0, 1, 2, 3]),
        (1, 3, WITH, [0, 0, 0]),
    ],
)
def test_picks_without_choice(degree: int, fanout: int, replacement: Replacement, picks: list[int]) -> None:
    assert ref.reference_picks(degree, fanout, replacement, ref.words(99)) == picks


def test_picks_with_replacement_are_in_order_of_drawing() -> None:
    assert ref.reference_picks(4, 5, WITH, scaled((3, 4), (0, 4), (3, 4), (2, 4), (2, 4))) == [3, 0, 3, 2, 2]


def test_csc_keeps_input_order() -> None:
    #          edge  0  1  2  3  4
    sources = [2, 0, 2, 1, 2]
    destinations = [1, 1, 0, 1, 1]
    assert ref.reference_csc(sources, destinations, 3) == ([0, 1, 5, 5], [2, 2, 0, 1, 2], [2, 0, 1, 3, 4])


def test_minibatch_by_hand() -> None:
    """All neighbours of seeds [1, 0, 1] for two hops. Edges, by id:

    0: 2->1, 1: 0->1, 2: 3->0, 3: 1->1, 4: 2->1, 5: 4->3
    """
    indptr, indices, edge_ids = ref.reference_csc([2, 0, 3, 1, 2, 4], [1, 1, 0, 1, 1, 3], num_nodes=6)
    batch = ref.reference_sample(indptr, indices, edge_ids, [1, 0, 1], [-1, -1], WITHOUT, seed=0, epoch=0)
    assert batch.node == [1, 0, 1, 2, 3, 4]  # three seed rows; hop 0 finds 2 and 3; hop 1 finds 4
    assert batch.nodes_per_hop == [3, 2, 1]
    assert batch.edges_per_hop == [9, 1]
    assert batch.edge == [0, 1, 3, 4, 2, 0, 1, 3, 4, 5]  # both rows of seed 1 have the same edges
    assert batch.indices == [3, 1, 0, 3, 4, 3, 1, 0, 3, 5]  # source 1 is row 0, its first occurrence
    assert batch.indptr == [0, 4, 5, 9, 9, 10]  # node 2 has no in-edges


def test_minibatch_without_edges_or_seeds() -> None:
    empty = ref.reference_sample([0], [], None, [], [3, 2], WITH, seed=1, epoch=2)
    assert (empty.node, empty.indptr, empty.edge) == ([], [0], [])
    assert (empty.nodes_per_hop, empty.edges_per_hop) == ([0, 0, 0], [0, 0])
    isolated = ref.reference_sample([0, 0, 0], [], None, [1, 1], [3, 2], WITHOUT, seed=1, epoch=2)
    assert (isolated.node, isolated.indptr) == ([1, 1], [0, 0, 0])
    assert isolated.nodes_per_hop == [2, 0, 0]


def test_fanout_zero_ends_the_traversal() -> None:
    batch = ref.reference_sample([0, 1, 2], [1, 0], None, [0], [1, 0, 5], WITH, seed=0, epoch=0)
    assert (batch.node, batch.indptr, batch.nodes_per_hop) == ([0, 1], [0, 1, 1], [1, 1, 0, 0])


@pytest.mark.parametrize("n", [0, 1, 2, 3, 4, 5, 6, 7, 12, 50, 101])
def test_permutation_is_a_bijection(n: int) -> None:
    assert sorted(ref.reference_permutation(n, seed=3, epoch=n)) == list(range(n))


def test_feistel_by_hand() -> None:
    """The first round on Z_3 x Z_2 shifts the left half by what the right half gives."""
    key = 12345
    shifts = [ref.high_product(ref.fold(key, right), 3) for right in range(2)]
    assert [ref.feistel(x, 3, 2, [key]) for x in range(6)] == [
        (x // 2 + shifts[x % 2]) % 3 * 2 + x % 2 for x in range(6)
    ]
    assert ref.SHUFFLE == 0x53485546464C45
