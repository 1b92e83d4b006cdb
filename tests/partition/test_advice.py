"""The advice about a partition fits what its report counts."""

from __future__ import annotations

import pytest

from pyg_batchgnn.partition import (
    Balanced,
    Load,
    Metis,
    MetisLibrary,
    Multilevel,
    PartCounts,
    PartitionReport,
    PolicyLike,
    Streaming,
    advise,
    as_policy,
)

#: Two parts, one of which has 1.8 times the mean of in-edges.
UNEVEN = [(10, 90, 4, 5), (10, 10, 4, 5)]


def report(*parts: tuple[int, int, int, int], policy: PolicyLike) -> PartitionReport:
    """Returns a report of parts with these nodes, in-edges, training nodes and cut edges."""
    counts = tuple(PartCounts(*part, 0) for part in parts)
    pairs = ((0,) * len(parts),) * len(parts)
    made_by = as_policy(policy)
    slack = made_by.balance if isinstance(made_by, Balanced) else {}
    sums = zip(*parts, strict=True)
    loads = tuple(
        Load(name, "node", tuple(every), 1, slack.get(name))
        for name, every in zip(("nodes", "edges", "train"), sums, strict=False)
    )
    return PartitionReport({"node": counts}, pairs, pairs, (0,) * len(parts), loads)


@pytest.mark.parametrize(
    ("parts", "policy", "says"),
    [
        ([(10, 50, 4, 5)] * 2, "ldg", ["good as they are: 10%"]),
        ([(10, 50, 4, 20)] * 2, "random", ["40% of the edges join parts; by chance it would be 50%"]),
        ([(10, 50, 4, 20)] * 2, "multilevel", ["good as they are: 40%"]),
        ([(10, 50, 4, 6)] * 2, "ldg", ["12% of the edges join parts; by chance it would be 50%"]),
        ([(10, 50, 4, 6)] * 2, "contiguous", ["good as they are: 12%"]),
        ([(10, 50, 6, 5), (10, 50, 2, 5)], "ldg", ["1.50 times the mean of training nodes"]),
        (UNEVEN, "ldg", ["1.80 times the mean of in-edges"]),
        ([(15, 50, 4, 5), (5, 50, 4, 5)], "contiguous", ["1.50 times the mean of nodes"]),
        ([(2, 50, 1, 5), (1, 50, 0, 5)], "metis", ["good as they are"]),  # nodes cannot be halved
        ([(15, 50, 4, 5), (5, 50, 4, 5)], "metis", ["1.50 times the mean of nodes"]),
        ([(10, 50, 4, 0)], "random", []),
        ([(10, 10**9, 4, 0)], "metis", []),  # nothing was cut
    ],
)
def test_advice(parts: list[tuple[int, int, int, int]], policy: str, says: list[str]) -> None:
    found = advise(report(*parts, policy=policy), policy)
    assert len(found) == len(says), found
    assert all(text in sentence for text, sentence in zip(says, found, strict=True)), found


@pytest.mark.parametrize(
    ("policy", "remedy"),
    [
        ("contiguous", "--policy multilevel keeps to 1.05"),
        ("ldg", "--policy multilevel keeps to 1.05"),
        ("multilevel", "The limit of 1.05 could not be kept: the policy found no parts"),
        (Multilevel({"nodes": 1.05}), "No limit was set for it; add --balance edges"),
        (Streaming({"train": 1.05}), "No limit was set for it; add --balance edges"),
        (Multilevel({"edges": 2.0}), "--balance edges=2 allows that; a smaller number"),
    ],
)
def test_an_uneven_load_has_a_remedy_for_every_policy(policy: PolicyLike, remedy: str) -> None:
    (sentence,) = advise(report(*UNEVEN, policy=policy), policy)
    assert "1.80 times the mean of in-edges" in sentence and remedy in sentence, sentence


def test_limits_of_other_loads_and_types() -> None:
    """Test nodes of the second type are worst, a weight is met, one node is half of another."""
    policy = Metis({"test": 1.05, "price": 1.05, "heavy": 1.05})
    loads = (
        Load("test", "author", (5, 4), 1, 1.05),  # the mean rounded up
        Load("test", "paper", (8, 4), 1, 1.05),
        Load("val", "paper", (9, 0), 1),  # nobody asked for it
        Load("price", "paper", (0.5000001, 0.4999999), 0.1, 1.0),
        Load("heavy", "paper", (9, 3), 9, 1.05),
    )
    counts = (PartCounts(10, 50, 0, 5, 0),) * 2
    pairs = ((0, 5), (5, 0))
    found = PartitionReport({"author": counts, "paper": counts}, pairs, pairs, (0, 0), loads)
    test, heavy = advise(found, policy)
    assert "Part 0 has 1.33 times the mean of 'test' of type 'paper', more than the 1.05" in test
    assert "the policy found no parts within all limits, though no node is too heavy" in test
    assert "1.50 times the mean of 'heavy' of type 'paper'" in heavy
    assert "one node alone has 1.50 times the mean" in heavy
    assert [load.is_met for load in loads] == [True, False, True, True, False]


@pytest.mark.parametrize(
    ("edges", "policy", "metis", "says", "not_said"),
    [
        (1_000, "random", MetisLibrary.ABSENT, "best cut by one process", "--policy metis"),
        (1_000, "random", MetisLibrary.INSTALLED, "--policy metis, which is installed", "holds"),
        (1_000, "ldg", MetisLibrary.INSTALLED, "on rank 0", "where ldg cut"),
        (10**9, "ldg", MetisLibrary.INSTALLED, "nodes and more", "--policy metis"),
        (10**9, "metis", MetisLibrary.INSTALLED, "GB on rank 0, which holds the whole graph", "join parts"),
        (1_000, "metis", MetisLibrary.INSTALLED, "good as they are", "--policy"),
    ],
)
def test_the_policy_to_take_depends_on_the_size_and_on_metis(
    edges: int, policy: str, metis: MetisLibrary, says: str, not_said: str
) -> None:
    nodes = edges // 4
    found = advise(report(*[(nodes, edges, 4, edges // 2)] * 4, policy=policy), policy, metis)
    assert says in " ".join(found) and not_said not in " ".join(found), found
