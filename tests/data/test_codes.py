"""Tables of codes: ranges, errors, extremes, and what is refused."""

from __future__ import annotations

import copy
import io
import json
import pickle
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor
from torch_geometric.data import Batch, Data
from torch_geometric.transforms import (
    AddSelfLoops,
    LargestConnectedComponents,
    NormalizeFeatures,
    Pad,
    RandomNodeSplit,
    SVDFeatureReduction,
    ToSparseTensor,
    ToUndirected,
)

from pyg_batchgnn import quantize
from pyg_batchgnn.data import (
    Dataset,
    DatasetError,
    EdgeSet,
    NodeSet,
    ParallelEdges,
    QuantizationReport,
    convert_folder,
    hold_out_links,
    quantize_folder,
    read_folder,
    verify_folder,
    write_folder,
)
from pyg_batchgnn.data.meta import arrays_of
from pyg_batchgnn.data.undirected import undirected_dataset
from pyg_batchgnn.ops import QuantizedTensor
from tests.support.tiers import examples
from tests.support.tiny_datasets import save_arrays, tiny_dataset

F32 = torch.finfo(torch.float32)


def largest_error(table: QuantizedTensor, values: Tensor) -> Tensor:
    """Returns the largest difference by column, less what rounding to float32 may add."""
    error = (table.dequantize().double() - values.double()).abs()
    rounding = values.double().abs().amax(0) * 2.0**-23
    return (error.amax(0) - rounding).clamp(min=0)


@examples(100)
@given(
    st.integers(1, 40),
    st.integers(1, 5),
    st.sampled_from([torch.float32, torch.float16, torch.bfloat16, torch.float64]),
    st.integers(0, 2**31),
    st.floats(-30, 30),
    st.floats(-1e4, 1e4),
)
def test_values_are_within_half_a_scale(
    rows: int, columns: int, dtype: torch.dtype, seed: int, size: float, centre: float
) -> None:
    generator = torch.Generator().manual_seed(seed)
    spread = 2.0 ** min(size, 13) if dtype is torch.float16 else 2.0**size
    values = (torch.randn(rows, columns, generator=generator).double() * spread + centre).clamp(-6e4, 6e4)
    values = values.to(dtype)
    before = values.clone()
    table = quantize(values)
    assert torch.equal(values, before)
    scale, _ = table.decoding.double()
    assert table.shape == values.shape and bool((scale > 0).all())
    assert bool((largest_error(table, values) <= scale / 2 * (1 + 1e-6)).all())


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_the_report_says_what_became_of_a_table(dtype: torch.dtype) -> None:
    told = list[QuantizationReport]()
    values = torch.randn(1000, 8)
    values[:, 3] = 0.3
    table = quantize(values, dtype=dtype, report=told.append)
    (one,) = told[0].tables
    error = (table.dequantize().double() - values.double()).abs()
    assert (one.rows, one.columns, one.constant, one.clamped) == (1000, 8, 1, 0)
    assert (one.bytes_before, one.bytes_after) == (32_000, 8_000 + 64)
    assert one.error == float(error.max())
    assert one.error_in_scales <= (0.5 + 1e-4 if dtype is torch.float32 else 1.0)
    assert one.error_in_scales > 0.4 and table.nbytes == 8000
    assert "8 columns, 32,000 bytes to 8,064" in str(told[0]) and told[0].table().row_count == 1


def test_constant_columns_are_exact() -> None:
    values = torch.tensor([[0.1, -3e38, 1e-42, 0.0]]).repeat(5, 1)
    table = quantize(values)
    assert torch.equal(table.dequantize(), values)
    assert not table.codes.any() and bool((table.decoding[0] == 1).all())


@pytest.mark.parametrize(
    "column",
    [
        [-F32.max, F32.max],
        [F32.max, F32.max * (1 - 1e-6)],
        [-F32.max, 0.0],
        [0.0, F32.smallest_normal],
        [1e-45, 3e-45],
        [-1e-40, 1e-40],
        [1e6, 1e6 + 1],
        [-1.0, 1e30],
    ],
)
def test_extreme_ranges(column: list[float]) -> None:
    values = torch.tensor(column, dtype=torch.float32)[:, None]
    table = quantize(values)
    found = table.dequantize()
    scale = table.decoding[0].double()
    assert bool(torch.isfinite(found).all()) and float(scale) >= F32.tiny
    assert bool((largest_error(table, values) <= scale / 2 * (1 + 1e-6)).all())


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf")])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_what_is_not_finite_is_named(value: float, dtype: torch.dtype) -> None:
    values = torch.zeros(600_000, 3, dtype=dtype)  # more than a piece
    values[500_000, 2] = value
    with pytest.raises(ValueError, match=f"value {value} in row 500000, column 2 is not finite"):
        quantize(values)


