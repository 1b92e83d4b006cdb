"""The picture of a plan: the legend covers no bar, and one point has no axis of decades."""

from __future__ import annotations

from pathlib import Path

import pytest

from pyg_batchgnn.data import GeneratorSpec, generate
from pyg_batchgnn.planner import PlannerMachine, PlannerNetwork, plan
from tests.support.drawn_figures import figures_drawn


@pytest.mark.parametrize(("batch_size", "scale"), [(2000, "linear"), (8, "log")])
def test_axes_and_legend(
    batch_size: int, scale: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    drawn = figures_drawn(monkeypatch)
    found = plan(
        generate(GeneratorSpec(nodes=600)),
        ranks=2,
        fanouts=(3, 2),
        batch_size=batch_size,
        samples=4,
        network=PlannerNetwork(1e9, 1e-4),
        machine=PlannerMachine(),
    )
    found.write(tmp_path / "plan")
    (figure,) = drawn
    bars, rows = figure.axes
    legend = bars.get_legend()
    assert legend is not None and legend.get_window_extent().y0 > bars.get_window_extent().y1 - 1
    assert rows.get_xscale() == scale
    figure.canvas.draw()
    labels = [label.get_text() for label in rows.get_xticklabels()]
    assert labels and not any(label.endswith(".0") for label in labels), "minibatches are counted"
