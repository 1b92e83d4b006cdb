"""Opening .npy files that cannot be trusted."""

import math
import resource
import warnings
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyg_batchgnn.comm import Communicator
from pyg_batchgnn.data import DatasetError, GeneratorSpec, generate, generate_folder
from pyg_batchgnn.data.files import EdgeAppender, NpyAppender, open_npy
from pyg_batchgnn.partition import partition_parts, save_partition
from tests.support.tiers import examples


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "x.npy"
    np.save(path, np.arange(12.0, dtype=np.float32).reshape(3, 4))
    return path


def test_maps_and_never_writes_the_file(file: Path) -> None:
    before = file.read_bytes()
    values = open_npy(file, "x")
    values[1, 1] = 99.0
    assert values[1, 1] == 99.0
    assert file.read_bytes() == before


def test_reading_costs_no_memory_for_the_part_not_read(tmp_path: Path) -> None:
    path = tmp_path / "huge.npy"
    rows = 1 << 32  # 32 GiB of nothing: a sparse file
    with path.open("wb") as stream:
        np.lib.format.write_array_header_1_0(
            stream, {"descr": "<f8", "fortran_order": False, "shape": (rows,)}
        )
        stream.truncate(stream.tell() + 8 * rows)
    values = open_npy(path, "x")
    assert values.shape == (rows,)
    assert values[-1] == 0.0


@pytest.mark.parametrize("layout", ["fortran", "big endian", "empty", "no dimensions"])
def test_unusual_layouts(tmp_path: Path, layout: str) -> None:
    values = {
        "fortran": np.asfortranarray(np.arange(6).reshape(2, 3)),
        "big endian": np.arange(6).astype(">i4"),
        "empty": np.empty((0, 3)),
        "no dimensions": np.array(5),
    }[layout]
    np.save(tmp_path / "a.npy", values)
    read = open_npy(tmp_path / "a.npy", "a")
    assert np.array_equal(read, values) and read.flags.c_contiguous and read.dtype.isnative


Bytes = Callable[[bytes], bytes]
DAMAGE: list[tuple[Bytes, str]] = [
    (lambda content: content[:-1], "file is truncated: 175 bytes, its header promises 176"),
    (lambda content: content[:20], "not a .npy array"),
    (lambda _: b"", "not a .npy array"),
    (lambda content: content + b"\0", "file is too long: 177 bytes"),
    (lambda content: b"PK\x03\x04" + content, "not a .npy array"),
    (lambda content: content[:6] + b"\x09" + content[7:], "version is (9, 0)"),
    (lambda content: content.replace(b"'shape'", b"'shapf'"), "not a .npy array"),
    (lambda content: content.replace(b"(3, 4)", b"(nan,)"), "not a .npy array"),
    (lambda content: content.replace(b"(3, 4)", b"(-3,4)"), "shape in the header is (-3, 4)"),
    (lambda content: content.replace(b"'<f4'", b"'|O' "), "dtype is object"),
]


@pytest.mark.parametrize(("damage", "fact"), DAMAGE)
def test_damage_is_named(file: Path, damage: Bytes, fact: str) -> None:
    file.write_bytes(damage(file.read_bytes()))
    with pytest.raises(DatasetError) as error:
        open_npy(file, "features")
    message = str(error.value)
    assert message.startswith(f"{file}: features: ")
    assert fact in message and "\n" not in message


@examples(20, deadline=None)
@given(mask=st.integers(1, 255), kept=st.sampled_from([(3, 4), (12,), ()]))
def test_every_flipped_byte_is_an_error_or_another_array(
    mask: int, kept: tuple[int, ...], tmp_path_factory: pytest.TempPathFactory
) -> None:
    file = tmp_path_factory.mktemp("flipped") / "x.npy"
    np.save(file, np.arange(12.0, dtype=np.float32)[: math.prod(kept)].reshape(kept))
    whole = file.read_bytes()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of NumPy's parser
        for at in range(128):
            file.write_bytes(whole[:at] + bytes([whole[at] ^ mask]) + whole[at + 1 :])
            try:
                assert isinstance(open_npy(file, "x"), np.ndarray)
            except DatasetError as error:
                assert str(error).startswith(f"{file}: x: ") and "\n" not in str(error)


def test_a_pickle_is_never_run(tmp_path: Path) -> None:
    class Trap:
        def __reduce__(self) -> tuple[object, tuple[object, ...]]:
            return Path.touch, (tmp_path / "sprung",)

    np.save(tmp_path / "y.npy", np.array([Trap()], dtype=object), allow_pickle=True)
    with pytest.raises(DatasetError, match="never read"):
        open_npy(tmp_path / "y.npy", "y")
    assert not (tmp_path / "sprung").exists()


def test_pieces_that_do_not_fit(tmp_path: Path) -> None:
    with NpyAppender(tmp_path / "x.npy", np.int64, (3,)) as out, pytest.raises(ValueError, match=r"\(2,\)"):
        out.append(np.zeros((1, 2)))
    with EdgeAppender(tmp_path / "e.npy", np.int64) as edges, pytest.raises(ValueError, match="destinations"):
        edges.append(np.zeros(2), np.zeros(3))


def test_a_full_disk_is_named(tmp_path: Path) -> None:
    spec, limits = GeneratorSpec(nodes=3000), resource.getrlimit(resource.RLIMIT_FSIZE)
    with Communicator.create("alone") as comm:
        parts = partition_parts(generate(spec), "random", 1, comm=comm)
        resource.setrlimit(resource.RLIMIT_FSIZE, (9000, limits[1]))
        try:
            for folder, write in (
                ("full", lambda: generate_folder(spec, tmp_path / "full")),
                ("parts", lambda: save_partition(parts, tmp_path / "parts", comm)),
            ):
                with pytest.raises(DatasetError, match=rf"{folder}.*cannot be written \(File too large\)"):
                    write()
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert not list(tmp_path.iterdir())
