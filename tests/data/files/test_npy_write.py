"""Writing .npy files by appending."""

from pathlib import Path

import numpy as np
import pytest

from pyg_batchgnn.data.files import EdgeAppender, NpyAppender, npy_header
from tests.support.programs import run_text


@pytest.mark.parametrize("cuts", [(), (0,), (1, 4), (2, 2, 5)])
def test_rows_appended_are_the_rows_read(tmp_path: Path, cuts: tuple[int, ...]) -> None:
    values = np.arange(21, dtype=np.float16).reshape(7, 3)
    with NpyAppender(tmp_path / "x.npy", np.float16, (3,)) as out:
        for piece in np.split(values, cuts):
            out.append(piece)
    read = np.load(tmp_path / "x.npy")
    assert read.dtype == np.float16 and np.array_equal(read, values)


def test_edges_appended_are_the_edges_read(tmp_path: Path) -> None:
    edges = np.random.default_rng(0).integers(0, 1000, (2, 5000))
    with EdgeAppender(tmp_path / "edge_index.npy", np.int32) as out:
        for piece in np.split(edges, [10, 10, 4000], axis=1):
            out.append(*piece)
    read = np.load(tmp_path / "edge_index.npy")
    assert read.dtype == np.int32 and np.array_equal(read, edges)
    assert [path.name for path in tmp_path.iterdir()] == ["edge_index.npy"]


def test_no_edges_at_all(tmp_path: Path) -> None:
    with EdgeAppender(tmp_path / "edge_index.npy", np.int64):
        pass
    assert np.load(tmp_path / "edge_index.npy").shape == (2, 0)


def test_pieces_that_do_not_fit(tmp_path: Path) -> None:
    with NpyAppender(tmp_path / "x.npy", np.int64, (3,)) as out, pytest.raises(ValueError, match=r"\(2,\)"):
        out.append(np.zeros((1, 2)))
    with EdgeAppender(tmp_path / "e.npy", np.int64) as edges, pytest.raises(ValueError, match="destinations"):
        edges.append(np.zeros(2), np.zeros(3))


def test_header_has_one_length() -> None:
    shapes = [(), (0,), (2, 10**18), (10**12, 100)]
    assert len({len(npy_header(np.dtype(np.int64), shape)) for shape in shapes}) == 1


#: Writes a data set and a partition of it with too little room for a file, as on a full disk.
_NO_ROOM = """
import resource, sys
from pathlib import Path
from pyg_batchgnn.train.cli import main

def said(*arguments):
    try:
        main(list(arguments))
    except SystemExit as ended:
        print(arguments[0], ended.code)

folder = Path(sys.argv[1])
said("generate", str(folder / "good"), "--nodes", "3000")
resource.setrlimit(resource.RLIMIT_FSIZE, (9000, 9000))
said("generate", str(folder / "full"), "--nodes", "3000")
said("partition", str(folder / "good"), "--out", str(folder / "parts"))
"""


def test_a_full_disk_is_named(tmp_path: Path) -> None:
    done = run_text(_NO_ROOM, tmp_path)
    assert [line for line in done.stdout.splitlines() if line[-1] in "02"][-2:] == [
        "generate 2",
        "partition 2",
    ]
    lines = [line for line in done.stderr.splitlines() if line.startswith("batchgnn: ")]
    assert len(lines) == 2, done.stderr
    for line, folder in zip(lines, ("full", "parts"), strict=True):
        assert f"{tmp_path}/" in line and folder in line and "cannot be written (File too large)" in line
    assert {path.name for path in tmp_path.iterdir()} == {"good"}
