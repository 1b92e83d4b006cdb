"""Many ranks: feature rows against the macrobatch size, preparation over a slow network, CPU
seconds, and epochs against DistDGL.

Ranks are processes of this machine with one thread each, on loopback or, where `--network` names a
rate, each in a network namespace of its own (needs root; see support/namespaces.py). Parts:

    rows      feature rows that an epoch fetches at B = 1, B = all and with hybrid partitioning
    network   seconds to prepare an epoch's minibatches at B = 1, 8, 32, all, over the network
    scaling   CPU seconds of an epoch of SAGE on 1, 2 and 4 ranks
    dist_dgl  an epoch of SAGE on 2 hosts against DistDGL (needs --peer dgl=... and root)
    dist_dgl_preparation  preparing an epoch's minibatches against DistDGL, likewise

Links to DistDGL's hosts have no limit, and owners are random on both sides. The second epoch of
each counts. The graph may have several node types; SAGE then has a convolution per relation.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from benchmark.support import namespaces
from benchmark.support.dist_dgl import DistDgl
from benchmark.support.ranks import Answer, Measured, RankWorkload, measure_parts, told, workload_parser
from benchmark.support.tables import Result, by, markdown, over_rounds, size_name, typical
from benchmark.support.world import LOOPBACK, summary

PEER = "DistDGL"
PEER_RANKS, PEER_EPOCHS = 2, 2


def rows(bench: RankWorkload) -> Iterator[Answer]:
    """Measures what BatchGNN's table 5 has."""
    for ranks in (2, 4):
        with bench.world(ranks, LOOPBACK) as world:
            for hybrid, size in ((False, 1), (False, 0), (True, 1)):
                about = {"hybrid": hybrid, "macrobatch": size}
                counted = {"hybrid": hybrid, "macrobatch": size, "count_distinct": not hybrid}
                yield bench.entry(world, "preparation", about, **counted)


def network(bench: RankWorkload) -> Iterator[Answer]:
    """Measures preparation by macrobatch size, starting with another size in every round."""
    sizes = [1, 8, 32, 0]
    with bench.world(4) as world:
        for number in range(bench.rounds):
            turn = number % len(sizes)
            for size in sizes[turn:] + sizes[:turn]:
                about = {"round": number, "macrobatch": size}
                yield bench.entry(world, "preparation", about, macrobatch=size)


def scaling(bench: RankWorkload) -> Iterator[Answer]:
    """Measures the same epoch on more ranks, with the same seeds per step."""
    for number in range(bench.rounds):
        for ranks in (1, 2, 4):
            with bench.world(ranks, LOOPBACK) as world:
                yield bench.entry(world, "training", {"round": number}, macrobatch=8)


def dist_dgl(bench: RankWorkload) -> Iterator[Answer]:
    return _in_turns(bench, "training", (8, 0))


def dist_dgl_preparation(bench: RankWorkload) -> Iterator[Answer]:
    return _in_turns(bench, "preparation", (1, 8, 0))


def _in_turns(bench: RankWorkload, job: str, sizes: Sequence[int]) -> Iterator[Answer]:
    """Yields what DistDGL did of a job in each round, and ours at some macrobatch sizes."""
    peer = DistDgl(bench.dgl, PEER_RANKS)
    parts = peer.parts(bench.name, {"graph": str(bench.graph.path)})
    options = {
        **{"fanouts": bench.fanouts, "batch_size": bench.batch_size, "seeds": bench.seeds},
        **{"hidden": bench.hidden, "classes": bench.graph.num_classes, "epochs": PEER_EPOCHS},
    }
    for number in range(bench.rounds):
        with namespaces.hosts(PEER_RANKS, namespaces.UNLIMITED):
            of_ranks = peer.run(job, parts, options)
        yield told({"round": number, "setting": PEER, **summary(of_ranks)})
        with bench.world(PEER_RANKS, namespaces.UNLIMITED) as world:
            for size in sizes:
                about = {"round": number, "setting": f"B = {size_name(size)}"}
                yield bench.entry(world, job, about, macrobatch=size, epochs=PEER_EPOCHS)


PARTS: dict[str, Measured] = {one.__name__: one for one in (rows, network, scaling)}
PEER_PARTS: dict[str, Measured] = {one.__name__: one for one in (dist_dgl, dist_dgl_preparation)}
NETWORKS = {**dict.fromkeys(("rows", "scaling"), LOOPBACK), **dict.fromkeys(PEER_PARTS, namespaces.UNLIMITED)}


def main(arguments: Sequence[str] | None = None) -> None:
    """Measures the parts; keeps the results of parts that are not measured again."""
    parser = workload_parser(__doc__, {**PARTS, **PEER_PARTS})
    parser.set_defaults(parts=list(PARTS))
    options = parser.parse_args(arguments)
    bench = RankWorkload.parse(options)
    for part in PEER_PARTS:
        if part in options.parts and not bench.dgl:
            raise SystemExit(f"{part} needs an environment that has DGL: --peer dgl=/envs/dgl/bin/python")
    measure_parts("ranks", {**PARTS, **PEER_PARTS}, NETWORKS, bench, options)


def table(result: Result) -> str:
    return "\n\n".join(WRITERS[name](result["parts"][name]) for name in WRITERS if name in result["parts"])


