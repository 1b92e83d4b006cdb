"""A rank is killed or stopped while parts are written, read again or shared.

The others end with an error that names it, and nothing is left behind.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from pyg_batchgnn.comm import Communicator
from pyg_batchgnn.partition import is_partition, load_partition, partition_parts, save_partition
from tests.partition.job_partition import graph
from tests.support.leftovers import nothing_is_left
from tests.support.ranks import run_ranks

TIMEOUT = 8.0  # for starting, too: a machine may stand still for seconds


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two parts, which three ranks cut anew."""
    folder = tmp_path_factory.mktemp("saved")
    with Communicator.create("alone") as comm:
        save_partition(partition_parts(graph(1, 300, 3000), "random", 2, comm=comm), folder / "parts", comm)
    return folder


@pytest.mark.parametrize("stage", ["save", "load", "topology", "tables"])
@pytest.mark.parametrize(("how", "text"), [("kill", "no longer exists"), ("stop", "is stopped")])
def test_the_others_name_the_rank(saved: Path, how: str, text: str, stage: str) -> None:
    before = {path: path.stat().st_mtime_ns for path in saved.rglob("*")}
    arguments = {"how": how, "stage": stage, "victim": 1, "timeout": TIMEOUT}
    arguments["folder"] = str(saved / "parts" if stage == "load" else saved)
    never = [1] if how == "stop" else []
    with nothing_is_left():
        results = run_ranks("tests.store.job_rank_faults:fault", 3, arguments, never_end=never, check=False)
    for result in (results[0], results[2]):
        assert result.code == 0, result.stderr
        assert result.value["error"] == "PeerError", result.value
        assert re.search(rf"rank 1 .*{text}", result.value["text"]), result.value["text"]
        # One wait, not two; and the ranks of a host wait 5 s for a line to one of them.
        assert result.value["seconds"] < 2 * TIMEOUT + 5
    assert {path: path.stat().st_mtime_ns for path in saved.rglob("*")} == before


def test_what_a_save_left_whose_ranks_all_died_is_no_partition(tmp_path: Path) -> None:
    """It is hidden and has no META.json; the next save removes it."""
    half = tmp_path / ".parts.partial"
    (half / "part-00000").mkdir(parents=True)
    (half / "part-00007").mkdir()
    assert not is_partition(half)
    with Communicator.create("alone") as comm:
        found = partition_parts(graph(1, 300, 3000), "random", 2, comm=comm)
        save_partition(found, tmp_path / "parts", comm)
        assert [path.name for path in tmp_path.iterdir()] == ["parts"]
        assert load_partition(tmp_path / "parts", comm).num_nodes == 300
