"""Pages beside what they describe: the command line, the example over ranks, tables of peers."""

from __future__ import annotations

import contextlib
import io
import json
import re
import runpy
import sys
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
import torch
import torch._dynamo
import typer

from benchmark import ranks
from benchmark.papers.others import DISTDGL
from benchmark.papers.page import Stored
from benchmark.support.world import summary
from build_tools.docs_hooks import command_line
from pyg_batchgnn.train.cli import app
from tests.docs.blocks import ROOT, blocks_of
from tests.support.ranks import run_ranks

# Jobs of ranks ####################################################################################

SCRIPT = ROOT / "examples" / "distributed.py"


def run(commands: list[list[str]]) -> list[str]:
    """Runs the script once for each list of arguments. Returns what each run printed."""
    printed = []
    for arguments in commands:
        out = io.StringIO()
        with mock.patch.object(sys, "argv", [str(SCRIPT), *arguments]), contextlib.redirect_stdout(out):
            runpy.run_path(str(SCRIPT), run_name="__main__")
        printed.append(out.getvalue())
    return printed


# Command line page ################################################################################

GROUP: Any = typer.main.get_command(app)


@pytest.mark.parametrize("name", sorted(GROUP.commands))
def test_a_command_has_a_section_with_its_options(name: str) -> None:
    page = command_line()
    assert f"## batchgnn {name}\n" in page
    section = page.split(f"## batchgnn {name}\n")[1].split("\n## ")[0]
    options = [one for one in GROUP.commands[name].params if one.param_type_name == "option"]
    missing = [spelling for one in options for spelling in one.opts if f"`{spelling}`" not in section]
    assert not missing


def test_markup_of_the_terminal_is_gone() -> None:
    page = command_line()
    assert "[bold]" not in page and "\b" not in page
    assert page.count("```") % 2 == 0


# Distributed example ##############################################################################

PAGE = ROOT / "docs" / "tutorials" / "your-own-script.md"


def test_it_learns_and_resumes_bit_for_bit(tmp_path: Path) -> None:
    straight, broken = tmp_path / "straight", tmp_path / "broken"
    epochs = ["--epochs", "2"]
    commands = [
        ["--folder", str(straight), *epochs],
        ["--folder", str(broken), *epochs, "--stop-after", "10"],  # of 15 or so in an epoch
        ["--folder", str(broken), *epochs],
    ]
    first, other = run_ranks(run, 2, {"commands": commands}, timeout=200.0)
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


# Peer tables ######################################################################################


def _part() -> dict[str, Any]:
    """Returns two rounds of two ranks; the slowest rank of the faster round counts."""
    theirs: dict[str, Any] = {"sample": 2.0, "features": 1.0, "forward": 3.0, "backward": 2.0}
    theirs = {"phases": theirs, "remote_rows": 900}
    ours = {"phases": {"prepare": 1.0, "forward": 2.0, "backward": 1.0}, "rows_fetched": 300}
    ours |= {"stats": {"rows_fetched": 600}}
    series = [
        {"round": number, "setting": setting, **summary([{"wall": wall + number, **side} for wall in walls])}
        for number in range(2)
        for setting, side, walls in (("DistDGL", theirs, (7.5, 7.0)), ("B = all", ours, (3.0, 3.5)))
    ]
    return {"series": series}


def test_training_compares_seconds_and_rows_of_an_epoch() -> None:
    theirs, ours = ranks.against_dist_dgl(_part()).splitlines()[2:]
    assert theirs == "| DistDGL | 7.50 | 3.00 | 3.00 | 2.00 | 900 | 1.0x | 1.0x | 1.0x |"
    assert ours == "| B = all | 3.50 | 1.00 | 2.00 | 1.00 | 300 | 2.1x | 3.0x | 3.0x |"


def test_preparation_compares_seconds_and_rows() -> None:
    theirs, ours = ranks.preparation_against_dist_dgl(_part()).splitlines()[2:]
    assert theirs == "| DistDGL | 7.50 | 900 | 1.0x | 1.0x |"
    assert ours == "| B = all | 3.50 | 300 | 2.1x | 3.0x |"


def test_the_gain_of_embeddings_is_over_the_faster_of_torchs(tmp_path: Path) -> None:
    def gains() -> list[str]:
        shown = {table.title: table for table in DISTDGL.tables(Stored(tmp_path))}["Learned embeddings"]
        return [row[-1] for row in shown.rows]

    assert gains() == ["-", "-"]  # not measured
    seconds = {"ours": [2.0, 1.0, 3.0], "sparse": [8.0], "dense": [12.0], "dgl": [5.0]}
    (tmp_path / "embeddings.json").write_text(json.dumps({"seconds": seconds}))
    assert gains() == ["8.0x", "5.0x"]
