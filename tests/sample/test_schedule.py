"""The keyed permutation: equal to the reference, a bijection, and uniform over all permutations."""

from __future__ import annotations

import hypothesis.strategies as st
import numpy as np
import pytest
import torch
from hypothesis import given

from pyg_batchgnn.sample import keyed_permutation
from tests.support.chi_square import (
    Ints,
    assert_uniform,
    p_of_cells,
    p_of_permutations,
    p_of_whole_permutations,
)
from tests.support.reference_sampler import reference_permutation
from tests.support.sampling_cases import epochs, fixed, random_seeds
from tests.support.tiers import in_all


def shuffles(n: int, seeds: range, epochs: range) -> Ints:
    rows = [torch.stack([keyed_permutation(n, seed, epoch) for epoch in epochs]) for seed in seeds]
    return torch.stack(rows).numpy()


def compositions(first: Ints, second: Ints) -> Ints:
    """Returns the images under the second permutation of what the first sends to 0, 1, ..."""
    return np.take_along_axis(second, first.argsort(axis=-1), axis=-1)


@fixed(150)
@given(st.one_of(st.integers(0, 30), st.integers(0, 400)), random_seeds, epochs)
def test_equals_the_reference(n: int, seed: int, epoch: int) -> None:
    permutation = keyed_permutation(n, seed, epoch)
    assert permutation.dtype == torch.int64
    assert permutation.tolist() == reference_permutation(n, seed, epoch)


@pytest.mark.parametrize("n", [1023, 1024, 1025, 4096, 9999])
def test_equals_the_reference_at_larger_sizes(n: int) -> None:
    assert keyed_permutation(n, 3, n).tolist() == reference_permutation(n, 3, n)


@pytest.mark.parametrize("n", [2**16 + 1, 1_000_000])
def test_bijective_at_large_sizes(n: int) -> None:
    assert torch.equal(keyed_permutation(n, 0, 0).sort().values, torch.arange(n))


@pytest.mark.parametrize("n", [3, 6, *in_all(2, 4, 5, 7)])
def test_all_permutations_are_equally_likely(n: int) -> None:
    """Small domains are where a Feistel network mixes most slowly."""
    table = shuffles(n, range(100), range(1000))
    assert_uniform(p_of_whole_permutations(table.reshape(-1, n)))


@pytest.mark.parametrize("n", [2, 9, 16, 25, 121, *in_all(3, 4, 5, 6, 7, 8, 23, 36, 49, 100, 120)])
def test_half_of_all_permutations_are_odd(n: int) -> None:
    """A Feistel network whose halves both have odd sizes would give even permutations only."""
    table = shuffles(n, range(5), range(1000)).reshape(-1, n)
    odd = sum(is_odd(permutation) for permutation in table.tolist())
    assert_uniform(p_of_cells(np.array([odd, 5000 - odd]), np.array([0.5, 0.5])))


def is_odd(permutation: list[int]) -> bool:
    swaps, left = 0, list(permutation)
    for i in range(len(left)):
        while left[i] != i:
            j = left[i]
            left[i], left[j] = left[j], j
            swaps += 1
    return swaps % 2 == 1


@pytest.mark.parametrize(
    ("n", "blocks", "count"), [(7, 7, 5000), (100, 100, 1500), (1000, 20, 500), (1000, 500, 1500)]
)
def test_every_value_is_equally_likely_at_every_position(n: int, blocks: int, count: int) -> None:
    table = shuffles(n, range(2), range(count)).reshape(-1, n)
    assert_uniform(p_of_permutations(table, blocks))


@pytest.mark.parametrize("n", [9, 100, *in_all(7, 8, 12)])
def test_pairs_of_positions(n: int) -> None:
    """Values at positions that share a half of the network (0 and 1) and at others."""
    table = shuffles(n, range(10), range(4000)).reshape(-1, n)
    for other in (1, n // 2, n - 1):
        assert_uniform(p_of_difference(table, other))


def p_of_difference(permutations: Ints, other: int) -> float:
    n = permutations.shape[1]
    difference = (permutations[:, other] - permutations[:, 0]) % n
    counts = np.bincount(difference, minlength=n)
    assert counts[0] == 0
    return p_of_cells(counts[1:], np.full(n - 1, 1 / (n - 1)))


@pytest.mark.parametrize("axis", [0, 1], ids=["seeds", "epochs"])
@pytest.mark.parametrize(("n", "blocks"), [(4, None), (7, 7), (100, 50)])
def test_consecutive_permutations_are_independent(n: int, blocks: int | None, axis: int) -> None:
    """Permutations of seeds s and s + 1, or of epochs e and e + 1, in disjoint pairs."""
    table = shuffles(n, range(50), range(200))
    first = table[::2] if axis == 0 else table[:, ::2]
    second = table[1::2] if axis == 0 else table[:, 1::2]
    composed = compositions(first, second).reshape(-1, n)
    assert_uniform(
        p_of_whole_permutations(composed) if blocks is None else p_of_permutations(composed, blocks)
    )


def test_seed_and_epoch_are_not_interchangeable() -> None:
    table = shuffles(7, range(100), range(100))
    low, high = np.triu_indices(100, k=1)
    assert_uniform(p_of_permutations(compositions(table[low, high], table[high, low]), 7))
