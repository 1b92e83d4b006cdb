"""Pickles of arrays are read, and nothing in a pickle is ever run."""

from __future__ import annotations

import builtins
import io
import os
import pickle
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays_of_numpy

from pyg_batchgnn.data import DatasetError, DatasetNotFoundError
from pyg_batchgnn.data.ogb.pickled_arrays import PickleRefusedError, read_pickled_arrays
from pyg_batchgnn.data.ogb.split_file import read_split_file

KINDS = st.one_of(
    arrays_of_numpy.integer_dtypes(), arrays_of_numpy.unsigned_integer_dtypes(),
    arrays_of_numpy.floating_dtypes(sizes=(16, 32, 64)), arrays_of_numpy.boolean_dtypes(),
)  # fmt: skip
SHAPES = arrays_of_numpy.array_shapes(min_dims=1, max_dims=3, min_side=0, max_side=3)
ARRAYS = KINDS.flatmap(lambda kind: arrays_of_numpy.arrays(kind, SHAPES))
GOOD = {"edge": np.arange(6).reshape(3, 2), "year": np.array([2001, 2002, 2003], np.int32)}


def same(left: dict[str, np.ndarray], right: dict[str, np.ndarray]) -> bool:
    return left.keys() == right.keys() and all(
        left[name].dtype == right[name].dtype
        and left[name].shape == right[name].shape
        and left[name].tobytes() == right[name].tobytes()
        for name in left
    )


def read(data: bytes) -> dict[str, np.ndarray]:
    """Reads a dict of arrays, as the reader of files does."""
    found = read_pickled_arrays(io.BytesIO(data))
    if not isinstance(found, dict) or not all(isinstance(one, np.ndarray) for one in found.values()):
        raise PickleRefusedError("not a dict of arrays")
    return found


@settings(max_examples=25)
@given(st.dictionaries(st.text(max_size=5), ARRAYS, max_size=3), st.sampled_from([2, 3, 4]), st.booleans())
def test_arrays_come_back(found: dict[str, np.ndarray], protocol: int, transposed: bool) -> None:
    if transposed:
        found = {name: values.T for name, values in found.items()}
    assert same(read(pickle.dumps(found, protocol)), found)


@pytest.mark.parametrize("is_zip", [True, False])
def test_files_of_torch_save(tmp_path: Path, is_zip: bool) -> None:
    path = tmp_path / "train.pt"
    torch.save(GOOD, path, _use_new_zipfile_serialization=is_zip)
    assert same(read_split_file(path), GOOD)


class Calls:
    """An object whose pickle calls something."""

    def __init__(self, function: Callable[..., Any], *arguments: Any) -> None:
        self.call = function, arguments

    def __reduce__(self) -> Any:
        return self.call


class Sets(dict[str, Any]):
    """A dict with a state."""

    def __reduce__(self) -> Any:
        return dict, (), {"state": 1}


ATTACKS: dict[str, Any] = {
    "os.system": Calls(os.system, "touch pwned"),
    "eval": Calls(eval, "open('pwned', 'w')"),
    "getattr of an array's module": Calls(getattr, np.ndarray, "tofile"),
    "open": Calls(builtins.open, "pwned", "w"),
    "import": Calls(__import__, "antigravity"),
    "encode with another codec": Calls(__import__("codecs").encode, b"x" * 20, "zlib"),
    "numpy.load": Calls(np.load, "pwned", None, True),
    "bytes of a size": Calls(bytes, 1 << 40),
    "state of a dict": Sets(),
    "objects": np.array([Calls(os.system, "touch pwned"), None], dtype=object),
    "structure": np.zeros(2, [("a", "i4"), ("b", "O")]),
    "times": np.zeros(2, "datetime64[s]"),
    "texts": np.array(["a", "b"]),
    "complex": np.zeros(2, np.complex128),
    "a subclass": np.zeros(2).view(np.matrix) if hasattr(np, "matrix") else np.ma.zeros(2),
    "a scalar": np.float64(1.0),
    "a tensor": torch.ones(2),
    "a class": Path,
    "a set": {1, 2},
}


