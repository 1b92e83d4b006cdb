"""METIS: its library is called where it is installed, and its absence and its failures are told."""

from __future__ import annotations

from ctypes.util import find_library
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from pyg_batchgnn.ops import WeightedGraph
from pyg_batchgnn.partition.multilevel import owners
from tests.support.ranks import run_ranks

#: A path of three nodes.
PATH = WeightedGraph(
    torch.tensor([0, 1, 3, 4]), torch.tensor([1, 0, 2, 1]).int(), torch.ones(3, 1).int(), None, 0
)


def test_metis_cuts_within_the_limits() -> None:
    try:
        owners._Library.load()
    except ImportError as error:
        pytest.skip(str(error))
    found = run_ranks("tests.partition.job_multilevel:metis", 2)[0].value
    assert found.pop("cut") < 0.11, found
    assert max(found.values()) <= 1.06, found


@pytest.mark.parametrize("system", [None, "c"], ids=["absent", "without METIS's functions"])
def test_the_package_is_named_where_there_is_no_library(
    system: str | None, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The package's files are damaged. The system has no library of the name, or another one."""
    folder = tmp_path / "cmeel.prefix" / "lib"
    folder.mkdir(parents=True)
    for name in ("libGKlib.so", "libmetis.so"):
        (folder / name).write_text("no library")
    monkeypatch.setattr(owners.sysconfig, "get_paths", lambda: {"purelib": str(tmp_path)})
    monkeypatch.setattr(owners, "find_library", lambda _name: system and find_library(system))
    with pytest.raises(ImportError, match='pip install cmeel-metis, or choose the policy "multilevel"'):
        owners._Library.load()
    assert not owners.has_metis()


@pytest.mark.parametrize("integer", [np.int32, np.int64])
def test_a_code_of_the_library_is_told(integer: type) -> None:
    library = object.__new__(owners._Library)
    library.integer = np.dtype(integer)
    library._library = SimpleNamespace(METIS_PartGraphKway=lambda *_: -4)
    slack = torch.tensor([1.05], dtype=torch.float64)
    with pytest.raises(RuntimeError, match="failed with code -4 on 3 nodes"):
        library.part(PATH, slack, 2)
    assert library.part(PATH, slack, 1).tolist() == [0, 0, 0]
