"""Fixtures of the tests of tables."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from pyg_batchgnn.tables import GraphDescription, convert

#: Writes tables, converts them by a description, and returns the arrays by name.
Converted = Callable[..., dict[str, np.ndarray]]

#: A link table, for descriptions without a relation.
LINK = '\n[edges."some,link,other"]\nfiles = "links.csv"\nsource = "a"\ntarget = "b"\n'


@pytest.fixture
def converted(tmp_path: Path) -> Converted:
    """Converts tables, given as columns (Parquet) or texts (CSV), by the text of a description."""

    def convert_tables(said: str, name: str = "data", **tables: Any) -> dict[str, np.ndarray]:
        for table, content in tables.items():
            if isinstance(content, str):
                (tmp_path / f"{table}.csv").write_text(content)
            else:
                pq.write_table(pa.table(content), tmp_path / f"{table}.parquet", row_group_size=2)
        if "[edges" not in said and "foreign_keys" not in said:
            (tmp_path / "links.csv").write_text("a,b\nx,y\n")
            said += LINK
        (tmp_path / "graph.toml").write_text(said)
        convert(GraphDescription.read(tmp_path), tmp_path / name, threads=1)
        return {
            file.relative_to(tmp_path / name).with_suffix("").as_posix(): np.load(file)
            for file in (tmp_path / name).rglob("*.npy")
        }

    return convert_tables
