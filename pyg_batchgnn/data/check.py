"""Everything that must hold of a `Dataset`, checked in one place."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import torch
from torch import Tensor

from pyg_batchgnn.data.dataset import Dataset
from pyg_batchgnn.data.errors import DatasetError, broken

# Features are read whole to look for NaN only up to this size: a larger table is mapped, and reading it all
# would cost what mapping it saves.
FINITE_CHECK_BYTES = 1 << 30
_ROWS_AT_A_TIME = 1 << 16

SPLITS = ("train_idx", "val_idx", "test_idx")
Files = Mapping[str, str | Path]


class _Checker:
    """Words the errors of one data set: knows which file each array came from."""

    def __init__(self, dataset: Dataset, files: Files) -> None:
        self.dataset = dataset
        self.files = files

    def error(self, array: str, fact: str, remedy: str) -> DatasetError:
        return broken(self.files.get(array, self.dataset.name), array, fact, remedy)

    def shape(self, array: str, tensor: Tensor, wanted: tuple[int | None, ...]) -> None:
        """Raise unless the shape is `wanted`, where None stands for any size."""
        shape = tuple(tensor.shape)
        fits = len(shape) == len(wanted) and all(w in (None, s) for s, w in zip(shape, wanted, strict=True))
        if not fits:
            text = ", ".join("any" if w is None else str(w) for w in wanted)
            raise self.error(array, f"shape is {list(shape)}, expected [{text}]", "store it in that shape")

    def dtype(self, array: str, tensor: Tensor, wanted: tuple[torch.dtype, ...]) -> None:
        if tensor.dtype not in wanted:
            names = " or ".join(str(t).removeprefix("torch.") for t in wanted)
            seen = str(tensor.dtype).removeprefix("torch.")
            raise self.error(array, f"dtype is {seen}, expected {names}", "convert it to that type")

    def span(self, array: str, tensor: Tensor, low: int, high: int, what: str) -> None:
        """Raise unless every value lies in [low, high)."""
        if tensor.numel() == 0:
            return
        smallest, largest = (int(v) for v in torch.aminmax(tensor))
        if smallest >= low and largest < high:
            return
        value = smallest if smallest < low else largest
        place = (tensor == value).nonzero()[0].tolist()
        raise self.error(
            array,
            f"{what} {value} at position {place} is outside [{low}, {high})",
            "correct the value or the count it is measured against",
        )


def check_dataset(dataset: Dataset, files: Files | None = None) -> Dataset:
    """Raise `DatasetError` on the first thing that is wrong with a data set; return it otherwise.

    Args:
        dataset: the data set.
        files: for each array, the file it came from, so that errors can name it; the data set's name
            otherwise.

    Checked: counts, shapes, dtypes, node ids in [0, N), labels in [-1, C), splits disjoint, without repeats
    and holding labelled nodes only, features finite (up to `FINITE_CHECK_BYTES` of them).
    """
    check_outline(dataset, files)
    check = _Checker(dataset, files or {})
    check.span("edge_index", dataset.edge_index, 0, dataset.num_nodes, "node id")
    _check_finite(check)
    check.span("y", dataset.y, -1, dataset.num_classes, "label")
    _check_splits(check)
    return dataset


def check_outline(dataset: Dataset, files: Files | None = None) -> Dataset:
    """As `check_dataset`, but counts, shapes and dtypes only: no array is read."""
    check = _Checker(dataset, files or {})
    _check_counts(check)
    _check_edges(check)
    if dataset.x is not None:
        check.shape("x", dataset.x, (dataset.num_nodes, None))
        check.dtype("x", dataset.x, (torch.float32, torch.float16))
    check.shape("y", dataset.y, (dataset.num_nodes,))
    check.dtype("y", dataset.y, (torch.int64,))
    for name in SPLITS:
        check.shape(name, getattr(dataset, name), (None,))
        check.dtype(name, getattr(dataset, name), (torch.int64,))
    return dataset


def _check_counts(check: _Checker) -> None:
    for field in ("num_nodes", "num_classes"):
        value = getattr(check.dataset, field)
        if not isinstance(value, int) or isinstance(value, bool) or value < 0:
            raise check.error(field, f"is {value!r}", "give a whole number, 0 or more")


def _check_edges(check: _Checker) -> None:
    dataset = check.dataset
    check.shape("edge_index", dataset.edge_index, (2, None))
    check.dtype("edge_index", dataset.edge_index, (torch.int32, torch.int64))
    if dataset.edge_attr is None:
        return
    if not dataset.edge_attr.is_floating_point():
        check.dtype("edge_attr", dataset.edge_attr, (torch.float32, torch.float16))
    columns: tuple[int | None, ...] = (None,) if dataset.edge_attr.dim() == 2 else ()
    check.shape("edge_attr", dataset.edge_attr, (dataset.num_edges, *columns))


def _check_finite(check: _Checker) -> None:
    x = check.dataset.x
    if x is None:
        return
    if x.numel() * x.element_size() > FINITE_CHECK_BYTES:
        return
    for start in range(0, len(x), _ROWS_AT_A_TIME):
        finite = torch.isfinite(x[start : start + _ROWS_AT_A_TIME])
        if not bool(finite.all()):
            row, column = (~finite).nonzero()[0].tolist()
            value = float(x[start + row, column])
            fact = f"value {value} at position [{start + row}, {column}] is not finite"
            raise check.error("x", fact, "replace NaN and infinite features, for example by 0")


def _check_splits(check: _Checker) -> None:
    dataset = check.dataset
    owner = torch.zeros(dataset.num_nodes, dtype=torch.uint8)  # 0: in no split yet
    for code, name in enumerate(SPLITS, start=1):
        index: Tensor = getattr(dataset, name)
        check.span(name, index, 0, dataset.num_nodes, "node id")
        taken = owner[index].nonzero()
        if len(taken):
            node = int(index[taken[0, 0]])
            other = SPLITS[int(owner[node]) - 1]
            raise check.error(name, f"node {node} is in {other} too", "make the splits disjoint")
        owner[index] = code
        if int((owner == code).sum()) != len(index):
            values, counts = torch.unique(index, return_counts=True)
            node = int(values[counts > 1][0])
            raise check.error(name, f"node {node} is listed more than once", "list each node once")
        unlabelled = (dataset.y[index] < 0).nonzero()
        if len(unlabelled):
            node = int(index[unlabelled[0, 0]])
            raise check.error(
                name, f"node {node} has no label (y is -1)", f"remove it from {name} or label it"
            )
