"""Streaming the members of a .npz archive."""

import tracemalloc
from pathlib import Path

import numpy as np
import pytest

from pyg_batchgnn.data import DatasetError
from pyg_batchgnn.data.ogb.npz_stream import open_member


@pytest.mark.parametrize("piece_bytes", [8, 24, 1 << 20])
@pytest.mark.parametrize("save", [np.savez, np.savez_compressed])
def test_pieces_are_the_array(tmp_path: Path, save: object, piece_bytes: int) -> None:
    values = np.arange(60).reshape(3, 20)
    save(tmp_path / "data.npz", other=np.zeros(3), wanted=values)  # type: ignore[operator]
    with open_member(tmp_path / "data.npz", "wanted") as member:
        assert member.header.shape == (3, 20)
        assert np.array_equal(np.concatenate(list(member.pieces(piece_bytes))), values.ravel())


def test_memory_is_a_piece_not_the_array(tmp_path: Path) -> None:
    np.savez_compressed(tmp_path / "data.npz", x=np.zeros((1 << 20, 16), np.float32))  # 64 MiB
    tracemalloc.start()
    with open_member(tmp_path / "data.npz", "x") as member:
        total = sum(piece.size for piece in member.pieces(1 << 20))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert total == 1 << 24
    assert peak < 16 << 20


@pytest.mark.parametrize(
    "kind", ["cut at the end", "altered", "foreign", "no such array", "objects", "absent"]
)
def test_damage_is_named(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "data.npz"
    values = np.random.default_rng(0).random(1000)
    np.savez(path, x=values)
    content = path.read_bytes()
    if kind == "cut at the end":
        path.write_bytes(content[:-30])
    elif kind == "altered":
        path.write_bytes(content[:4000] + bytes([content[4000] ^ 1]) + content[4001:])
    elif kind == "foreign":
        path.write_bytes(b"hello")
    elif kind == "no such array":
        np.savez(path, y=values)
    elif kind == "objects":
        np.savez(path, x=values.astype(object))
    else:
        path.unlink()
    facts = {
        "cut at the end": "truncated or damaged archive",
        "altered": "truncated or damaged archive (Bad CRC-32",
        "foreign": "truncated or damaged archive",
        "no such array": "no such array, the archive has ['y']",
        "objects": "dtype is object",
        "absent": "the file does not exist",
    }
    with pytest.raises(DatasetError) as error, open_member(path, "x") as member:
        list(member.pieces())
    assert str(error.value).startswith(f"{path}: x: ") and facts[kind] in str(error.value)


@pytest.mark.parametrize("extra", [-8, 8])
def test_a_member_of_another_length_than_its_header_says(tmp_path: Path, extra: int) -> None:
    import zipfile

    np.save(tmp_path / "x.npy", np.arange(10))
    content = (tmp_path / "x.npy").read_bytes()
    with zipfile.ZipFile(tmp_path / "data.npz", "w") as archive:
        archive.writestr("x.npy", content[:extra] if extra < 0 else content + b"\0" * extra)
    with (
        pytest.raises(DatasetError, match=r"data\.npz: x: (ends 8 bytes before|is longer than)"),
        open_member(tmp_path / "data.npz", "x") as member,
    ):
        member.read()
