"""Steps of typed SAGE and GAT on a graph like ogbn-mag, and of SAGE on links of one like products.

Every node type has 128 features. Ours against PyG's `to_hetero` with trimming, PyG's `HeteroConv`
on slices made by hand, and DGL's `HeteroGraphConv` on blocks; links against PyG's whole
minibatches. Choose rows with --rows, peers with --against and smaller graphs with --scale. What is
not asked for stays as it is stored, if its options are the same.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from benchmark.modes import chosen_options, graphs_parser, head, in_short, store
from benchmark.support.cli import Peers
from benchmark.support.harness import MALLOC, Players, ProcessSetting
from benchmark.support.jobs import Options
from benchmark.support.tables import OURS, Line, Result, absences, figures_of, markdown, milliseconds, setting

#: The names of the contestants.
TRIMMED, PREFIXES = "PyG to_hetero, trimmed", "PyG HeteroConv on prefixes"
DGL, UNTRIMMED = "DGL HeteroGraphConv", "PyG untrimmed"
#: Slow contestants do this many minibatches of a round.
FEW = 1


@dataclass(frozen=True)
class Row:
    """One kind of step."""

    name: str  # its name on the command line and in the table
    model: str  # the network, one of ``networks.recipe.MODELS``
    fanouts: tuple[int, ...]  # neighbours per hop, from the seeds; as many layers
    job: str  # the job of ours
    peers: dict[str, tuple[str, str]]
    typed: bool = True  # True if it is on the typed graph


_TYPED = {TRIMMED: ("pyg", "typed-trimmed"), PREFIXES: ("pyg", "typed-prefixes"), DGL: ("dgl", "typed")}
PEERS = (TRIMMED, UNTRIMMED, PREFIXES, DGL)
ROWS = {
    row.name: row
    for row in (
        Row("typed SAGE", "sage", (15, 10, 5), "typed", _TYPED),
        Row("typed GAT", "gat", (15, 10, 5), "typed", _TYPED),
        Row("links", "sage", (15, 10), "links", {UNTRIMMED: ("pyg", "links")}, typed=False),
    )
}


def series(
    rows: Sequence[Row],
    against: Sequence[str],
    options: Options,
    where: ProcessSetting,
    peers: Peers,
    rounds: int,
) -> Iterator[dict[str, Any]]:
    """Yields the series of each peer and row; rows with the same peer share its processes."""
    for peer in against:
        some = [row for row in rows if peer in row.peers]
        if not some:
            continue
        ours = peers.contestant(OURS, "ours", some[0].job)
        theirs = peers.contestant(peer, *some[0].peers[peer], FEW)
        with Players([ours, theirs], where) as players:
            for row in some:
                print(f"{row.name}, {where.threads} thread(s), malloc {where.malloc}", flush=True)
                work = replace(options, model=row.model, fanouts=row.fanouts)
                yield {**players.series(work, rounds).as_dict(), "row": row.name}


def _case(one: dict[str, Any]) -> Hashable:
    peers = frozenset({*one["contestants"], *one["absent"]} - {OURS})
    return one["row"], one["threads"], one["malloc"], peers


def main(arguments: Sequence[str] | None = None) -> None:
    """Measures the chosen rows; stores the JSON file after each of them."""
    parser = graphs_parser(__doc__, ROWS, batches=2)
    add = parser.add_argument
    add("--against", nargs="+", choices=PEERS, default=PEERS, metavar="PEER", help=", ".join(PEERS))
    add("--malloc", choices=MALLOC, nargs="+", default=["kept"], help="allocator settings to measure")
    add("--hidden", type=int, default=256, help="width of hidden layers")
    chosen = parser.parse_args(arguments)
    rows, peers = [ROWS[name] for name in chosen.rows], Peers(dict(chosen.peer))
    options = chosen_options(chosen, [row.typed for row in rows], hidden=chosen.hidden)
    content = head("typed_layers", chosen, options, hidden=chosen.hidden)
    for malloc in chosen.malloc:
        for threads in chosen.threads:
            where = ProcessSetting(threads, malloc)
            for found in series(rows, chosen.against, options, where, peers, chosen.rounds):
                store(chosen.results / "typed_layers.json", {**content, "series": [found]}, _case, ROWS)


def table(result: Result) -> str:
    """Returns the graphs and the times."""
    head = ["ms per step", "ours", "page faults"]
    head += [cell for peer in PEERS for cell in (peer, "ours is faster by")]
    found: dict[tuple[str, str], Line] = {}
    for one in result["series"]:
        key = (one["row"], setting(one))
        found.setdefault(key, Line(", ".join(key))).add(figures_of(one))
    rows = []
    for (name, _), line in found.items():
        faults = "-" if line.ours is None else f"{line.ours['faults_per_minibatch']:,.0f}"
        cells = [line.cells(peer, ",.1f") if peer in ROWS[name].peers else ("", "") for peer in PEERS]
        rows.append([line.name, milliseconds(line.ours), faults, *(cell for pair in cells for cell in pair)])
    return f"{in_short(result)}\n\n{markdown(head, rows)}{absences(result['series'])}"
