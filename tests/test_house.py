"""The house stays one that an engineer can carry: files, lines, files crossed, modules loaded."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.house_bounds import BOUNDS
from tests.support import house


@pytest.mark.parametrize(
    "measure", [house.sizes, house.rooms, house.crossed, house.loaded], ids=lambda one: one.__name__
)
def test_the_house_is_within_its_bounds(measure: Callable[[], dict[str, int]]) -> None:
    over = {name: value for name, value in measure().items() if value > BOUNDS[name]}
    assert not over, f"{over} where tests/house_bounds.py allows {[BOUNDS[name] for name in over]}"
