"""Writes a data folder whose features are int8 codes, from one with floating-point features."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import torch

from pyg_batchgnn.data.codes import (
    Progress,
    Quantization,
    QuantizationReport,
    QuantizedTable,
    RowCoder,
    WideRows,
    attribute_names,
    check_bits,
    check_table,
)
from pyg_batchgnn.data.errors import DatasetError, DatasetNotFoundError
from pyg_batchgnn.data.files.durable import new_file
from pyg_batchgnn.data.files.npy import ArrayPromise, NpyAppender, write_tensor
from pyg_batchgnn.data.folder import FolderReader, open_folder
from pyg_batchgnn.data.folder_convert import place_others
from pyg_batchgnn.data.folder_write import temporary_folder
from pyg_batchgnn.data.meta import Meta, attribute_array, csc_array, decoding_array, edge_array, write_meta
from pyg_batchgnn.types import EDGE_FEATURES, EDGES, FEATURES, NODES, Group

#: Attributes that may lie in the folder itself.
_USUAL = {FEATURES: NODES, EDGE_FEATURES: EDGES}


def quantize_folder(
    source: str | Path,
    path: str | Path,
    bits: int = 8,
    *,
    attributes: str | Sequence[str] = (FEATURES,),
    percentile: float | None = None,
    links: bool = True,
    progress: Progress | None = None,
) -> QuantizationReport:
    """Writes a new data folder whose features are int8-quantised, as by `quantize`, reading some
    rows at a time. Returns bytes and errors of each table. All else stays as it was.

    >>> print(quantize_folder("graphs/large", "graphs/int8"))
    nodes/x: 64 columns, 128,000 bytes to 32,512, largest error 0.0145, 0.0000 % clamped

    Args:
        source, path, links: as for `convert_folder`.
        bits, attributes, percentile: as for `quantize`.
        progress: told (attribute, elements done, elements of all passes).

    Raises:
        DatasetError: ``path`` exists, a file is damaged, there is no such folder or attribute, it
            cannot be quantised, a value is NaN or infinite, or the disk is full.
        ValueError: an argument is out of range.
    """
    wanted = CodesRequest(source, path, bits, attributes, percentile, links, progress)
    dataset, reader = open_folder(wanted.source), FolderReader(wanted.source)
    for edges in dataset.edge_sets:
        forms = csc_array(edges.group, "indices"), edge_array("edge_index", edges.group)
        if not any(reader.file(array).is_file() for array in forms):
            raise DatasetError(
                f"{reader.path}: the edges are in src.npy and dst.npy, or in Parquet files; write them by "
                f"destination first: batchgnn convert {reader.path} NEW"
            )
    wanted.check_found({name for one in dataset.sets for name in one.tables})
    tables = [
        _table(reader, one.group, name)
        for one in dataset.sets
        for name in wanted.attributes
        if name in one.tables
    ]

    def write(folder: Path, arrays: dict[str, ArrayPromise]) -> None:
        write_meta(folder, Meta.of(dataset, arrays, reader.meta.origin))

    return wanted.write_folder(tables, reader.meta.arrays, write)


class CodedFile(NamedTuple):
    """One file of a table to quantise."""

    file: Path  # the file with the values
    array: str  # the name of its codes in the new folder
    source: WideRows  # the values


class CodedTable(NamedTuple):
    """A table to quantise."""

    name: str  # the attribute
    array: str  # the name of its scales and offsets in the new folder
    files: Sequence[CodedFile]  # its rows; all files have the same columns


class CodesRequest:
    """A data folder or a partition to write anew with int8-quantised attributes. Checks the
    arguments of `quantize_folder`, with the same errors."""

    def __init__(
        self,
        source: str | Path,
        path: str | Path,
        bits: int,
        attributes: str | Sequence[str],
        percentile: float | None,
        links: bool,
        progress: Progress | None,
    ) -> None:
        check_bits(bits)
        self.how, self.links, self.progress = Quantization(percentile), links, progress
        self.source, self.path = source, path = Path(source).expanduser(), Path(path).expanduser()
        self.attributes = attribute_names(attributes)
        if not source.is_dir():
            raise DatasetNotFoundError(f"{source}: no such folder; give a data folder or a partition")
        if source.resolve() in path.resolve().parents:
            raise DatasetError(f"{path}: lies in {source}, which is quantised; choose another folder")
        if path.exists():
            raise DatasetError(f"{path}: exists already; remove it or choose another folder")

    def check_found(self, held: set[str]) -> None:
        """Raises `DatasetNotFoundError` unless ``held`` has all wanted attributes."""
        for name in self.attributes:
            if name not in held:
                there = ", ".join(sorted(held)) or "none"
                raise DatasetNotFoundError(f"{self.source}: has no attribute {name!r} (it has: {there})")

    def write_folder(
        self,
        tables: Sequence[CodedTable],
        known: Mapping[str, ArrayPromise],
        write_meta: Callable[[Path, dict[str, ArrayPromise]], None],
    ) -> QuantizationReport:
        """Writes the new folder, which appears only when it is complete. Returns what the codes
        cost. ``known``: the old META.json's promises by array. ``write_meta``: writes the new
        META.json, given folder and promises. Raises `DatasetError`."""
        gone = {one.file for table in tables for one in table.files}
        with temporary_folder(self.path) as folder:
            arrays, found = dict[str, ArrayPromise](), list[QuantizedTable]()
            try:
                for table in tables:
                    found.append(self._write_codes(folder, table, arrays))
            except DatasetError:
                raise
            except (TypeError, ValueError) as error:  # about values; the message names the file
                raise DatasetError(str(error)) from error

            def report(done: int, total: int) -> None:
                if self.progress is not None:
                    self.progress("other files", done, total)

            others, _ = place_others(self.source, folder, gone, known, self.links, report)
            write_meta(folder, {**others, **arrays})
        return QuantizationReport(tuple(found))

    def _write_codes(
        self, folder: Path, table: CodedTable, arrays: dict[str, ArrayPromise]
    ) -> QuantizedTable:
        sources = [one.source for one in table.files]
        elements, done = sum(one.table.numel() for one in sources) * RowCoder.passes(self.how), 0
        attribute = table.array.partition("/")[2]

        def tell(more: int) -> None:
            nonlocal done
            done += more
            if self.progress is not None:
                self.progress(attribute, done, elements)

        for source in sources:
            check_table(source.name, source.table)
        encoder = RowCoder(attribute, sources, self.how, tell)
        for one in table.files:
            rows, *row = one.source.table.shape
            with NpyAppender(new_file(folder, one.array), torch.int8, tuple(row), rows) as out:
                for codes in encoder.codes(one.source):
                    out.append(codes.numpy().reshape(-1, *row))
            arrays[one.array] = out.promise()
        arrays[table.array] = write_tensor(new_file(folder, table.array), encoder.decoding)
        return encoder.report()


def _table(reader: FolderReader, group: Group, name: str) -> CodedTable:
    array = attribute_array(group, name)
    stored = array if reader.file(array).is_file() or _USUAL.get(name) != group else name
    table = reader.open(stored)
    if table is None:
        raise DatasetError(
            f"{reader.path}: {name!r} is a column of a Parquet file; write the folder anew first: "
            f"write_folder(read_folder(...), NEW)"
        )
    file = reader.file(stored)
    if reader.file(decoding_array(group, name)).is_file():
        raise DatasetError(f"{file}: {name} is quantised already; leave it out of the attributes")
    return CodedTable(name, decoding_array(group, name), [CodedFile(file, array, WideRows(str(file), table))])
