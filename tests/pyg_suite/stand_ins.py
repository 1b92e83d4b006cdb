"""Stand-ins for what PyG's tests use beside loaders: torch-sparse's matrix and a download."""

from __future__ import annotations

from types import SimpleNamespace

import torch
from torch import Tensor
from torch_geometric.data import Data
from torch_geometric.utils import to_undirected


class SparseTensor:
    """A sparse matrix of which rows and columns are selected, as torch-sparse's.

    Args:
        row, col: [n] int64, the places of the entries.
        value: [n], the entries.
    """

    def __init__(self, row: Tensor, col: Tensor, value: Tensor) -> None:
        self._entries = row, col, value
        self.storage = SimpleNamespace(row=lambda: row, col=lambda: col, value=lambda: value)

    def __getitem__(self, at: tuple[Tensor, Tensor]) -> SparseTensor:
        """Returns the matrix of some rows and some columns, in their order."""
        *places, value = self._entries
        found = []
        for place, chosen in zip(places, at, strict=True):
            number = torch.full((1 + int(torch.cat([place, chosen]).max()),), -1)
            number[chosen] = torch.arange(chosen.numel())
            found.append(number[place])
        kept = (found[0] >= 0) & (found[1] >= 0)
        return SparseTensor(found[0][kept], found[1][kept], value[kept])

    def nnz(self) -> int:
        """Returns the number of entries."""
        return self._entries[0].numel()

    def coo(self) -> tuple[Tensor, Tensor, Tensor]:
        """Returns rows, columns and values."""
        return self._entries


class Planetoid:
    """A random undirected graph of Cora's size, where PyG would download Cora.

    Args:
        root, name: ignored.
    """

    num_features, num_classes = 1433, 7

    def __init__(self, root: str, name: str) -> None:
        generator = torch.Generator().manual_seed(1)
        edges = to_undirected(torch.randint(2708, (2, 5278), generator=generator))
        x = torch.rand(2708, self.num_features, generator=generator) < 0.01
        self._data = Data(x=x.float(), edge_index=edges)

    def __getitem__(self, number: int) -> Data:
        """Returns the graph."""
        return self._data
