"""The tables of comparisons with DistDGL, from made-up results."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from benchmark import ranks
from benchmark.papers.others import DISTDGL
from benchmark.papers.page import Stored
from benchmark.support.world import summary


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