def test_values_beyond_float32_are_named() -> None:
    with pytest.raises(ValueError, match=r"1e\+300 in row 1, column 0 does not fit float32"):
        quantize(torch.tensor([[0.0], [1e300]], dtype=torch.float64))


@pytest.mark.parametrize("percentile", [50, 90.0, 99.9, 99])
def test_a_percentile_leaves_out_what_it_says(percentile: float) -> None:
    generator = torch.Generator().manual_seed(1)
    values = torch.randn(20_000, 5, generator=generator) * torch.tensor([1.0, 1e-6, 1e20, -3.0, 1.0])
    values[:, 4] = values[:, 4].abs() + 1e5
    values[0] = torch.tensor([1e9, 1.0, 1e38, -1e9, 3e38])
    told = list[QuantizationReport]()
    table = quantize(values, percentile=percentile, report=told.append)
    scale, offset = table.decoding.double()
    low, high = offset - 128 * scale, offset + 127 * scale
    rows = len(values)
    allowed = int(rows * (100 - percentile) / 200 + 1e-9)
    ascending = values.double().sort(0).values
    below, above = (values.double() < low - scale / 2).sum(0), (values.double() > high + scale / 2).sum(0)
    assert bool((below <= allowed).all()) and bool((above <= allowed).all())
    # The ends are those of the values that are left in.
    wanted = ascending[allowed], ascending[rows - 1 - allowed]
    slack = scale / 100 + torch.maximum(*map(torch.abs, wanted)) * 2.0**-23
    assert bool(((low - wanted[0]).abs() <= slack).all()) and bool(((high - wanted[1]).abs() <= slack).all())
    (one,) = told[0].tables
    assert 0 < one.clamped_share <= 2 * allowed / rows


def test_a_rare_value_does_not_leave_a_range_of_one() -> None:
    values = torch.zeros(10_000, 1)
    values[7] = 5.0
    table = quantize(values, percentile=99)
    assert table.dequantize()[7] == pytest.approx(5.0, abs=0.02)
    assert quantize(torch.ones(50, 1), percentile=99).dequantize().eq(1).all()


def test_results_do_not_depend_on_pieces_or_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    values = torch.randn(5000, 4)
    whole = quantize(values)
    monkeypatch.setattr("pyg_batchgnn.data.codes._PIECE", 1000)
    monkeypatch.setattr("pyg_batchgnn.data.codes.WideRows.pieces.__defaults__", (1000,))
    np.save(tmp_path / "x.npy", values.numpy())
    mapped = torch.from_numpy(np.load(tmp_path / "x.npy", mmap_mode="c"))
    for percentile in (None, 99.5):
        one, other = (quantize(table, percentile=percentile) for table in (values, mapped))
        assert torch.equal(one.codes, other.codes) and torch.equal(one.decoding, other.decoding)
    assert torch.equal(whole.codes, quantize(values).codes)
    assert torch.equal(whole.decoding, quantize(values[torch.randperm(len(values))]).decoding)


def test_a_data_keeps_everything_else() -> None:
    data = Data(x=torch.randn(6, 3), edge_index=torch.tensor([[0, 1], [1, 2]]), edge_attr=torch.randn(2, 2))
    made = quantize(data, attributes=["x", "edge_attr"])
    assert isinstance(made.x, QuantizedTensor) and isinstance(made.edge_attr, QuantizedTensor)
    assert made.num_features == 3 and made.edge_index is data.edge_index
    assert type(data.x) is Tensor, "the caller's data stays as it is"
    assert type(quantize(data).edge_attr) is Tensor
    assert quantize(data, dtype=torch.bfloat16).x.dtype is torch.bfloat16


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"bits": 4}, "bits must be 8, got 4"),
        ({"percentile": 10}, r"percentile must lie in \[50, 100\], got 10"),
        ({"dtype": torch.float16}, "float32 or bfloat16, not torch.float16"),
        ({"attributes": "y"}, "y is torch.int64; only floating-point"),
        ({"attributes": "z"}, "no attribute 'z'"),
        ({"attributes": "names"}, "names is a list"),
        ({"attributes": "learned"}, "rows that are learned stay floating-point"),
        ({"attributes": "cube"}, r"cube has shape \[3, 2, 2\]"),
    ],
)
def test_what_is_refused(arguments: dict[str, object], message: str) -> None:
    data = Data(x=torch.randn(3, 2), y=torch.arange(3), names=["a"], cube=torch.zeros(3, 2, 2))
    data.learned = torch.nn.Parameter(torch.randn(3, 2))
    with pytest.raises((TypeError, ValueError), match=message):
        quantize(data, **arguments)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="x is quantised already"):
        quantize(quantize(data))


def test_an_empty_table() -> None:
    assert quantize(torch.empty(0, 3)).shape == (0, 3) and quantize(torch.empty(0)).shape == (0,)
    assert quantize(torch.empty(3, 0), percentile=99).shape == (3, 0)


