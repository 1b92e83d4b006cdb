"""Random data sets with any attributes, for tests of formats."""

from __future__ import annotations

import torch
from hypothesis import strategies as st
from torch import Tensor

from pyg_batchgnn.data import Dataset

DTYPES = (
    *(torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64, torch.bool),
    *(torch.float16, torch.bfloat16, torch.float32, torch.float64, torch.complex64),
)
NAMES = st.text("abz_/%.é 1", min_size=1, max_size=6)


@st.composite
def tensors(draw: st.DrawFn, rows: int) -> Tensor:
    """Returns a tensor of any dtype and shape with a number of rows."""
    dtype = draw(st.sampled_from(DTYPES))
    shape = (rows, *draw(st.lists(st.integers(0, 3), max_size=2)))
    values = torch.randint(-3, 100, shape) + torch.rand(shape)
    return values.to(dtype)


@st.composite
def tables(draw: st.DrawFn, rows: int, names: st.SearchStrategy[str] = NAMES) -> dict[str, Tensor]:
    """Returns attributes by name."""
    return {name: draw(tensors(rows)) for name in draw(st.lists(names, max_size=3, unique=True))}


@st.composite
def edges(draw: st.DrawFn, nodes: int) -> Tensor:
    """[2, E] int32 or int64."""
    pairs = draw(st.lists(st.tuples(*[st.integers(0, nodes - 1)] * 2), max_size=20))
    dtype = draw(st.sampled_from([torch.int32, torch.int64]))
    return torch.tensor(pairs, dtype=dtype).reshape(-1, 2).T.contiguous()


@st.composite
def data_sets(draw: st.DrawFn) -> Dataset:
    """Returns data sets with class numbers, other targets or none, and splits of any names."""
    nodes = draw(st.integers(1, 12))
    edge_index = draw(edges(nodes))
    of_nodes = draw(tables(nodes))
    kind = draw(st.sampled_from(["classes", "column", "any", "none"]))
    if kind in ("classes", "column"):
        y = torch.randint(0, 4, (nodes,))
        of_nodes["y"] = y if kind == "classes" else y[:, None]
    elif kind == "any":
        of_nodes["y"] = torch.rand(nodes, 2)
    if draw(st.booleans()):
        of_nodes["x"] = torch.randn(nodes, draw(st.integers(0, 3))).to(draw(st.sampled_from(DTYPES)))
    part = torch.tensor(draw(st.lists(st.integers(0, 3), min_size=nodes, max_size=nodes)))
    names = draw(st.lists(st.sampled_from(["train", "val", "test"]), unique=True))
    splits = {name: (part == code).nonzero()[:, 0] for code, name in enumerate(names)}
    if draw(st.booleans()):
        splits["calib"] = torch.randint(0, nodes, (3,))
    return Dataset.homogeneous(
        draw(st.text(min_size=1, max_size=8)),
        nodes,
        edge_index,
        nodes=of_nodes,
        edges=draw(tables(edge_index.shape[1])),
        splits=splits,
        source=draw(st.text(min_size=1, max_size=20)),
    )
