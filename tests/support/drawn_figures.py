"""The figures of matplotlib that a test draws."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def figures_drawn(monkeypatch: pytest.MonkeyPatch) -> list[Figure]:
    """Returns a list that each figure is added to when it is saved."""
    from matplotlib.figure import Figure  # late: it takes long to import

    drawn: list[Figure] = []
    save = Figure.savefig

    def savefig(figure: Figure, *arguments: Any, **options: Any) -> None:
        drawn.append(figure)
        save(figure, *arguments, **options)

    monkeypatch.setattr(Figure, "savefig", savefig)
    return drawn