def test_files_copies_and_processes() -> None:
    table = quantize(torch.randn(20, 3), dtype=torch.bfloat16)
    stream = io.BytesIO()
    torch.save({"x": table}, stream)
    stream.seek(0)
    loaded = torch.load(stream, weights_only=True)["x"]
    for other in (loaded, pickle.loads(pickle.dumps(table)), copy.deepcopy(table), table.clone()):
        assert isinstance(other, QuantizedTensor) and other.dtype is torch.bfloat16
        assert torch.equal(other.codes, table.codes) and torch.equal(other.decoding, table.decoding)
        assert other.codes.data_ptr() != table.codes.data_ptr()
    shared = table.share_memory_()
    assert shared is table and table.is_shared()
    assert torch.equal(table.dequantize(), loaded.dequantize())


def test_a_narrow_table_in_bfloat16_has_the_bits_of_the_rounded_one() -> None:
    table = quantize(torch.randn(20, 3))
    narrow = table.to(torch.bfloat16)
    assert isinstance(narrow, QuantizedTensor)
    assert torch.equal(narrow.dequantize(), table.dequantize().to(torch.bfloat16))
    assert type(narrow.to(torch.float32)) is Tensor


def typed_dataset() -> Dataset:
    """Papers and authors with features, edges with attributes, one type without features."""
    generator = torch.Generator().manual_seed(3)
    nodes = (
        NodeSet(
            "paper", 30, {"x": torch.randn(30, 4, generator=generator), "y": torch.arange(30) % 3}, {}, 3
        ),
        NodeSet("author", 20, {"x": torch.randn(20, 6, generator=generator).to(torch.bfloat16)}),
        NodeSet("field", 5),
    )
    edges = (
        EdgeSet(
            ("author", "writes", "paper"),
            torch.stack([torch.randint(20, (50,)), torch.randint(30, (50,))]),
            {"edge_attr": torch.randn(50, 2, generator=generator)},
        ),
        EdgeSet(("field", "of", "paper"), torch.stack([torch.randint(5, (9,)), torch.randint(30, (9,))])),
    )
    return Dataset("typed", nodes, edges)


@pytest.mark.parametrize("percentile", [None, 95.0])
def test_a_folder_is_what_memory_gives(tmp_path: Path, percentile: float | None) -> None:
    write_folder(typed_dataset(), tmp_path / "wide")
    names = ["x", "edge_attr"]
    report = quantize_folder(tmp_path / "wide", tmp_path / "narrow", attributes=names, percentile=percentile)
    assert [one.name for one in report.tables] == [
        "nodes/paper/x", "nodes/author/x", "edges/author__writes__paper/edge_attr"
    ]  # fmt: skip
    found, before = read_folder(tmp_path / "narrow"), typed_dataset()
    for one, other in zip(found.sets, before.sets, strict=True):
        assert one.tables.keys() == other.tables.keys()
        for name, table in one.tables.items():
            if name in names:
                wanted = quantize(other.tables[name], percentile=percentile)
                assert isinstance(table, QuantizedTensor)
                assert torch.equal(table.codes, wanted.codes)
                assert torch.equal(table.decoding, wanted.decoding)
    assert verify_folder(tmp_path / "narrow") == verify_folder(tmp_path / "wide") + 3
    meta = json.loads((tmp_path / "narrow" / "META.json").read_text())
    assert meta["version"] == 4 and meta["arrays"]["nodes/paper/x"]["dtype"] == "int8"
    assert meta["arrays"]["decoding/nodes/paper/x"]["shape"] == [2, 4]
    write_folder(found, tmp_path / "again")
    again = arrays_of(read_folder(tmp_path / "again"))
    assert {name: array.dtype for name, array in arrays_of(found).items()} == {
        name: array.dtype for name, array in again.items()
    }
    assert all(torch.equal(array, again[name]) for name, array in arrays_of(found).items())


def test_a_folder_made_by_hand_and_its_conversion(tmp_path: Path) -> None:
    edges = np.stack([np.arange(9), (np.arange(9) * 2) % 10])
    x = np.random.default_rng(0).random((10, 3), np.float32)
    save_arrays(tmp_path / "mine", edge_index=edges, x=x, y=np.arange(10) % 2)
    quantize_folder(tmp_path / "mine", tmp_path / "narrow")
    wanted = quantize(torch.from_numpy(x))
    convert_folder(tmp_path / "narrow", tmp_path / "csc")
    for folder in ("narrow", "csc"):
        table = read_folder(tmp_path / folder).nodes.tables["x"]
        assert isinstance(table, QuantizedTensor) and torch.equal(table.dequantize(), wanted.dequantize())
        assert verify_folder(tmp_path / folder)
    save_arrays(tmp_path / "lists", src=edges[0], dst=edges[1], x=x)
    with pytest.raises(DatasetError, match="batchgnn convert"):
        quantize_folder(tmp_path / "lists", tmp_path / "other")


