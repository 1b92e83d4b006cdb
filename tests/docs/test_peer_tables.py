"""The tables of comparisons with DistDGL, from made-up results."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from benchmark.papers import distdgl
from benchmark.papers.stored import Stored
from benchmark.ranks import show_peer


def _theirs(wall: float) -> dict[str, Any]:
    phases = {"sample": 2.0, "features": 1.0, "forward": 3.0, "backward": 2.0}
    return {"wall": wall, "phases": phases, "remote_rows": 900}


def _ours(wall: float) -> dict[str, Any]:
    phases = {"prepare": 1.0, "forward": 2.0, "backward": 1.0}
    return {"wall": wall, "phases": phases, "stats": {"rows_fetched": 600}, "rows_fetched": 300}


def _part() -> dict[str, Any]:
    """Returns two rounds of two ranks; the slowest rank of the faster round counts."""
    series = [
        {"round": number, "setting": setting, "of_ranks": [side(wall + number) for wall in walls]}
        for number in range(2)
        for setting, side, walls in (("DistDGL", _theirs, (7.5, 7.0)), ("B = all", _ours, (3.0, 3.5)))
    ]
    return {"series": series}


def test_training_compares_seconds_and_rows_of_an_epoch() -> None:
    theirs, ours = show_peer.training(_part()).splitlines()[2:]
    assert theirs == "| DistDGL | 7.50 | 3.00 | 3.00 | 2.00 | 900 | 1.0x | 1.0x | 1.0x |"
    assert ours == "| B = all | 3.50 | 1.00 | 2.00 | 1.00 | 300 | 2.1x | 3.0x | 3.0x |"


def test_preparation_compares_seconds_and_rows() -> None:
    theirs, ours = show_peer.preparation(_part()).splitlines()[2:]
    assert theirs == "| DistDGL | 7.50 | 900 | 1.0x | 1.0x |"
    assert ours == "| B = all | 3.50 | 300 | 2.1x | 3.0x |"


def test_the_gain_of_embeddings_is_over_the_faster_of_torchs(tmp_path: Path) -> None:
    seconds = {"ours": [2.0, 1.0, 3.0], "sparse": [8.0], "dense": [12.0], "dgl": [5.0]}
    (tmp_path / "embeddings.json").write_text(json.dumps({"seconds": seconds}))
    shown = {table.title: table for table in distdgl.tables(Stored(tmp_path))}["Learned embeddings"]
    assert [row[-1] for row in shown.rows] == ["8.0x", "5.0x"]


def test_embeddings_that_were_not_measured_are_dashes(tmp_path: Path) -> None:
    shown = {table.title: table for table in distdgl.tables(Stored(tmp_path))}["Learned embeddings"]
    assert [row[-1] for row in shown.rows] == ["-", "-"]
