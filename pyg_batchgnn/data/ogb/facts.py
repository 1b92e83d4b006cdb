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


class StoredLinks(enum.Enum):
    """The forms of the splits of OGB's link data sets, which are files of `torch.save`."""

    PAIRS = "pairs, and pairs that are no links"  # "edge" and "edge_neg", [n, 2] each
    TARGETS = "sources and targets, and negative targets"  # "source_node", "target_node", ..._neg


@dataclass(frozen=True)
class OgbTable:
    """One OGB data set."""

    name: str  # OGB's name
    num_classes: int  # number of classes C
    split: str  # name of OGB's split, a folder under split/
    layout: RawLayout  # CSV or binary
    edges: StoredEdges  # which directions the raw file holds
    url: str  # archive to download
    archive_folder: str  # folder inside the archive
    #: the form of the splits of a data set of links; None for a data set of nodes
    links: StoredLinks | None = None
    of_nodes: tuple[str, ...] = ()  # further files of node attributes, of whole numbers
    of_edges: tuple[str, ...] = ()  # further files of edge attributes, of whole numbers

    @property
    def folder(self) -> str:
        return self.name.replace("-", "_")


_BASE = "http://snap.stanford.edu/ogb/data/nodeproppred"
_LINKS = "http://snap.stanford.edu/ogb/data/linkproppred"

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
        OgbTable(
            "ogbl-collab",
            0,
            "time",
            RawLayout.CSV,
            StoredEdges.EACH_ONCE,
            f"{_LINKS}/collab.zip",
            "collab",
            StoredLinks.PAIRS,
            of_edges=("edge_weight", "edge_year"),
        ),
        OgbTable(
            "ogbl-citation2",
            0,
            "time",
            RawLayout.CSV,
            StoredEdges.DIRECTED,
            f"{_LINKS}/citation-v2.zip",
            "citation-v2",
            StoredLinks.TARGETS,
            of_nodes=("node_year",),
        ),
    )
}
