"""The refusals of the sampler, with the value and the remedy."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest
import torch
from torch_geometric.sampler import NumNeighbors

from pyg_batchgnn.sample import MacrobatchSampler, NeighborChoice, SamplingPlan, fanouts_by_relation
from tests.support.sampling_cases import star

NODES = 6


def sample(seeds: Any, threads: int | None = None) -> None:
    MacrobatchSampler(star(NODES - 1).graph(), SamplingPlan((2,)), threads=threads).sample([seeds], epoch=0)


@pytest.mark.parametrize(
    ("fanouts", "error", "says"),
    [
        ((-2,), ValueError, "-2"),
        ((5, -7, 3), ValueError, "-7"),
        ((2.5,), TypeError, "2.5"),
        ((3.0,), TypeError, "3.0"),
        (("5",), TypeError, "'5'"),
        ((None,), TypeError, "None"),
        ((True,), TypeError, "True"),
        ((np.True_,), TypeError, "True"),
        ((torch.tensor(True),), TypeError, "True"),
        ((np.float32(1.5),), TypeError, "1.5"),
        ((2**31,), ValueError, str(2**31)),
    ],
)
def test_fanouts(fanouts: Any, error: type[Exception], says: str) -> None:
    with pytest.raises(error, match=says):
        SamplingPlan(fanouts)


def test_fanouts_may_be_any_integers() -> None:
    plan = SamplingPlan([torch.tensor(3), np.int64(2)])  # type: ignore[arg-type, list-item]
    assert plan.fanouts == (3, 2) and all(type(fanout) is int for fanout in plan.fanouts)


def test_shares_and_windows_may_be_numpys() -> None:
    plan = SamplingPlan((np.float32(0.5), np.float64(1.0)), time_window=np.int64(3))  # type: ignore[arg-type]
    assert plan == SamplingPlan((0.5, 1.0), time_window=3) and type(plan.time_window) is int
    assert all(type(fanout) is float for fanout in plan.fanouts)
    choice = NeighborChoice(time_attr="time", time_window=np.int64(3))  # type: ignore[arg-type]
    assert type(choice.time_window) is int


@pytest.mark.parametrize(
    ("seeds", "error", "says"),
    [
        (torch.tensor([0, NODES]), IndexError, f"{NODES}.* 0 to {NODES - 1}"),
        (torch.tensor([2, -1]), IndexError, f"-1.* 0 to {NODES - 1}"),
        (torch.tensor([2**40]), IndexError, str(2**40)),
        (torch.tensor([-(2**63)]), IndexError, str(-(2**63))),
        (torch.tensor([1, 2], dtype=torch.int32), TypeError, r"torch.int32.*\.to\(torch.int64\)"),
        (torch.tensor([1.0]), TypeError, r"torch.float32.*\.to\(torch.int64\)"),
        (torch.tensor([True, False]), TypeError, "torch.bool"),
        (torch.tensor([1, 2]).to_sparse(), ValueError, r"torch.sparse_coo.*use .to_dense\(\)"),
        (torch.tensor([[1, 2]]), ValueError, r"\[1, 2\]"),
        (torch.tensor(1), ValueError, r"\[\]"),
        ([1, 2], TypeError, "list.*torch.as_tensor"),
    ],
)
def test_seeds(seeds: Any, error: type[Exception], says: str) -> None:
    with pytest.raises(error, match=says):
        sample(seeds)


@pytest.mark.parametrize("threads", [0, -1, 1e308, 2**63])
def test_threads(threads: Any) -> None:
    with pytest.raises(ValueError, match=re.escape(str(threads))):
        sample(torch.tensor([0]), threads)


AB, BA = ("a", "to", "b"), ("b", "rev_to", "a")
RELATIONS = (AB, BA)


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ([3, 2], ((3, 2), (3, 2))),
        ((3, 0.5), ((3, 0.5), (3, 0.5))),
        ([], ((), ())),
        ({AB: [1], BA: [2]}, ((1,), (2,))),
        ({BA: [2], ("a", "b"): [1]}, ((1,), (2,))),
        ({"a__to__b": [1], "b__rev_to__a": [2]}, ((1,), (2,))),
        ([-3, -1], ((-1, -1), (-1, -1))),
        ([np.int64(-3), torch.tensor(4)], ((-1, 4), (-1, 4))),
        ({AB: [-7], BA: [2]}, ((-1,), (2,))),
        (NumNeighbors([4, 4]), ((4, 4), (4, 4))),
        (NumNeighbors({AB: [1], BA: [2]}), ((1,), (2,))),
        (NumNeighbors({AB: [1]}, default=[7]), ((1,), (7,))),
        (NumNeighbors({}, default=[25, 10]), ((25, 10), (25, 10))),
    ],
)
def test_forms(given: Any, expected: Any) -> None:
    assert fanouts_by_relation(given, RELATIONS) == expected


@pytest.mark.parametrize(
    ("given", "error", "words"),
    [
        ({AB: [1]}, ValueError, ["Missing number of neighbors", str(BA), "default"]),
        ({AB: [1], BA: [1], ("x", "y", "z"): [1]}, ValueError, ["Not all edge types", "('x', 'y', 'z')"]),
        ({AB: [1], BA: [1, 2]}, ValueError, ["Number of hops must be the same", "has 1", "has 2"]),
        (NumNeighbors({AB: [1, 2]}, default=[1]), ValueError, ["Number of hops"]),
        ({"a to b": [1]}, ValueError, ["'a to b'", "(source, name, target)"]),
        ({7: [1]}, ValueError, ["7"]),
        (5, TypeError, ["list", "5"]),
        ("15,10", TypeError, ["list", "15,10"]),
        ({AB: 5, BA: [1]}, TypeError, ["list"]),
        (torch.tensor([3, 2]), TypeError, ["list", "tensor([3, 2])"]),
        (np.array([3, 2]), TypeError, ["list", "array([3, 2])"]),
    ],
)
def test_refused(given: Any, error: type[Exception], words: list[str]) -> None:
    with pytest.raises(error) as caught:
        fanouts_by_relation(given, RELATIONS)
    assert all(word in str(caught.value) for word in words), caught.value


def test_one_object_serves_two_graphs() -> None:
    """PyG's `NumNeighbors` remembers the edge types of the first graph that it meets."""
    fanouts = NumNeighbors({}, default=[3])
    fanouts.get_values([AB])
    assert fanouts_by_relation(fanouts, RELATIONS) == ((3,), (3,))