@pytest.mark.parametrize(
    ("decoding", "message"),
    [
        (np.zeros((2, 5), np.float32), "a scale must be positive and an offset finite"),
        (np.full((2, 5), np.nan, np.float32), "a scale must be positive and an offset finite"),
        (np.ones((2, 4), np.float32), r"decoding must be float32 \[2, 5\]"),
        (np.ones((2, 5), np.float64), r"decoding must be float32 \[2, 5\]"),
    ],
)
def test_a_decoding_made_by_hand_is_checked(tmp_path: Path, decoding: np.ndarray, message: str) -> None:
    (tmp_path / "nodes").mkdir()
    (tmp_path / "decoding" / "nodes").mkdir(parents=True)
    np.save(tmp_path / "edge_index.npy", np.zeros((2, 1), np.int64))
    np.save(tmp_path / "nodes" / "x.npy", np.zeros((3, 5), np.int8))
    np.save(tmp_path / "decoding" / "nodes" / "x.npy", decoding)
    with pytest.raises(DatasetError, match=message):
        read_folder(tmp_path)


def test_what_a_folder_refuses(tmp_path: Path) -> None:
    dataset = tiny_dataset()
    dataset.nodes.tables["x"][3, 2] = torch.nan
    write_folder(dataset, tmp_path / "wide")
    with pytest.raises(DatasetError, match=r"nodes/x.npy: the value nan in row 3, column 2 is not finite"):
        quantize_folder(tmp_path / "wide", tmp_path / "narrow")
    assert not (tmp_path / "narrow").exists()
    write_folder(tiny_dataset(), tmp_path / "good")
    quantize_folder(tmp_path / "good", tmp_path / "narrow")
    with pytest.raises(DatasetError, match="x is quantised already"):
        quantize_folder(tmp_path / "narrow", tmp_path / "twice")


def test_links_that_are_held_out_and_edges_made_undirected_stay_codes() -> None:
    generator = torch.Generator().manual_seed(0)
    edges = torch.randint(30, (2, 80), generator=generator)
    table = quantize(torch.randn(80, 3, generator=generator))
    dataset = Dataset.homogeneous("held", 30, edges, edges={"edge_attr": table})
    wide = Dataset.homogeneous("held", 30, edges, edges={"edge_attr": table.dequantize()})
    held = [hold_out_links(one, 0.2) for one in (dataset, wide)]
    for changed in (held, [undirected_dataset(one, ParallelEdges.KEEP) for one in (dataset, wide)]):
        found, other = (one.edges.tables["edge_attr"] for one in changed)
        assert isinstance(found, QuantizedTensor) and torch.equal(found.dequantize(), other)


TRANSFORMS: list[Callable[[Data], Data]] = [
    NormalizeFeatures(),
    ToUndirected(),
    AddSelfLoops("edge_attr", 1.0),
    SVDFeatureReduction(2),
    RandomNodeSplit(num_val=2, num_test=2),
    LargestConnectedComponents(),
    ToSparseTensor("edge_attr", layout=torch.sparse_csr),
    Pad(40, 90),
    lambda data: data.subgraph(torch.arange(10)),
    lambda data: data.to_heterogeneous(),
    lambda data: Batch.from_data_list([data, data]),
]


@pytest.mark.parametrize("number", range(len(TRANSFORMS)))
def test_transforms_get_floats(number: int) -> None:
    """What PyG makes of codes is what it makes of the floats that they stand for."""
    generator = torch.Generator().manual_seed(0)
    edges = torch.randint(30, (2, 80), generator=generator)
    data = Data(edge_index=edges, edge_attr=torch.rand(80, generator=generator))
    data.x, data.y = torch.rand(30, 5, generator=generator), torch.arange(30) % 3
    narrow = quantize(data, attributes=["x", "edge_attr"])
    wide = copy.copy(narrow)
    wide.x, wide.edge_attr = narrow.x.dequantize(), narrow.edge_attr.dequantize()
    found = []
    for one in (narrow, wide):
        torch.manual_seed(1)
        found.append(TRANSFORMS[number](copy.copy(one)))
    for one, other in zip(*(made.stores for made in found), strict=True):
        for name, value in other.items():
            got, wanted = plain(one[name]), plain(value)
            assert torch.equal(got, wanted) if isinstance(wanted, Tensor) else got == wanted, name
    assert isinstance(narrow.x, QuantizedTensor), "the transforms of the copy left it alone"


def plain(value: object) -> object:
    if isinstance(value, QuantizedTensor):
        return value.dequantize()
    return value.to_dense() if isinstance(value, Tensor) and value.layout != torch.strided else value
