"""The rows of the table: what is trained, who does it, and what is aimed at."""

from __future__ import annotations

from dataclasses import dataclass

#: The names of the contestants.
OURS, TRIMMED, PREFIXES = "ours", "PyG to_hetero, trimmed", "PyG HeteroConv on prefixes"
DGL, UNTRIMMED = "DGL HeteroGraphConv", "PyG untrimmed"
#: Contestants that take turns: side and job by name.
Table = dict[str, tuple[str, str]]


@dataclass(frozen=True)
class Row:
    """One kind of step.

    Attributes:
        name: its name on the command line and in the table.
        model: the network, one of ``networks.recipe.MODELS``.
        fanouts: neighbours per hop, from the seeds; as many layers.
        tables: the contestants. Ours is in each table: together all of them would not fit the
            memory.
        aims: by peer, how many times as fast ours is to be.
        typed: True if it is on the typed graph.
    """

    name: str
    model: str
    fanouts: tuple[int, ...]
    tables: tuple[Table, ...]
    aims: dict[str, float]
    typed: bool = True


_OURS = {OURS: ("typed_ours", "typed")}
_TYPED = (
    {**_OURS, TRIMMED: ("typed_pyg", "trimmed")},
    {**_OURS, PREFIXES: ("typed_pyg", "prefixes")},
    {**_OURS, DGL: ("typed_dgl", "typed")},
)
_LINKS = ({OURS: ("typed_ours", "links"), UNTRIMMED: ("typed_pyg", "links")},)
PEERS = (TRIMMED, UNTRIMMED, PREFIXES, DGL)
ROWS = {
    row.name: row
    for row in (
        Row("typed SAGE", "sage", (15, 10, 5), _TYPED, {TRIMMED: 12, PREFIXES: 4, DGL: 4}),
        Row("typed GAT", "gat", (15, 10, 5), _TYPED, {TRIMMED: 8, PREFIXES: 4, DGL: 4}),
        Row("links", "sage", (15, 10), _LINKS, {UNTRIMMED: 10}, typed=False),
    )
}
#: The least part of a step that gathers and products are to take.
LEAST_SHARE = 0.6
