"""A covering choice of cases has every pair of values, and slices have everything once."""

from __future__ import annotations

import itertools

import pytest

from tests.support.tiers import Slice, covering


@pytest.mark.parametrize(("strength", "sizes"), [(1, (4, 2, 3)), (2, (5, 5, 2, 2)), (2, (2, 3))])
def test_every_choice_of_values_is_kept(strength: int, sizes: tuple[int, ...]) -> None:
    cases = [dict(enumerate(values)) for values in itertools.product(*map(range, sizes))]
    kept = covering(cases, strength)

    def choices(places: set[int]) -> set[tuple]:
        return {choice for at in places for choice in itertools.combinations(cases[at].items(), strength)}

    assert choices(kept) == choices(set(range(len(cases))))
    assert (len(kept) < len(cases)) == (strength < len(sizes))


def test_slices_have_everything_once() -> None:
    names = [f"tests/test_x.py::test_{number}" for number in range(200)]
    slices = [Slice.parse(f"{piece}/3") for piece in (1, 2, 3)]
    assert all(sum(one.has(name) for one in slices) == 1 for name in names)
    assert all(any(map(one.has, names)) for one in slices)
    assert all(map(Slice.parse("1").has, names))
