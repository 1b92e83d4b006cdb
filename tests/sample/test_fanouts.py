"""The forms of num_neighbors, and what is wrong with others."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch_geometric.sampler import NumNeighbors

from pyg_batchgnn.sample import fanouts_by_relation

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
