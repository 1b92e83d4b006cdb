"""Passes whose features and rows do not fit memory give the bits of those in memory."""

from __future__ import annotations

import contextlib
import re
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pytest
import torch
import torch.nn.functional as F
import torch_geometric.nn as pyg
from torch import Tensor
from torch_geometric.data import Data, HeteroData

from pyg_batchgnn import MacrobatchNeighborLoader, accelerate, inference
from pyg_batchgnn.cache import AggregationCache, AllNodes
from pyg_batchgnn.cache.pass_memory import PassMemory
from pyg_batchgnn.disk import DiskReader, DiskTable, ScratchTable, is_mapped
from pyg_batchgnn.nn import GAT, GCN, GIN, SAGE, to_hetero, use_products
from tests.support.mapped_data import mapped
from tests.support.programs import run_text
from tests.support.reference_aggregates import KINDS
from tests.support.tiers import in_all

NODES, EDGES, COLUMNS = 600, 4000, 24
#: Less than the features, 57,600 bytes: dozens of pieces.
BUDGET = 40_000


def resident(table: Tensor) -> int:
    place = DiskTable.of(table)
    assert place is not None
    found = re.findall(rf"{place.path}\n(?:.*\n)*?Rss: +(\d+) kB", Path("/proc/self/smaps").read_text())
    assert found
    return sum(map(int, found))


@pytest.fixture(autouse=True)
def _native_products() -> Iterator[None]:
    """A row of a native product does not depend on the other rows of a piece."""
    with use_products("native"):
        yield


@contextlib.contextmanager
def all_in_memory() -> Iterator[None]:
    """Computes in pieces as a small budget asks for, but holds all rows."""
    with mock.patch.object(PassMemory, "_fits", lambda *_: True):
        yield


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    counts, read = [], DiskReader.read

    def counted(self: DiskReader, row: Tensor, *rest: Any, **options: Any) -> Any:
        counts.append(len(row))
        assert bool((row[1:] > row[:-1]).all()), "rows ascend"
        return read(self, row, *rest, **options)

    monkeypatch.setattr(DiskReader, "read", counted)
    return counts


def graph(dtype: torch.dtype = torch.float32) -> Data:
    draw = torch.Generator().manual_seed(5)
    edges = torch.randint(NODES - 50, (2, EDGES), generator=draw)
    edges[0, :300] = 7
    edges[:, 300:320] = edges[:1, 300:320]
    x = torch.randn(NODES, COLUMNS, generator=draw).to(dtype)
    return Data(x=x, edge_index=edges)


