"""DistDGL: the parts of an epoch, embeddings, scaling and partitions."""

from __future__ import annotations

from collections.abc import Sequence

from benchmark.papers import published
from benchmark.papers.section import Bar, Compared, Panel, Source
from benchmark.papers.stored import DASH, Seconds, Stored, part, ratio, shown, times
from benchmark.support.rounds import typical

_CUT = {("multilevel", 4), ("METIS", 1), ("ldg", 4)}  # sides and ranks
POLICIES = {"random": "random", "ldg": "ldg, one pass", "multilevel": "multilevel, as METIS"}


def tables(stored: Stored) -> Sequence[Compared]:
    """Returns the tables of the slides' section 4."""
    return [_breakdown(stored), _embeddings(stored), _ablation(stored), _cuts(stored)]


def _gains(stored: Stored) -> dict[str, float | None]:
    """Returns how many times as fast ours is as DistDGL."""
    theirs, ours = (
        Seconds.of(stored.chosen("ranks-arxiv", "dist_dgl", setting=setting))
        for setting in ("DistDGL", "B = all")
    )
    return {
        "an epoch": ratio(part(theirs, "epoch"), part(ours, "epoch")),
        "preparing minibatches": ratio(part(theirs, "preparation"), part(ours, "preparation")),
    }


def _breakdown(stored: Stored) -> Compared:
    gains = _gains(stored)
    rows = [
        ["an epoch", f"{published.OVER_EULER:.1f}x", times(gains["an epoch"])],
        ["copying data", f"{published.COPY_OVER_EULER:.0f}x", DASH],
        ["sampling", f"{published.SAMPLE_OVER_EULER:.0f}x", DASH],
        ["copying and sampling", DASH, times(gains["preparing minibatches"])],
    ]
    return Compared(
        "The epoch and its parts",
        "Published: DistDGL against Euler, 8 machines of 96 virtual CPUs, 100 Gbit/s, products. Ours: "
        "this package with B = all against DistDGL (DGL 1.1.3), 2 hosts of one core, a graph of the size "
        "of arxiv.",
        ["", "published: DistDGL over Euler", "ours over DistDGL"],
        rows,
    )


def _embedding_gains(stored: Stored) -> dict[str, float | None]:
    """Returns how many times as fast the embedding part of a step is as that of others.

    Of torch's two modules under DistributedDataParallel, it is the faster one.
    """
    seconds = {name: typical(found) for name, found in stored.read("embeddings").get("seconds", {}).items()}
    ours, torchs = seconds.get("ours"), [seconds[name] for name in ("sparse", "dense") if name in seconds]
    return {
        "torch's": ratio(min(torchs, default=None), ours),
        "DistDGL's": ratio(seconds.get("dgl"), ours),
    }


def _embeddings(stored: Stored) -> Compared:
    gains = _embedding_gains(stored)
    return Compared(
        "Learned embeddings",
        "Times as fast as torch's embeddings under DistributedDataParallel. Published: DistDGL, products, "
        "all of a step. Ours: the embedding part of a step, also against DistDGL 1.1.3; the benchmark "
        "`embeddings` has its tables.",
        ["", "published", "ours"],
        [
            ["over torch's", f"almost {published.EMBEDDING_OVER_TORCH:.0f}x", times(gains["torch's"])],
            ["over DistDGL's", DASH, times(gains["DistDGL's"])],
        ],
    )


def _of_policy(stored: Stored, policy: str) -> tuple[float | None, float | None]:
    """Returns the seconds and the fetched rows of an epoch on a partition."""
    entries = stored.chosen("papers", "partitions", setting=policy)
    seconds = Seconds.of(entries)
    return part(seconds, "epoch"), stored.total(entries, "features", "rows")


def _ablation(stored: Stored) -> Compared:
    base = _of_policy(stored, "random")
    rows = []
    for policy, name in POLICIES.items():
        seconds, fetched = _of_policy(stored, policy)
        rows.append(
            [
                name,
                shown(seconds, ".2f"),
                times(ratio(base[0], seconds)),
                shown(fetched, ",.0f"),
                times(ratio(base[1], fetched)),
            ]
        )
    found = stored.read("papers").get("parts", {}).get("partitions")
    where = "not measured yet"
    if found is not None:
        where = f"4 ranks, {found['network']} links, a generated graph of {found['graph']['nodes']:,} nodes"
    return Compared(
        "The ablation of partitions",
        "Published: on products METIS with several constraints gains 4 % over METIS's default, which is "
        "faster than random parts; on papers100M the default is slower than random parts, because "
        f"training nodes are uneven. Seconds are only drawn. Ours: {where}, minibatches one at a time; "
        "rows and ids that ranks exchange for features in an epoch. Our policies balance nodes, edges "
        "and training nodes.",
        ["owners", "seconds per epoch", "times as fast", "rows", "times fewer"],
        rows,
    )


def _cuts(stored: Stored) -> Compared:
    sides = [("multilevel", 4), ("METIS", 1), ("ldg", 4)]
    found = [
        (int(one["graph"]), one["constraints"], sides.index((one["side"], one["ranks"])), one)
        for one in stored.read("partitioning").get("partitioning", [])
        if one["parts"] == 4 and (one["side"], one["ranks"]) in sides and one["graph"].isdigit()
    ]
    rows = []
    for *_, one in sorted(found, key=lambda case: case[:3]):
        figures = one["of_ranks"][0]
        balance = [f"{figures['balance'][name]:.3f}" for name in ("nodes", "edges", "train")]
        name = (
            f"{int(one['graph']):,} nodes, {one['side']}, balanced: {one['constraints'].replace('_', ', ')}"
        )
        rows.append([name, f"{100 * figures['edge_cut']:.2f} %", *balance])
    return Compared(
        "One constraint and several",
        "The edge cut of 4 parts, and the largest part over the mean by nodes, edges and training nodes. "
        "The slides have no figures for it. Ours: generated graphs.",
        ["", "edge cut", "nodes", "edges", "training nodes"],
        rows or [[DASH] * 5],
    )


def panels(stored: Stored) -> Sequence[Panel]:
    """Draws the gains over the peer and of partitions."""
    gains = _gains(stored)
    base = _of_policy(stored, "random")
    by_policy = {policy: _of_policy(stored, policy) for policy in POLICIES}
    return [
        Panel(
            "against the peer (Euler; DistDGL)",
            "times as fast",
            [
                Bar("epoch", published.OVER_EULER, gains["an epoch"]),
                Bar("copying", published.COPY_OVER_EULER, None),
                Bar("sampling", published.SAMPLE_OVER_EULER, None),
                Bar("both", None, gains["preparing minibatches"]),
            ],
        ),
        Panel(
            "partitions: feature rows exchanged",
            "times fewer than random owners",
            [Bar(policy, None, ratio(base[1], found[1])) for policy, found in by_policy.items()],
        ),
    ]


SOURCE = Source("distdgl", "DistDGL (Zheng et al. 2020)", tables, panels)
