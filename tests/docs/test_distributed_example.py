"""The script over ranks runs, learns and resumes exactly, and its tutorial shows its own lines."""

from __future__ import annotations

import re
from pathlib import Path

import torch

from tests.docs.blocks import ROOT, blocks_of
from tests.docs.job_distributed import SCRIPT
from tests.support.ranks import run_ranks

PAGE = ROOT / "docs" / "tutorials" / "your-own-script.md"


def test_it_learns_and_resumes_bit_for_bit(tmp_path: Path) -> None:
    straight, broken = tmp_path / "straight", tmp_path / "broken"
    epochs = ["--epochs", "2"]
    commands = [
        ["--folder", str(straight), *epochs],
        ["--folder", str(broken), *epochs, "--stop-after", "10"],  # of 15 or so in an epoch
        ["--folder", str(broken), *epochs],
    ]
    first, other = run_ranks("tests.docs.job_distributed:run", 2, {"commands": commands}, timeout=200.0)
    whole, stopped, resumed = first.value
    assert other.value == ["", "", ""], "the first rank prints"
    form = r"epoch \d: loss (\d\.\d{4}), validation ROC-AUC (\d\.\d{4})\n"
    (loss, _), (later, area) = re.findall(form, whole)
    assert float(later) < 0.8 * float(loss) and float(area) > 0.9
    assert stopped == "" and resumed.splitlines()[-1] == whole.splitlines()[-1]
    one, again = (torch.load(run / "checkpoint.pt", weights_only=True) for run in (straight, broken))
    assert one["places"] == again["places"]
    for name, weights in one["model"].items():
        assert torch.equal(weights, again["model"][name]), name


def test_the_tutorial_shows_lines_of_the_script() -> None:
    script = SCRIPT.read_text(encoding="utf-8")
    shown = [block for block in blocks_of(PAGE.read_text(encoding="utf-8")) if block.language == "python"]
    assert len(shown) > 4
    for block in shown:
        assert block.code in script, f"{PAGE.name}:{block.line} differs from {SCRIPT.name}"
