"""The historical embedding cache of one layer (HEC in DistGNN-MB, section 3.2)."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from pyg_batchgnn import ops
from pyg_batchgnn.ops import LineTable


class FoundRows:
    """The result of a search for n nodes. ``line``: at construction [n] int32, each node's line in
    the cache, or -1; then [f] int32, the lines that were found. ``place``: [n] int32, each node's
    position among these, or -1."""

    def __init__(self, line: Tensor) -> None:
        is_found = line >= 0
        self.place = torch.where(is_found, is_found.cumsum(0) - 1, ops.NO_LINE).to(torch.int32)
        self.line = line[is_found]

    @property
    def found(self) -> int:
        """The number of rows that were found."""
        return self.line.numel()


class EmbeddingCache:
    """A cache of rows of halo nodes by original id; the oldest rows make room for new ones. The
    first rows stored decide width and dtype. ``lines``: the number of rows. ``life_span``: rows can
    be read for this many steps after the one in which they were stored; None: without end."""

    def __init__(self, lines: int, life_span: int | None) -> None:
        self.life_span = life_span
        self._lines = LineTable(lines)
        self._rows: Tensor | None = None

    def __len__(self) -> int:
        """Returns the number of stored rows, including rows that are too old to be read."""
        return len(self._lines)

    @property
    def nbytes(self) -> int:
        """The bytes of rows and of the tables that find them."""
        return self._lines.nbytes + (0 if self._rows is None else self._rows.nbytes)

    def search(self, node: Tensor, step: int) -> FoundRows:
        """Finds the rows of nodes that can be read in step ``step`` (HECSearch). ``node``: [n]
        int64 original ids."""
        since = 0 if self.life_span is None else max(0, step - self.life_span)
        return FoundRows(self._lines.search(node, since))

    def load(self, found: FoundRows) -> Tensor:
        """Returns [f, F], a copy of the rows that a search found (HECLoad). Raises ValueError if
        nothing was stored yet."""
        if self._rows is None:
            raise ValueError("the cache has no rows yet")
        return ops.gather_rows(self._rows, found.line)

    def store(self, node: Tensor, rows: Tensor, step: int) -> None:
        """Stores rows [n, F] of nodes [n] int64, original ids (HECStore); the last row of a
        repeated node counts. ``step``: the number of the step, not below an earlier call's."""
        self._store(node, rows, torch.full_like(node, step))

    def _store(self, node: Tensor, rows: Tensor, step: Tensor) -> None:
        if self._rows is None:
            self._rows = torch.empty(self._lines.capacity, rows.size(1), dtype=rows.dtype)
        line = self._lines.store(node, step)
        ops.put_lines(self._rows, line, rows.contiguous())

    def state_dict(self) -> dict[str, Any]:
        """Returns the stored nodes, steps and rows, the oldest first."""
        line = self._lines.in_use()
        rows = torch.empty(0, 0) if self._rows is None else ops.gather_rows(self._rows, line)
        return {"node": self._lines.node_of(line), "step": self._lines.step_of(line), "rows": rows}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Replaces the contents by a `state_dict`."""
        self._lines = LineTable(self._lines.capacity)
        self._rows = None
        if state["node"].numel():
            self._store(state["node"], state["rows"], state["step"])
