"""Splits in files of `torch.save` are read, and nothing that they name is ever run."""

from __future__ import annotations

import builtins
import io
import os
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays_of_numpy

from pyg_batchgnn.data import DatasetError, DatasetNotFoundError
from pyg_batchgnn.data.ogb.split_file import read_split_file
from tests.support.tiers import examples

KINDS = st.one_of(
    arrays_of_numpy.integer_dtypes(), arrays_of_numpy.unsigned_integer_dtypes(),
    arrays_of_numpy.floating_dtypes(sizes=(16, 32, 64)), arrays_of_numpy.boolean_dtypes(),
)  # fmt: skip
SHAPES = arrays_of_numpy.array_shapes(min_dims=1, max_dims=3, min_side=0, max_side=3)
ARRAYS = KINDS.flatmap(lambda kind: arrays_of_numpy.arrays(kind, SHAPES))
GOOD = {"edge": np.arange(6).reshape(3, 2), "year": np.array([2001, 2002, 2003], np.int32)}


def same(left: dict[str, np.ndarray], right: dict[str, np.ndarray]) -> bool:
    """Returns whether arrays are equal bit for bit, in this machine's order of bytes."""
    native = {name: values.astype(values.dtype.newbyteorder("=")) for name, values in right.items()}
    return left.keys() == native.keys() and all(
        left[name].dtype == native[name].dtype
        and left[name].shape == native[name].shape
        and left[name].tobytes() == native[name].tobytes()
        for name in left
    )


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("splits") / "train.pt"


@examples(25)
@given(found=st.dictionaries(st.text(max_size=5), ARRAYS, max_size=3), transposed=st.booleans())
@pytest.mark.parametrize("is_zip", [True, False])
def test_arrays_come_back(path: Path, is_zip: bool, found: dict[str, np.ndarray], transposed: bool) -> None:
    if transposed:
        found = {name: values.T for name, values in found.items()}
    torch.save(found, path, _use_new_zipfile_serialization=is_zip)
    assert same(read_split_file(path), found)


@pytest.mark.parametrize("name", ["numpy.core.multiarray", "numpy._core.multiarray"])
def test_files_of_old_and_new_numpy(path: Path, name: str) -> None:
    stream = io.BytesIO()
    torch.save(GOOD, stream, _use_new_zipfile_serialization=False)
    here = np.array([0]).__reduce__()[0].__module__.encode()
    path.write_bytes(stream.getvalue().replace(here, name.encode()))
    assert same(read_split_file(path), GOOD)


class Calls:
    """An object whose pickle calls something."""

    def __init__(self, function: Callable[..., Any], *arguments: Any) -> None:
        self.call = function, arguments

    def __reduce__(self) -> Any:
        return self.call


REFUSED: dict[str, Any] = {
    "os.system": Calls(os.system, "touch pwned"),
    "eval": Calls(eval, "open('pwned', 'w')"),
    "getattr of an array's module": Calls(getattr, np.ndarray, "tofile"),
    "open": Calls(builtins.open, "pwned", "w"),
    "import": Calls(__import__, "antigravity"),
    "numpy.load": Calls(np.load, "pwned", None, True),
    "objects": np.array([Calls(os.system, "touch pwned"), None], dtype=object),
    "structure": np.zeros(2, [("a", "i4"), ("b", "O")]),
    "times": np.zeros(2, "datetime64[s]"),
    "texts": np.array(["a", "b"]),
    "complex": np.zeros(2, np.complex128),
    "a scalar": np.float64(1.0),
    "a tensor": torch.ones(2),
    "a class": Path,
    "numbers": [1, 2],
    "a dict": {"a": GOOD["edge"]},
}


@pytest.mark.parametrize("is_zip", [True, False])
@pytest.mark.parametrize("name", REFUSED)
def test_whatever_else_is_in_a_file_is_refused_and_nothing_runs(
    name: str, is_zip: bool, path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for content in (REFUSED[name], {"edge": REFUSED[name]}, {"a": [{"b": (REFUSED[name],)}]}):
        if content is REFUSED["a dict"]:
            continue
        torch.save(content, path, _use_new_zipfile_serialization=is_zip)
        with pytest.raises(DatasetError, match=r"train.pt: train: not a dict of NumPy arrays"):
            read_split_file(path)
    assert not list(tmp_path.iterdir())


@examples(100)
@given(data=st.data())
@pytest.mark.parametrize("is_zip", [True, False])
def test_damaged_files_give_arrays_or_an_error(path: Path, is_zip: bool, data: st.DataObject) -> None:
    stream = io.BytesIO()
    torch.save(GOOD, stream, _use_new_zipfile_serialization=is_zip)
    content = bytearray(stream.getvalue())
    for _ in range(data.draw(st.integers(0, 3))):
        content[data.draw(st.integers(0, len(content) - 1))] = data.draw(st.integers(0, 255))
    path.write_bytes(content[: data.draw(st.integers(0, len(content)))])
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            found = read_split_file(path)
        assert all(isinstance(values, np.ndarray) for values in found.values())
    except DatasetError as error:
        assert str(path) in str(error)


def test_a_file_that_does_not_exist(tmp_path: Path) -> None:
    with pytest.raises(DatasetNotFoundError, match="download the data set again"):
        read_split_file(tmp_path / "gone.pt")
