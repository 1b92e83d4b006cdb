"""Katana Graph's article: epochs against DistDGL, preparation and bfloat16."""

from __future__ import annotations

from collections.abc import Sequence

from benchmark.papers import published
from benchmark.papers.section import Bar, Compared, Panel, Source
from benchmark.papers.stored import DASH, Seconds, Stored, part, ratio, shown, times

MODELS = ("sage", "gcn", "gin", "gat")


def tables(stored: Stored) -> Sequence[Compared]:
    """Returns the tables of the article's results."""
    return [_against_distdgl(stored), _bfloat16(stored), _scaling(stored)]


def _gains(stored: Stored) -> dict[str, float | None]:
    theirs, ours = (
        Seconds.of(stored.chosen("ranks-arxiv", "dist_dgl", setting=setting))
        for setting in ("DistDGL", "B = all")
    )
    return {
        "epoch": ratio(part(theirs, "epoch"), part(ours, "epoch")),
        "preparation": ratio(part(theirs, "preparation"), part(ours, "preparation")),
        "forward": ratio(part(theirs, "forward"), part(ours, "forward")),
        "backward": ratio(part(theirs, "backward"), part(ours, "backward")),
    }


def _against_distdgl(stored: Stored) -> Compared:
    told = {"epoch": f"{published.KATANA_EPOCH:.1f}x", "preparation": f"{published.KATANA_PREPARATION:.1f}x"}
    rows = [[name, told.get(name, DASH), times(gain)] for name, gain in _gains(stored).items()]
    return Compared(
        "Against DistDGL",
        "SAGE of 3 layers and 256 columns. Published: papers100M, 16 ranks on 4th-generation Xeon, "
        "DistDGL 0.9.0; forward and backward are only drawn. Ours: 2 hosts of one core, a graph of the "
        "size of arxiv, DGL 1.1.3, B = all.",
        ["times as fast", "published", "ours"],
        rows,
    )


def _bfloat16_gain(stored: Stored, graph: str, model: str, threads: int) -> float | None:
    chosen = {"model": model, "threads": threads, "malloc": "kept"}
    return stored.gain(f"training-{graph}", "ours", "ours, bfloat16", **chosen)


def _bfloat16(stored: Stored) -> Compared:
    rows = [
        [f"{model}, {graph}", *(times(_bfloat16_gain(stored, graph, model, threads)) for threads in (1, 2))]
        for graph in ("arxiv", "products")
        for model in MODELS
    ]
    return Compared(
        "bfloat16",
        "Times as fast as float32, a step with sampling and features on one process. The article only "
        "draws its figure, for SAGE over ranks: features of half the size, and the matrix units of the "
        "processor. Ours: no such units, but vector products of bfloat16.",
        ["", "1 thread", "2 threads"],
        rows,
    )


def _scaling(stored: Stored) -> Compared:
    rows = []
    for graph in ("arxiv", "products"):
        for ranks in (1, 2, 4):
            entries = stored.chosen(f"ranks-{graph}", "scaling", ranks=ranks)
            if entries:
                cpu = stored.total(entries, "cpu")
                minibatches = entries[0]["of_ranks"][0]["minibatches"]
                rows.append(
                    [f"{graph}, {ranks} rank{'s' * (ranks > 1)}", f"{minibatches}", shown(cpu, ".1f")]
                )
    return Compared(
        "Scaling",
        "The article draws the speedup over DistDGL on 4 to 16 ranks, and is faster on all of them. Ours: "
        "CPU seconds of all ranks for the same epoch, which ranks of their own cores would share.",
        ["", "minibatches per rank", "CPU seconds"],
        rows or [[DASH] * 3],
    )


def panels(stored: Stored) -> Sequence[Panel]:
    """Draws the gains over DistDGL and of bfloat16."""
    gains = _gains(stored)
    halves = [Bar(model, None, _bfloat16_gain(stored, "products", model, 1)) for model in MODELS]
    return [
        Panel(
            "against DistDGL",
            "times as fast",
            [
                Bar("epoch", published.KATANA_EPOCH, gains["epoch"]),
                Bar("preparation", published.KATANA_PREPARATION, gains["preparation"]),
            ],
        ),
        Panel("bfloat16, products, one thread", "times as fast as float32", halves),
    ]


SOURCE = Source("katana", "Katana Graph's article (2023)", tables, panels)
