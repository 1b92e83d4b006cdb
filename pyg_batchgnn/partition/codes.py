"""Writes a partition whose features are int8 codes, from one with floating-point numbers."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from pyg_batchgnn.data import (
    CodedFile,
    CodedTable,
    Progress,
    Quantization,
    QuantizationReport,
    WideRows,
    attribute_names,
    attribute_of,
    check_bits,
    check_found,
    check_places,
    decoding_array,
    naming_files,
    place_others,
    temporary_folder,
    write_codes,
)
from pyg_batchgnn.data.files import broken, map_tensor
from pyg_batchgnn.partition.folder_meta import PartitionMeta, part_name, read_partition_meta
from pyg_batchgnn.types import FEATURES


def quantize_partition(
    source: str | Path,
    path: str | Path,
    bits: int = 8,
    *,
    attributes: str | Sequence[str] = (FEATURES,),
    percentile: float | None = None,
    links: bool = True,
    progress: Progress | None = None,
) -> QuantizationReport:
    """Writes a new partition whose features are int8 codes, as `quantize` makes them.

    The scales and offsets are found from all parts together and lie once beside them, so every
    rank decodes alike.

    Args:
        source: a folder that `save_partition` wrote.
        path, bits, attributes, percentile, links, progress: as for `quantize_folder`.

    Raises:
        DatasetError, ValueError: as for `quantize_folder`.
    """
    check_bits(bits)
    how, source, names = Quantization(percentile), Path(source).expanduser(), attribute_names(attributes)
    check_places(source, Path(path).expanduser())
    meta = read_partition_meta(source)
    held = {attribute_of(array.removeprefix(f"{part_name(0)}/")) for array in meta.arrays}
    there = [one for one in held if one is not None]
    wanted = sorted((one for one in there if one[1] in names), key=str)
    check_found(source, names, {name for _, name in wanted}, {name for _, name in there})
    tables = [_table(source, meta, decoding_array(*one), one[1]) for one in wanted]
    with temporary_folder(path) as folder:
        coded = naming_files(functools.partial(write_codes, folder, tables, how, progress))
        gone = {one.file for table in tables for one in table.files}
        arrays = place_others(source, folder, gone, meta.arrays, links, progress)
        # The fingerprint is of the numbers.
        origin = {name: value for name, value in meta.origin.items() if name != "fingerprint"}
        origin["quantised"] = {"attributes": names, "percentile": percentile}
        replace(meta, arrays={**arrays, **coded.arrays}, origin=origin).write(folder)
    return coded.report


def _table(source: Path, meta: PartitionMeta, decoding: str, name: str) -> CodedTable:
    if decoding in meta.arrays:
        file = meta.file(source, decoding)
        raise broken(file, name, "is quantised already", "leave it out of the attributes")
    files = []
    for number in range(meta.book.parts):
        array = f"{part_name(number)}/{decoding.partition('/')[2]}"
        file = meta.file(source, array)
        files.append(CodedFile(file, array, WideRows(str(file), map_tensor(file, name, meta.arrays[array]))))
    return CodedTable(name, decoding, files)
