"""A conversion that is killed goes on, and its result has the same bytes."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from pyg_batchgnn.data import DatasetError
from pyg_batchgnn.data.files import Journal
from pyg_batchgnn.tables import GraphDescription, convert
from tests.support.programs import run_text
from tests.tables.test_conversion import bytes_of

#: Converts, and kills itself before a step, given by number, or while features are written.
JOB = """
import os, signal, sys
from pyg_batchgnn.data.files import NpyAppender
from pyg_batchgnn.tables import GraphDescription, convert
steps = []
def progress(step):
    steps.append(step)
    if len(steps) == int(sys.argv[3]):
        os.kill(os.getpid(), signal.SIGKILL)
def append(self, piece, append=NpyAppender.append):
    append(self, piece)
    if self._path.name == "edge_attr.npy" and sys.argv[3] == "-1":
        os.kill(os.getpid(), signal.SIGKILL)
NpyAppender.append = append
convert(GraphDescription.read(sys.argv[1]), sys.argv[2], progress=progress, threads=1)
"""
SAID = """
[nodes.user]
files = "users.csv"
key = "id"
features = { n = "number" }
[edges."user,knows,user"]
files = "links.csv"
source = "a"
target = "b"
features = { w = "number" }
"""


def write_tables(folder: Path) -> GraphDescription:
    folder.mkdir()
    (folder / "users.csv").write_text("id,n\n" + "".join(f"u{at},{at % 7}\n" for at in range(300)))
    rows = "".join(f"u{at * 7 % 300},u{at * 11 % 300},{at}\n" for at in range(2000))
    (folder / "links.csv").write_text("a,b,w\n" + rows)
    (folder / "graph.toml").write_text(SAID)
    return GraphDescription.read(folder)


def test_a_killed_conversion_goes_on(tmp_path: Path) -> None:
    said = write_tables(tmp_path / "tables")
    steps: list[str] = []
    convert(said, tmp_path / "whole", progress=steps.append)
    assert steps[2:] == [
        "nodes user",
        "features user",
        "edges user,knows,user",
        "reverse user,knows,user",
        "finish",
    ]
    for number in (3, -1, 7):
        ran = run_text(JOB, tmp_path / "tables", tmp_path / "data", str(number))
        assert ran.returncode == -signal.SIGKILL
        assert not (tmp_path / "data").exists()
    partial = tmp_path / ".data.converting"
    done = {file: file.stat().st_mtime_ns for file in partial.rglob("*.npy") if "work" not in file.parts}
    assert len(done) >= 4
    convert(said, tmp_path / "data")
    assert not partial.exists()
    again = {tmp_path / "data" / file.relative_to(partial): when for file, when in done.items()}
    assert all(file.stat().st_mtime_ns == when for file, when in again.items()), (
        "finished steps were done again"
    )
    assert bytes_of(tmp_path / "data") == bytes_of(tmp_path / "whole")


class _StoppedError(Exception):
    """Ends a conversion like a signal."""


def stopped(said: GraphDescription, folder: Path, step: str) -> None:
    """Converts up to a step."""

    def progress(name: str) -> None:
        if name == step:
            raise _StoppedError

    with pytest.raises(_StoppedError):
        convert(said, folder, progress=progress)


def test_changed_tables_and_damaged_steps_are_made_again(tmp_path: Path) -> None:
    said = write_tables(tmp_path / "tables")
    convert(said, tmp_path / "whole")
    stopped(said, tmp_path / "data", "reverse user,knows,user")
    file = tmp_path / ".data.converting/edge_index/user__knows__user.npy"
    file.write_bytes(file.read_bytes()[:-4] + b"\1\0\0\0")
    convert(said, tmp_path / "data")
    assert bytes_of(tmp_path / "data") == bytes_of(tmp_path / "whole")
    stopped(said, tmp_path / "other", "finish")
    users = tmp_path / "tables" / "users.csv"
    users.write_text(users.read_text().replace("u5,5", "u5,50"))
    convert(said, tmp_path / "new")
    convert(said, tmp_path / "other")
    assert bytes_of(tmp_path / "other") == bytes_of(tmp_path / "new") != bytes_of(tmp_path / "whole")


def test_two_processes_do_not_make_one_folder(tmp_path: Path) -> None:
    said = write_tables(tmp_path / "tables")
    journal = Journal(tmp_path / "data", {})
    with pytest.raises(DatasetError, match="another process is making it"):
        convert(said, tmp_path / "data")
    journal.remove()
    convert(said, tmp_path / "data")
    with pytest.raises(DatasetError, match="exists already"):
        convert(said, tmp_path / "data")
