"""Hostile folders: each is refused in one sentence that names it, and nothing else is read."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
from torch_geometric.data import Data

from pyg_batchgnn.cache import AggregationCache
from pyg_batchgnn.comm import Communicator
from pyg_batchgnn.data import DatasetError, fitted_encoders, read_bundle, read_folder, write_folder
from pyg_batchgnn.data.files import file_sha256
from pyg_batchgnn.embed import Embedding
from pyg_batchgnn.partition import load_partition, partition_parts, save_partition, verify_partition
from tests.partition.job_partition import graph
from tests.support.damaged_folders import Attack, holds, said

RING = Data(x=torch.ones(8, 2), edge_index=torch.stack([torch.arange(8), torch.arange(8).roll(1)]))


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("sound")
    write_folder(graph(1, 30, 100), folder / "data")
    with Communicator.create("alone") as comm:
        save_partition(partition_parts(graph(1, 30, 100), "random", 2, comm=comm), folder / "parts", comm)
    Embedding(RING, 3, seed=1).save(folder / "rows")
    AggregationCache.build(RING, "mean").save(folder / "cache")
    return folder


def read_parts(folder: Path) -> None:
    with Communicator.create("alone") as comm:
        load_partition(folder, comm)


OPEN: dict[str, Attack] = {
    "data": lambda folder: (fitted_encoders(folder), read_folder(folder)),
    "parts": read_parts,
    "rows": lambda folder: Embedding(RING, 3, seed=1).load(folder),
    "cache": lambda folder: AggregationCache.load(folder, RING),
}


def grows(array: str) -> Attack:
    """A file without contents that says to hold 2^40 rows."""

    def rewrite(folder: Path) -> None:
        header = b"{'descr': '<f4', 'fortran_order': False, 'shape': (1099511627776, 1), }"
        data = b"\x93NUMPY\x01\x00" + (118).to_bytes(2, "little") + header.ljust(117) + b"\n"
        (folder / f"{array}.npy").write_bytes(data)

    return rewrite


ENTRY = {"dtype": "float32", "shape": [1], "sha256": "0" * 64}
ATTACKS: list[tuple[str, Attack, str]] = [
    *(
        (kind, lambda folder: (folder / "META.json").write_text("[" * 10**5 + "]" * 10**5), "not valid JSON")
        for kind in OPEN
    ),
    *((kind, said("arrays", value=[1]), "META.json") for kind in OPEN),
    *(
        (kind, said("arrays", name, value=ENTRY), "no name of a file")
        for kind in ("data", "parts", "rows")
        for name in ("../../x", "/etc/x")
    ),
    ("data", said("arrays", "nodes/x", "sha256", value="a\nb"), "lacks or garbles"),
    ("data", said("arrays", "nodes/x", "dtype", value="os.system"), "os.system"),
    ("data", said("arrays", "nodes/x", "dtype", value="Tensor"), "unknown dtype 'Tensor'"),
    ("data", said("num_nodes", value=2**62), "nodes"),
    ("data", said("num_nodes", value=-1), "is -1"),
    ("data", said("name", value={"a": 1}), "expected text"),
    ("data", said("origin", value=["fitted"]), "origin"),
    ("data", grows("nodes/x"), "bytes, its header promises"),
    ("data", holds("splits/train", np.array([2**62])), "outside"),
    ("data", holds("edge_index", np.full((2, 100), -5)), "node id -5"),
    ("data", lambda folder: (folder / "nodes" / "z.npy").mkdir(), "is no file"),
    ("parts", said("offsets", value=[0, 2**62, 2**63 - 1]), "META.json"),
    ("parts", holds("part-00000/splits/train", np.arange(3, dtype=np.uint64)), "damaged"),
    ("parts", holds("part-00001/splits/train", np.array([10**6])), "outside"),
    ("parts", grows("part-00000/nodes/x"), "bytes, its header promises"),
    ("rows", said("parts", value=10**9), "not among the arrays"),
    ("rows", holds("part-00000/nodes/node", np.arange(8, dtype=np.uint64)), "damaged"),
    ("cache", said("relations", value=[{}]), "damaged"),
    ("cache", said("arrays", "aggregates", "shape", value=[8, 2**60]), "shape"),
]


@pytest.mark.parametrize(("kind", "attack", "says"), ATTACKS)
def test_a_hostile_folder_is_refused(
    kind: str, attack: Attack, says: str, sound: Path, tmp_path: Path
) -> None:
    folder = Path(shutil.copytree(sound / kind, tmp_path / "folder"))
    OPEN[kind](folder)
    attack(folder)
    with pytest.raises(DatasetError, match=says) as caught:
        OPEN[kind](folder)
    text = str(caught.value)
    assert str(folder) in text and "\n" not in text and len(text) < 700


def test_a_checksum_is_taken_of_nothing_outside(sound: Path, tmp_path: Path) -> None:
    folder = Path(shutil.copytree(sound / "parts", tmp_path / "parts"))
    os.mkfifo(tmp_path / "outside.npy")  # whoever opens it waits for ever
    said("arrays", "../outside", value=ENTRY)(folder)
    with pytest.raises(DatasetError, match="no name of a file"):
        verify_partition(folder)


def test_a_compressed_array_larger_than_it_says_is_not_read(tmp_path: Path) -> None:
    zeros = np.zeros((2, 1 << 22), np.int32)  # 32 MiB in 32 KiB
    np.savez_compressed(tmp_path / "bomb.npz", edge_index=zeros)
    file, arrays = tmp_path / "bomb.npz", {"edge_index": ["int32", [2, 4]]}
    about = {"bytes": file.stat().st_size, "sha256": file_sha256(file), "num_nodes": 4, "num_classes": 2}
    file.with_suffix(".json").write_text(json.dumps({**about, "arrays": arrays}))
    with pytest.raises(DatasetError, match=r"is int32 \[2, 4194304\], the JSON says"):
        read_bundle("bomb", tmp_path)
