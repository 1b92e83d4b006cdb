"""The examples of typed graphs and of links run and learn."""

from __future__ import annotations

import re
import runpy
from pathlib import Path

import pytest
import torch

EXAMPLES = Path(__file__).parents[2] / "examples"


@pytest.mark.parametrize(
    ("script", "score", "least"),
    [("typed_graph.py", "test accuracy", 0.8), ("link_prediction.py", "test ROC-AUC", 0.75)],
)
def test_an_example(script: str, score: str, least: float, capsys: pytest.CaptureFixture[str]) -> None:
    torch.set_num_threads(1)
    runpy.run_path(str(EXAMPLES / script), run_name="__main__")
    lines = capsys.readouterr().out.splitlines()
    form = rf"epoch \d  loss (\d\.\d{{4}})  {score} (\d\.\d{{4}})"
    losses, scores = zip(*(re.fullmatch(form, line).groups() for line in lines), strict=True)
    assert len(lines) == 4 and float(losses[-1]) < float(losses[0])
    assert float(scores[-1]) > max(least, float(scores[0]))
