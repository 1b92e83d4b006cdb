"""The features of a table's rows: fitted to training rows, and written row by row."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from pyg_batchgnn.data import EDGE_FEATURES, FEATURES, LABELS, DatasetError
from pyg_batchgnn.data.files import NpyAppender
from pyg_batchgnn.tables.description import ColumnFeature
from pyg_batchgnn.tables.encode import Encoder, encoder_of
from pyg_batchgnn.tables.rows import RowCheck
from pyg_batchgnn.tables.source import RawTable, need

#: Names of arrays that ids may not have.
_TAKEN = (FEATURES, LABELS, EDGE_FEATURES, "time")
#: For a range of rows [first, last), which of them are meant.
Mask = Callable[[int, int], np.ndarray]


@dataclass(frozen=True, eq=False)
class FeaturesOfRows:
    """The features of one table.

    Attributes:
        table: the rows.
        said: the encoder of each column.
    """

    table: RawTable
    said: Mapping[str, ColumnFeature]

    def _encoder(self, column: str, rows: int = 0, learned: Mapping[str, Any] | None = None) -> Encoder:
        self.table.type_of(column, f"features.{column}")
        return encoder_of(f"{self.table.where}: features.{column}", self.said[column], rows, learned)

    def checks(self) -> list[RowCheck]:
        """Returns the checks of the columns, one pass over which finds bad values.

        Raises:
            DatasetError: a column is missing, or is of another type than its encoder needs.
        """
        found = []
        for column, said in self.said.items():
            encoder = self._encoder(column)
            nothing = need("pyarrow").array([], self.table.schema.field(column).type)
            encoder.parse(nothing)  # an error where the type does not fit
            if said.encoder == "ids" and column in _TAKEN:
                raise DatasetError(
                    f"{self.table.where}: features.{column}: ids become an attribute of the column's name, "
                    f"which is taken; rename the column"
                )
            if said.encoder not in ("category", "hashed", "ids"):
                found.append(RowCheck(column, encoder.parse))
        return found

    def fit(self, rows: int, is_training: Mask) -> dict[str, Any]:
        """Learns from the training rows.

        Args:
            rows: the number of training rows.
            is_training: which rows these are.

        Returns:
            The state of each column's encoder.
        """
        encoders = {column: self._encoder(column, rows) for column in self.said}
        if encoders:
            for first, chunk in self.table.chunks(list(encoders)):
                wanted = is_training(first, first + len(chunk))
                if not wanted.any():
                    continue
                here = chunk if wanted.all() else chunk.filter(need("pyarrow").array(wanted))
                for column, encoder in encoders.items():
                    encoder.see(here.column(column))
        return {column: encoder.state() for column, encoder in encoders.items()}

    def names(self, states: Mapping[str, Any]) -> list[list[str]]:
        """Returns for each column of features that of the table, and what it stands for."""
        return [
            [column, name]
            for column in self.said
            for name in self._encoder(column, learned=states[column]).names()
        ]

    def write(
        self, states: Mapping[str, Any], is_kept: Mask, file: Callable[[str], Path], name: str
    ) -> list[Path]:
        """Writes the features of the rows that are kept, and ids as attributes of their own.

        Args:
            states: what `fit` returned.
            file: the file of an attribute.
            name: the attribute of the features.

        Returns:
            The files.
        """
        encoders = {column: self._encoder(column, learned=states[column]) for column in self.said}
        dense = [column for column in encoders if self.said[column].encoder != "ids"]
        width = len(self.names(states))
        writers = {column: NpyAppender(file(column), np.int64) for column in encoders if column not in dense}
        if width:
            writers[name] = NpyAppender(file(name), np.float32, (width,))
        if not writers:
            return []
        with contextlib.ExitStack() as open_files:
            for writer in writers.values():
                open_files.enter_context(writer)
            self._write(encoders, dense, writers, is_kept, name)
        return [file(column) for column in writers]

    def _write(
        self,
        encoders: Mapping[str, Encoder],
        dense: list[str],
        writers: Mapping[str, NpyAppender],
        is_kept: Mask,
        name: str,
    ) -> None:
        for first, chunk in self.table.chunks(list(encoders)):
            kept = is_kept(first, first + len(chunk))
            chunk = chunk if kept.all() else chunk.filter(need("pyarrow").array(kept))
            blocks = {column: encoder.encode(chunk.column(column)) for column, encoder in encoders.items()}
            for column, writer in writers.items():
                piece = (
                    np.concatenate([blocks[one] for one in dense], 1) if column == name else blocks[column]
                )
                writer.append(piece)
