"""A covering choice of cases has every pair of values, slices have all, stamps are kept."""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest

from tests.support import tiers
from tests.support.tiers import Slice, Stamp, contents, covering


@pytest.mark.parametrize(
    ("strength", "sizes"), [(1, (4, 2, 3)), (2, (4, 2, 3)), (2, (5, 5, 2, 2)), (2, (2, 3))]
)
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


def test_a_stamp_is_due_until_it_is_green_and_when_contents_change(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tiers, "STAMPS", tmp_path / "stamps")
    monkeypatch.setattr(tiers, "ALL", False)
    monkeypatch.delenv(tiers.UNCHANGED, raising=False)
    file = tmp_path / "kernel.cpp"
    file.write_text("int a;")
    stamp = Stamp.of("kernels", contents([file]))
    assert stamp.is_due
    stamp.write()
    assert not Stamp.of("kernels", contents([file])).is_due
    monkeypatch.setenv(tiers.UNCHANGED, "1")
    assert stamp.is_due
    monkeypatch.delenv(tiers.UNCHANGED)
    file.write_text("int b;")
    assert Stamp.of("kernels", contents([file])).is_due
