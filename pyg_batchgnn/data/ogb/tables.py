"""The facts that are known beforehand of each OGB data set (OGB 1.3.6)."""

from __future__ import annotations

import enum
from dataclasses import dataclass


class RawLayout(enum.Enum):
    """The ways in which OGB ships the raw arrays."""

    CSV = "csv"
    BINARY = "binary"
    TYPED_CSV = "csv by node type and relation"


class StoredEdges(enum.Enum):
    """The directions that the raw edge list holds."""

    DIRECTED = "directed"
    EACH_ONCE = "each undirected edge once"


@dataclass(frozen=True)
class OgbTable:
    """One OGB data set.

    Attributes:
        name: OGB's name.
        num_classes: number of classes C.
        split: name of OGB's split, a folder under split/.
        layout: CSV or binary.
        edges: which directions the raw file holds.
        url: archive to download.
        archive_folder: folder inside the archive.
    """

    name: str
    num_classes: int
    split: str
    layout: RawLayout
    edges: StoredEdges
    url: str
    archive_folder: str

    @property
    def folder(self) -> str:
        """The folder name that OGB gives the data set on disk."""
        return self.name.replace("-", "_")


_BASE = "http://snap.stanford.edu/ogb/data/nodeproppred"

OGB_TABLES: dict[str, OgbTable] = {
    table.name: table
    for table in (
        OgbTable(
            "ogbn-arxiv", 40, "time", RawLayout.CSV, StoredEdges.DIRECTED, f"{_BASE}/arxiv.zip", "arxiv"
        ),
        OgbTable(
            "ogbn-products",
            47,
            "sales_ranking",
            RawLayout.CSV,
            StoredEdges.EACH_ONCE,
            f"{_BASE}/products.zip",
            "products",
        ),
        OgbTable(
            "ogbn-papers100M",
            172,
            "time",
            RawLayout.BINARY,
            StoredEdges.DIRECTED,
            f"{_BASE}/papers100M-bin.zip",
            "papers100M-bin",
        ),
        OgbTable(
            "ogbn-mag", 349, "time", RawLayout.TYPED_CSV, StoredEdges.DIRECTED, f"{_BASE}/mag.zip", "mag"
        ),
    )
}
