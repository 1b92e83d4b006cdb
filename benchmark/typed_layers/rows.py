"""The rows of the table: what is trained, who does it, and what is aimed at."""

from __future__ import annotations

from dataclasses import dataclass

#: The contestants by name: side and job. Columns of two jobs have one name.
OURS, TRIMMED, PREFIXES, DGL, UNTRIMMED = (
    *("ours", "PyG to_hetero, trimmed", "PyG HeteroConv on prefixes", "DGL HeteroGraphConv"),
    "PyG untrimmed",
)


@dataclass(frozen=True)
class Row:
    """One kind of step.

    Attributes:
        name: its name on the command line and in the table.
        model: the network, one of ``networks.recipe.MODELS``.
        fanouts: neighbours per hop, from the seeds; as many layers.
        contestants: side and job by name.
        aims: by peer, how many times as fast ours is to be.
        typed: True if it is on the typed graph.
    """

    name: str
    model: str
    fanouts: tuple[int, ...]
    contestants: dict[str, tuple[str, str]]
    aims: dict[str, float]
    typed: bool = True


_TYPED = {
    OURS: ("typed_ours", "typed"),
    TRIMMED: ("typed_pyg", "trimmed"),
    PREFIXES: ("typed_pyg", "prefixes"),
    DGL: ("typed_dgl", "typed"),
}
_LINKS = {OURS: ("typed_ours", "links"), UNTRIMMED: ("typed_pyg", "links")}
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
