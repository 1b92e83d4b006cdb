"""What is known beforehand of each OGB data set (OGB 1.3.6)."""

from __future__ import annotations

import enum
from dataclasses import dataclass


class RawLayout(enum.Enum):  # how OGB ships the raw arrays
    CSV = "csv"
    BINARY = "binary"
    TYPED_CSV = "csv by node type and relation"


class StoredEdges(enum.Enum):  # which directions the raw edge list holds
    DIRECTED = "directed"
    EACH_ONCE = "each undirected edge once"


class StoredLinks(enum.Enum):  # what the splits of link data sets hold, files of `torch.save`
    PAIRS = "pairs, and pairs that are no links"  # "edge" and "edge_neg", [n, 2] each
    TARGETS = "sources and targets, and negative targets"  # "source_node", "target_node", ..._neg


@dataclass(frozen=True)
class OgbTable:
    """An OGB data set: how its raw files are read."""

    name: str
    num_classes: int
    split: str  # OGB's split, a folder in split/
    layout: RawLayout
    edges: StoredEdges  # which directions the raw edge list holds
    archive: str  # the archive to download, and the folder inside it
    links: StoredLinks | None = None  # what the splits hold; None: a data set of nodes
    of_nodes: tuple[str, ...] = ()  # files of further node attributes, whole numbers
    of_edges: tuple[str, ...] = ()  # files of further edge attributes, whole numbers

    @property
    def folder(self) -> str:
        return self.name.replace("-", "_")

    @property
    def archive_folder(self) -> str:
        return self.archive.rpartition("/")[2]

    @property
    def url(self) -> str:
        return f"http://snap.stanford.edu/ogb/data/{self.archive}.zip"


_CSV, _DIRECTED, _ONCE = RawLayout.CSV, StoredEdges.DIRECTED, StoredEdges.EACH_ONCE
_NODES, _LINKS = "nodeproppred", "linkproppred"
_TYPED_CSV, _TARGETS = RawLayout.TYPED_CSV, StoredLinks.TARGETS
_YEARS = ("edge_weight", "edge_year")

OGB_TABLES: dict[str, OgbTable] = {
    table.name: table
    for table in (
        OgbTable("ogbn-arxiv", 40, "time", _CSV, _DIRECTED, f"{_NODES}/arxiv"),
        OgbTable("ogbn-products", 47, "sales_ranking", _CSV, _ONCE, f"{_NODES}/products"),
        OgbTable("ogbn-papers100M", 172, "time", RawLayout.BINARY, _DIRECTED, f"{_NODES}/papers100M-bin"),
        OgbTable(
            *("ogbn-mag", 349, "time", _TYPED_CSV, _DIRECTED, f"{_NODES}/mag"),
            of_nodes=("node_year",),
            of_edges=("edge_reltype",),
        ),
        OgbTable(
            *("ogbl-collab", 0, "time", _CSV, _ONCE, f"{_LINKS}/collab", StoredLinks.PAIRS), of_edges=_YEARS
        ),
        OgbTable(
            *("ogbl-citation2", 0, "time", _CSV, _DIRECTED, f"{_LINKS}/citation-v2", _TARGETS),
            of_nodes=("node_year",),
        ),
    )
}