class OwnModel(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.encode = torch.nn.Linear(COLUMNS, 16)
        widths = [(pyg.SAGEConv, 16), (pyg.GraphConv, 16), (pyg.SAGEConv, 5)]
        self.convs = torch.nn.ModuleList([kind(16, width, aggr="sum") for kind, width in widths])
        self.skip = torch.nn.Linear(16 + COLUMNS, 5)
        with torch.no_grad():
            for one in self.parameters():
                one.copy_(torch.randint(8, one.shape).eq(0).float() * (torch.randint(2, one.shape) * 2 - 1))

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        first = F.relu(self.convs[0](self.encode(x.round()), edge_index))
        second = F.relu(self.convs[1](first, edge_index))
        return self.convs[2](second, edge_index) + self.skip(torch.cat([first, x], dim=1))


MODELS: dict[str, Callable[[], torch.nn.Module]] = {
    "sage": lambda: SAGE(COLUMNS, 16, 3, 5, norm="batch_norm"),
    "sage, project": lambda: SAGE(COLUMNS, 16, 2, 5, project=True),
    "gcn": lambda: GCN(COLUMNS, 16, 2, 5, norm="layer_norm", norm_kwargs={"mode": "node"}),
    "gatv2": lambda: accelerate(pyg.GAT(COLUMNS, 16, 2, 5, heads=2, v2=True)),
    "gin": lambda: GIN(COLUMNS, 16, 2, 5, jk="cat"),
    "gat": lambda: GAT(COLUMNS, 16, 2, 5, heads=2),
    "accelerated": lambda: accelerate(pyg.GraphSAGE(COLUMNS, 16, 3, 5, jk="max")),
    "accelerated gcn": lambda: accelerate(pyg.GCN(COLUMNS, 16, 2, 5)),
    "own": lambda: accelerate(OwnModel()),
}


def rows_of(model: torch.nn.Module, data: Data | HeteroData, **options: Any) -> Any:
    loader = MacrobatchNeighborLoader(data, [2], *(["a"] if isinstance(data, HeteroData) else []))
    if hasattr(model, "inference"):
        return model.inference(loader, **options)
    return inference(model, loader, **options)


@pytest.mark.parametrize("name", ["sage", "gat", "gin", *in_all(*sorted({*MODELS} - {"sage", "gat", "gin"}))])
def test_rows_from_files_have_the_bits_of_rows_in_memory(name: str, tmp_path: Path, reads: list[int]) -> None:
    torch.manual_seed(1)
    model, data = MODELS[name](), graph()
    with all_in_memory():
        expected = rows_of(model, data, memory_budget=BUDGET)
    assert not reads and not is_mapped(expected)
    torch.testing.assert_close(expected, rows_of(model, data))
    data.x = mapped(data.x, tmp_path / "x.npy")
    found = rows_of(model, data, memory_budget=BUDGET)
    assert torch.equal(found, expected)
    assert len(reads) > 15 and resident(data.x) == 0
    assert [one.name for one in tmp_path.iterdir()] == ["x.npy"]


@pytest.mark.parametrize("dtype", [torch.bfloat16, *in_all(torch.float16)])
def test_narrow_features_and_rows(dtype: torch.dtype, tmp_path: Path, reads: list[int]) -> None:
    torch.manual_seed(1)
    model, data = SAGE(COLUMNS, 64, 2, 40), graph(dtype)
    with torch.autocast("cpu", torch.bfloat16):
        with all_in_memory():
            expected = rows_of(model, data, memory_budget=BUDGET)
        data.x = mapped(data.x, tmp_path / "x.npy")
        found = rows_of(model, data, memory_budget=BUDGET, scratch=tmp_path)
    assert found.dtype == torch.float32 and torch.equal(found, expected) and is_mapped(found) and reads


def typed() -> HeteroData:
    data, draw = HeteroData(), torch.Generator().manual_seed(6)
    for name, count, columns in (("a", 500, 24), ("b", 300, 10), ("c", 3, 4)):
        data[name].x = torch.randn(count, columns, generator=draw)
    for source, target, count in (("a", "b", 2000), ("b", "a", 2000), ("c", "a", 400), ("a", "c", 9)):
        ends = (data[source].num_nodes, data[target].num_nodes)
        index = [torch.randint(end, (count,), generator=draw) for end in ends]
        data[source, "to", target].edge_index = torch.stack(index)
    return data


@pytest.mark.parametrize("kind", ["inputs", *in_all("typed", "accelerated")])
def test_several_types(kind: str, tmp_path: Path, reads: list[int]) -> None:
    torch.manual_seed(2)
    data, options = typed(), {}
    if kind == "accelerated":
        model: Any = accelerate(pyg.to_hetero(pyg.GraphSAGE((-1, -1), 16, 2, 5), data.metadata()))
        with torch.no_grad():
            model(data.x_dict, data.edge_index_dict)
    elif kind == "typed":
        model = to_hetero(SAGE((-1, -1), 16, 2, 5, jk="cat"), data.metadata())
    else:
        project = pyg.HeteroDictLinear({"a": 24, "b": 10, "c": 4}, 16)
        model = to_hetero(GAT(16, 16, 2, 5, add_self_loops=False), data.metadata())
        options = {"inputs": project}
    with all_in_memory():
        expected = rows_of(model, data, memory_budget=BUDGET, **options)
    for name in ("a", "b"):
        data[name].x = mapped(data[name].x, tmp_path / f"{name}.npy")
    found = rows_of(model, data, memory_budget=BUDGET, **options)
    assert all(torch.equal(found[name], expected[name]) for name in expected)
    assert len(reads) > 10 and resident(data["a"].x) == 0


def test_types_whose_tables_begin_at_one_place(tmp_path: Path, reads: list[int]) -> None:
    data = typed()
    data["b"].x = torch.cat([data["a"].x, data["a"].x])
    data["a"].x = data["b"].x[:500]
    model = to_hetero(SAGE((-1, -1), 16, 2, 5), data.metadata())
    with all_in_memory():
        expected = rows_of(model, data, memory_budget=BUDGET)
    data["b"].x = mapped(data["b"].x, tmp_path / "x.npy")
    data["a"].x = data["b"].x[:500]
    found = rows_of(model, data, memory_budget=BUDGET)
    assert all(torch.equal(found[name], expected[name]) for name in expected) and reads


@pytest.mark.parametrize("kind", KINDS)
def test_aggregates(kind: str, tmp_path: Path, reads: list[int]) -> None:
    data = graph()
    expected = AggregationCache.build(data, kind)
    data.x = mapped(data.x, tmp_path / "x.npy")
    found = AggregationCache.build(data, kind, memory_budget=BUDGET, scratch=tmp_path)
    assert torch.equal(found.rows, expected.rows) and found.fingerprint == expected.fingerprint
    assert is_mapped(found.rows) and len(reads) > 10 and resident(data.x) == 0
    expected.save(tmp_path / "saved")
    loaded = AggregationCache.load(tmp_path / "saved", data, memory_budget=BUDGET)
    assert torch.equal(loaded.rows, expected.rows) and resident(data.x) == 0


def test_what_fits_is_held(tmp_path: Path, reads: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise AssertionError("everything fits")

    monkeypatch.setattr(ScratchTable, "__init__", fail)
    data = graph()
    data.x = mapped(data.x, tmp_path / "x.npy")
    for budget in (None, "10MB"):
        assert not is_mapped(rows_of(MODELS["sage"](), data, memory_budget=budget))
    assert not reads


def test_a_file_lives_as_long_as_its_tensor(tmp_path: Path) -> None:
    scratch = ScratchTable(tmp_path, 10, (3,), torch.bfloat16)
    scratch.append(torch.ones(4, 3, dtype=torch.bfloat16))
    with pytest.raises(ValueError, match="4 of 10 rows are written"):
        scratch.finish()
    with pytest.raises(ValueError, match="are not the next ones"):
        scratch.append(torch.ones(7, 3, dtype=torch.bfloat16))
    scratch.append(torch.full((6, 3), 2, dtype=torch.bfloat16))
    table = scratch.finish()
    assert not list(tmp_path.iterdir())
    place = DiskTable.of(table)
    assert place is not None and Path(place.path).exists() and table[:, 0].tolist() == [1] * 4 + [2] * 6
    view = table[5:]
    del table, scratch
    assert view.float().sum() == 30 and Path(place.path).exists()
    del view
    assert not Path(place.path).exists()


def test_files_are_gone_after_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    appended, append = [], ScratchTable.append

    def failing(self: ScratchTable, rows: Tensor) -> None:
        append(self, rows)
        appended.append(self.written)
        if len(appended) > 3:
            raise OSError(28, "No space left on device")

    monkeypatch.setattr(ScratchTable, "append", failing)
    with pytest.raises(OSError, match="No space left"):
        rows_of(MODELS["sage"](), graph(), memory_budget=BUDGET, scratch=tmp_path)
    assert not list(tmp_path.iterdir())


KILLED = """
import os, sys
import torch
from pathlib import Path
from pyg_batchgnn.disk import ScratchTable

table = ScratchTable(Path(sys.argv[1]), 100_000, (20,), torch.float32)
table.append(torch.ones(90_000, 20))
os.kill(os.getpid(), 9)
"""


def test_a_killed_process_leaves_no_file(tmp_path: Path) -> None:
    done = run_text(KILLED, tmp_path)
    assert done.returncode == -9 and not list(tmp_path.iterdir())


def test_rows_of_a_file_come_in_any_order() -> None:
    memory = PassMemory(1, None)
    rows = memory.new_rows((30,), torch.float32)
    rows.write(0, torch.arange(30.0))
    (table,) = rows.finish().values()
    assert memory.is_in_file(table)
    assert memory.rows(table, torch.tensor([7, 2, 7])).tolist() == [7, 2, 7]


def test_bad_folders_and_full_disks_are_named(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"missing', which is no folder; make it first"):
        AllNodes(graph(), scratch=tmp_path / "missing")
    with pytest.raises(
        OSError, match=rf"{tmp_path}: a table of .* bytes does not fit memory, and .* are free"
    ):
        ScratchTable(tmp_path, 1 << 50, (4,), torch.float32)


def test_new_files_lie_beside_the_features(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folders, begin = [], ScratchTable.__init__

    def seen(self: ScratchTable, folder: Path, *rest: Any) -> None:
        folders.append(folder)
        begin(self, folder, *rest)

    monkeypatch.setattr(ScratchTable, "__init__", seen)
    data = graph()
    rows_of(MODELS["sage"](), data, memory_budget=BUDGET)
    data.x = mapped(data.x, tmp_path / "x.npy")
    rows_of(MODELS["sage"](), data, memory_budget=BUDGET)
    assert set(folders) == {Path(tempfile.gettempdir()), tmp_path}


LIMITED = """
import resource, sys
from pathlib import Path
import numpy as np, torch
from torch_geometric.data import Data
from pyg_batchgnn import MacrobatchNeighborLoader
from pyg_batchgnn.nn import SAGE

folder, budget = Path(sys.argv[1]), sys.argv[2]
torch.set_num_threads(1)
x = torch.from_numpy(np.load(folder / "x.npy", mmap_mode="r+"))
data = Data(x=x, edge_index=torch.from_numpy(np.load(folder / "edges.npy")))
model, loader = SAGE(128, 128, 2, 128), MacrobatchNeighborLoader(data, [2], threads=1)
small = Data(x=x[:9].clone(), edge_index=torch.zeros(2, 1, dtype=torch.int64))
model.inference(MacrobatchNeighborLoader(small, [2]))
status = Path("/proc/self/status").read_text()
held = int(status.split("VmData:")[1].split()[0]) << 10
resource.setrlimit(resource.RLIMIT_DATA, (held + 100_000_000,) * 2)
found = model.inference(loader, memory_budget=budget, scratch=folder)
print(tuple(found.shape), float(found[-1].abs().sum()) > 0)
"""


def test_memory_is_bounded_by_the_budget(tmp_path: Path) -> None:
    draw = torch.Generator().manual_seed(0)
    np.save(tmp_path / "x.npy", torch.randn(100_000, 128, generator=draw).numpy())  # 51 MB
    np.save(tmp_path / "edges.npy", torch.randint(100_000, (2, 200_000), generator=draw).numpy())

    done = run_text(LIMITED, tmp_path, "16MB")
    assert done.stdout == "(100000, 128) True\n", done.stderr
    assert "emory" in run_text(LIMITED, tmp_path, "1GB").stderr, "the limit forbids what holds all rows"