def _rows(part: Result) -> str:
    lines = []
    least = {one["ranks"]: one["distinct"] for one in part["series"] if not one["hybrid"]}
    for one in part["series"]:
        fetched, bound = one["rows_fetched"], least[one["ranks"]]
        features, topology = one["features"], one["topology"]
        hybrid = ", hybrid" if one["hybrid"] else ""
        lines.append(
            [
                f"{one['ranks']} ranks{hybrid}, B = {size_name(one['macrobatch'])}",
                f"{one['minibatches']:.0f}",
                f"{fetched:,.0f}",
                f"{bound:,.0f}",
                f"{fetched / bound:.1f}",
                f"{features['bytes'] / 1e6:,.0f}",
                _overhead(fetched, one["row_bytes"], features["bytes"] + features["sent"]),
                f"{topology['rounds']:.0f}",
                f"{features['rounds']:.0f}",
                f"{topology['bytes'] / 1e6:,.0f}",
            ]
        )
    header = ["feature rows of an epoch, mean over ranks", "minibatches", "fetched", "the least", "times it"]
    header += ["MB received", "of bytes not rows and ids", "topology rounds", "feature rounds", "topology MB"]
    return markdown(header, lines)


def _overhead(fetched: float, row_bytes: float | None, moved: float) -> str:
    if row_bytes is None:
        return ""
    needed = 2 * fetched * (row_bytes + 4)  # at both ends
    return f"{100 * (1 - needed / moved):.1f} %"


def _network(part: Result) -> str:
    lines, first = [], None
    for size, entries in by(part["series"], "macrobatch"):
        wall = over_rounds(entries, "wall")
        first = first or wall
        lines.append(
            [
                f"B = {size_name(size)}",
                f"{wall:.2f}",
                f"{first / wall:.1f}x",
                f"{over_rounds(entries, 'cpu'):.1f}",
                f"{entries[0]['features']['bytes'] / 1e6:,.0f}",
                f"{entries[0]['topology']['bytes'] / 1e6:,.1f}",
            ]
        )
    ranks = part["series"][0]["ranks"]
    header = [f"preparing an epoch, {ranks} hosts, {part['network']} links", "seconds", "times as fast"]
    return markdown([*header, "CPU s, all ranks", "feature MB per rank", "topology MB per rank"], lines)


def _scaling(part: Result) -> str:
    lines, first = [], None
    for ranks, entries in by(part["series"], "ranks"):
        cpu = over_rounds(entries, "cpu")
        first = first or cpu
        sent = typical(
            ranks * sum(one[kind]["bytes"] for kind in ("topology", "features", "gradients"))
            for one in entries
        )
        lines.append([f"{ranks}", f"{cpu:.1f}", f"{cpu / first:.2f}", f"{sent / 1e6:,.0f}"])
    header = ["ranks", "CPU s of an epoch of SAGE, all ranks", "times one rank", "MB over the wire"]
    return markdown(header, lines)


def against_dist_dgl(part: Result) -> str:
    """Returns seconds of an epoch and of its parts, and remote rows."""
    found = {}
    for setting, entries in by(part["series"], "setting"):
        theirs = setting == PEER
        # A loader's statistics are those of all epochs.
        rows = entries[0]["remote_rows"] if theirs else entries[0]["stats"]["rows_fetched"] / PEER_EPOCHS
        found[setting] = {
            "seconds": over_rounds(entries, "wall"),
            "preparing": _phases(entries, ("sample", "features") if theirs else ("prepare",)),
            "forward": _phases(entries, ("forward",)),
            "backward": _phases(entries, ("backward",)),
            "rows": rows,
        }
    shown = ("seconds", "preparing", "forward", "backward")
    header = ["against DistDGL, 2 hosts", "seconds per epoch", "preparing", "forward", "backward and update"]
    header += ["remote rows per rank", "times as fast", "preparing", "times fewer rows"]
    return markdown(header, _peer_lines(found, shown, ("seconds", "preparing", "rows")))


def preparation_against_dist_dgl(part: Result) -> str:
    """Returns seconds of preparing the minibatches of an epoch, and remote rows."""
    found = {}
    for setting, entries in by(part["series"], "setting"):
        rows = entries[0]["remote_rows" if setting == PEER else "rows_fetched"]
        found[setting] = {"seconds": over_rounds(entries, "wall"), "rows": rows}
    header = ["preparing an epoch against DistDGL, 2 hosts", "seconds", "remote rows per rank"]
    header += ["times as fast", "times fewer rows"]
    return markdown(header, _peer_lines(found, ("seconds",), ("seconds", "rows")))


def _peer_lines(
    found: dict[str, dict[str, float]], shown: Iterable[str], compared: Iterable[str]
) -> list[list[str]]:
    """Returns a line per setting: seconds, remote rows, and how many times less than DistDGL's."""
    peer = found[PEER]
    return [
        [
            setting,
            *(f"{one[name]:.2f}" for name in shown),
            f"{one['rows']:,.0f}",
            *(f"{peer[name] / one[name]:.1f}x" for name in compared),
        ]
        for setting, one in found.items()
    ]


def _phases(entries: list[Result], names: Iterable[str]) -> float:
    return typical(sum(one["phases"][name] for name in names) for one in entries)


WRITERS = {
    "rows": _rows,
    "network": _network,
    "scaling": _scaling,
    "dist_dgl": against_dist_dgl,
    "dist_dgl_preparation": preparation_against_dist_dgl,
}