@pytest.mark.parametrize("protocol", range(6))
@pytest.mark.parametrize("name", ATTACKS)
@pytest.mark.filterwarnings("ignore::PendingDeprecationWarning")
def test_whatever_else_is_in_a_pickle_is_refused_and_nothing_runs(
    name: str, protocol: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for content in (ATTACKS[name], {"edge": ATTACKS[name]}, {"a": [{"b": (ATTACKS[name],)}]}):
        data = pickle.dumps(content, protocol)
        with pytest.raises(PickleRefusedError):
            read(data)
    assert not list(tmp_path.iterdir())


#: Pickles written by hand: operations that Python's pickler would not write in such an order.
BY_HAND = {
    "INST": b"(S'touch pwned'\nios\nsystem\n.",
    "OBJ": b"(cos\nsystem\nS'touch pwned'\no.",
    "NEWOBJ": b"\x80\x02cbuiltins\nobject\n)\x81.",
    "an extension": b"\x80\x02\x82\x01.",
    "a persistent id": b"\x80\x02Pid\n.",
    "a state for a name": b"\x80\x02cnumpy\nndarray\n}b.",
    "a call of a call": b"\x80\x02c_codecs\nencode\nX\x01\x00\x00\x00aX\x06\x00\x00\x00latin1\x86R)R.",
    "a call of a text": b"\x80\x02X\x02\x00\x00\x00os)R.",
    "items for a list": b"\x80\x02]K\x01K\x02s.",
    "an unhashable key": b"\x80\x02}]K\x02s.",
    "a lone mark": b"\x80\x02(.",
    "nothing": b"\x80\x02.",
    "two values": b"\x80\x02K\x01K\x02.",
    "a memo that is not there": b"\x80\x02h\x05.",
    "an enormous text": b"\x80\x04\x8d" + (1 << 60).to_bytes(8, "little") + b"x.",
    "an enormous number": b"\x80\x02\x8b" + (1 << 30).to_bytes(4, "little") + b"x.",
    "an array without a state": b"\x80\x02}U\x01acnumpy.core.multiarray\n_reconstruct\ncnumpy\nndarray\n"
    b"K\x00\x85U\x01b\x87Rs.",
    "empty": b"",
    "text": b"node,year\n1,2\n",
}


@pytest.mark.parametrize("name", BY_HAND)
def test_operations_out_of_order_are_refused(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(PickleRefusedError):
        read(BY_HAND[name])
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (b"K\x03K\x02\x86", b"\x8a\x08\x00\x00\x00\x00\x00\x00\x00\x10K\x02\x86"),  # 2^60 rows
        (b"K\x03K\x02\x86", b"J\xfd\xff\xff\xffJ\xfe\xff\xff\xff\x86"),  # -3 rows of -2 columns
        (b"K\x03K\x02\x86", b"K\x03K\x03\x86"),
        (b"i8", b"O8"),
        (b"i8", b"i3"),
        (b"X\x01\x00\x00\x00<", b"X\x01\x00\x00\x00?"),
    ],
    ids=["huge", "negative", "another shape", "objects", "an odd width", "byte order"],
)
def test_arrays_whose_parts_do_not_fit_are_refused(old: bytes, new: bytes) -> None:
    data = pickle.dumps({"edge": np.arange(6).reshape(3, 2)}, 2)
    assert old in data
    with pytest.raises(PickleRefusedError):
        read(data.replace(old, new))


def test_every_truncation_is_refused() -> None:
    data = pickle.dumps(GOOD, 2)
    for end in range(len(data)):
        with pytest.raises(PickleRefusedError):
            read(data[:end])


@settings(max_examples=150)
@given(st.data(), st.booleans())
def test_altered_files_give_arrays_or_an_error(data: st.DataObject, is_zip: bool) -> None:
    stream = io.BytesIO()
    torch.save(GOOD, stream, _use_new_zipfile_serialization=is_zip)
    content = bytearray(stream.getvalue())
    for _ in range(data.draw(st.integers(1, 3))):
        content[data.draw(st.integers(0, len(content) - 1))] = data.draw(st.integers(0, 255))
    folder = Path("/dev/shm") if Path("/dev/shm").is_dir() else Path.cwd()
    path = folder / f"altered-{os.getpid()}.pt"
    path.write_bytes(content)
    try:
        found = read_split_file(path)
        assert all(isinstance(values, np.ndarray) for values in found.values())
    except DatasetError as error:
        assert str(path) in str(error)
    finally:
        path.unlink()


def test_values_that_are_no_arrays_are_refused(tmp_path: Path) -> None:
    for content in ({"edge": [1, 2]}, {"edge": {"a": GOOD["edge"]}}, [GOOD["edge"]], GOOD["edge"], {"a": 1}):
        torch.save(content, tmp_path / "train.pt")
        with pytest.raises(DatasetError, match=r"train.pt: train: not a dict of NumPy arrays"):
            read_split_file(tmp_path / "train.pt")


def test_archives_that_torch_never_writes_are_refused(tmp_path: Path) -> None:
    path, data = tmp_path / "train.pt", pickle.dumps(GOOD, 2)
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("train/data.pkl", data)
    with pytest.raises(DatasetError, match="is compressed"):
        read_split_file(path)
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("a/data.pkl", data)
        archive.writestr("b/data.pkl", data)
    with pytest.raises(DatasetError, match=r"2 files data.pkl"):
        read_split_file(path)
    with pytest.raises(DatasetNotFoundError, match="download the data set again"):
        read_split_file(tmp_path / "gone.pt")
