"""The branch of Lemire's method that a random test never meets: a word that must be rejected, met
on purpose.

A word is rejected once in 2^64 / n draws. But every step from the seed of a run to a random word is
a bijection of 64-bit words, so the seed that makes a chosen word appear at a chosen draw of a
chosen node can be computed backwards.
"""

from __future__ import annotations

import pytest
import torch

from pyg_batchgnn.sample import Replacement, SamplingPlan
from tests.support.graph_strategies import star
from tests.support.minibatch_checks import check_graph, expected_minibatches
from tests.support.reference_sampler import GAMMA, WORD, fold, fold_all, mix, reference_key, words


def unshift(z: int, shift: int) -> int:
    """The x with x ^ (x >> shift) == z."""
    x = z
    for _ in range(64 // shift):
        x = z ^ (x >> shift)
    return x


def unmix(z: int) -> int:
    """The inverse of mix."""
    z = unshift(z, 31) * pow(0x94D049BB133111EB, -1, WORD) % WORD
    z = unshift(z, 27) * pow(0xBF58476D1CE4E5B9, -1, WORD) % WORD
    return unshift(z, 30)


def unfold(h: int, value: int) -> int:
    """The key that `value` extends to `h`."""
    return (unmix(h) - GAMMA) % WORD ^ value


def seed_for_word(word: int, t: int, node: int, seeds: list[int]) -> tuple[int, int]:
    """A (seed, epoch) for which `word` is word `t` of `node` at hop 0 of the minibatch of `seeds`.

    The seed is below 2^63.
    """
    node_key = (unmix(word) - (t + 1) * GAMMA) % WORD
    epoch_key = unfold(unfold(unfold(node_key, node), 0), reference_key(seeds))
    for epoch in range(100):
        seed = unfold(unfold(epoch_key, epoch), 0)  # fold(0, seed) == fold(seed, 0)
        if seed < 2**63:
            return seed, epoch
    raise AssertionError("half of all seeds are below 2^63")


def with_low_half(low: int, n: int) -> int:
    """The word whose product with the odd number n is `low` modulo 2^64."""
    return low * pow(n, -1, WORD) % WORD


def test_the_way_back() -> None:
    assert all(unmix(mix(z)) == z for z in (0, 1, GAMMA, WORD - 1, 2**63))
    assert unfold(fold(123, 456), 456) == 123
    seed, epoch = seed_for_word(77, 2, node=0, seeds=[1, 0])
    node_key = fold(fold_all([seed, epoch, reference_key([1, 0]), 0]), 0)
    stream = words(node_key)
    assert [next(stream) for _ in range(3)][2] == 77


@pytest.mark.parametrize("replacement", list(Replacement))
@pytest.mark.parametrize("t", [0, 1, 2, 4])
@pytest.mark.parametrize(
    "word", [0, 1, 2**63, with_low_half(4, 11), with_low_half(5, 11), with_low_half(10, 11), WORD - 1]
)
def test_rejected_and_nearly_rejected_words(word: int, t: int, replacement: Replacement) -> None:
    """Degree 11: 2^64 mod 11 = 5, so low halves 0 to 4 are rejected and 5 to 10 are kept.

    Without replacement the bounds are 7..11, so that each draw meets the word under a bound of its
    own: 2^63 is rejected by 10 and kept by 8.
    """
    seeds = [0, 3]
    seed, epoch = seed_for_word(word, t, node=0, seeds=seeds)
    check_graph(star(11), SamplingPlan((5,), replacement), seed, [torch.tensor(seeds)], epoch)


def test_rejection_matters() -> None:
    """Without the rejection the first pick would be 0 and all later ones would shift."""
    seed, epoch = seed_for_word(0, 0, node=0, seeds=[0])
    plan = SamplingPlan((3,), Replacement.WITH)
    right = expected_minibatches(star(11).lists(), plan, seed, [torch.tensor([0])], epoch)[0]
    stream = words(fold(fold_all([seed, epoch, reference_key([0]), 0]), 0))
    without_rejection = [next(stream) * 11 // WORD for _ in range(3)]
    assert without_rejection[0] == 0 and right.edge != without_rejection
    assert right.edge[:2] == without_rejection[1:]
