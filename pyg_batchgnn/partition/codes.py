"""Writes a partition whose features are int8 codes, from one with floating-point features."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from pyg_batchgnn.data import (
    CodedFile,
    CodedTable,
    CodesRequest,
    Progress,
    QuantizationReport,
    WideRows,
    attribute_of,
    decoding_array,
)
from pyg_batchgnn.data.files import ArrayPromise, broken, map_tensor
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
    """Writes a new partition whose features are int8-quantised, as by `quantize`. Scales and
    offsets are found from all parts together and stored once, so every rank decodes alike.
    ``source``: a folder that `save_partition` wrote. The rest is as in `quantize_folder`."""
    wanted = CodesRequest(source, path, bits, attributes, percentile, links, progress)
    meta = read_partition_meta(wanted.source)
    every = {attribute_of(array.removeprefix(f"{part_name(0)}/")) for array in meta.arrays}
    held = [one for one in every if one is not None]
    wanted.check_found({name for _, name in held})
    chosen = sorted((one for one in held if one[1] in wanted.attributes), key=str)
    tables = [_table(wanted.source, meta, decoding_array(*one), one[1]) for one in chosen]

    def write(folder: Path, arrays: dict[str, ArrayPromise]) -> None:
        # The fingerprint is of the numbers.
        origin = {name: value for name, value in meta.origin.items() if name != "fingerprint"}
        origin["quantised"] = {"attributes": wanted.attributes, "percentile": percentile}
        replace(meta, arrays=arrays, origin=origin).write(folder)

    return wanted.write_folder(tables, meta.arrays, write)


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
