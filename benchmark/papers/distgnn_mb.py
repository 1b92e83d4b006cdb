"""DistGNN-MB: one socket, scaling, historical embeddings and accuracy."""

from __future__ import annotations

from collections.abc import Sequence

from benchmark.papers import published
from benchmark.papers.section import Bar, Compared, Panel, Source
from benchmark.papers.stored import DASH, Stored, ratio, times
from benchmark.planning.published import distgnn
from benchmark.support.rounds import typical
from benchmark.support.tables import Result, of_ranks


def tables(stored: Stored) -> Sequence[Compared]:
    """Returns the tables of the paper's section 4."""
    return [_one_socket(stored), _embeddings(stored), _accuracy(stored), _scaling(stored)]


def _step_gain(stored: Stored, model: str) -> float | None:
    return stored.gain("training-products-like", "DGL", "ours", model=model, threads=1, malloc="kept")


def _update_gain(stored: Stored) -> float | None:
    """Returns how many times as fast the fused update of a layer is as torch's."""
    cases = stored.read("layers-products").get("cases", {}).get("1", [])
    name = "linear 256 to 256, ReLU, dropout"
    seconds = {
        one["by"]: one["seconds"] for one in cases if one["name"] == name and one["dtype"] == "float32"
    }
    return ratio(seconds.get("torch"), seconds.get("ours, fused"))


def _one_socket(stored: Stored) -> Compared:
    rows = [
        [
            f"a step of {model.upper()}, {graph}",
            f"{gain:.1f}x",
            times(_step_gain(stored, model) if graph == "products" else None),
        ]
        for (model, graph), gain in published.ONE_SOCKET.items()
    ]
    gain = published.UPDATE_GAIN["products"]
    rows.append(["UPDATE of SAGE, products", f"{100 * gain:.0f} % less", times(_update_gain(stored))])
    return Compared(
        "Figure 2: one socket against DGL",
        "Published: 40 cores, DGL 0.8 as the baseline, minibatches of 1,000; UPDATE is the share of time "
        "that it gains. Ours: one thread, DGL 1.1.3, minibatches of 1,024, a graph of the size of "
        "products; the last line is a product with ReLU and dropout alone, against torch.",
        ["times as fast as DGL", "published", "ours"],
        rows,
    )


def _variant(stored: Stored, dataset: str, ranks: int, name: str = "paper") -> Result | None:
    variants = stored.read("historical").get("datasets", {}).get(dataset, {}).get("variants", [])
    return next((one for one in variants if (one["ranks"], one["variant"]) == (ranks, name)), None)


def _measured(stored: Stored) -> list[tuple[str, int, Result]]:
    """Returns the runs with the paper's settings, by data set and ranks."""
    found = stored.read("historical").get("datasets", {})
    return [
        (name, ranks, one) for name in found for ranks in (2, 4) if (one := _variant(stored, name, ranks))
    ]


def _embeddings(stored: Stored) -> Compared:
    rows = [["papers100M, 64 ranks, published", *(f"{100 * rate:.0f}" for rate in published.HIT_RATES)]]
    for name, ranks, one in _measured(stored):
        rates = [f"{100 * rate:.0f}" for rate in one["hit_rates"]]
        rows.append([f"{name}, {ranks} ranks, ours", *rates, *[DASH] * (3 - len(rates))])
    return Compared(
        "Section 4.4: hit rates of the historical embedding caches",
        "Per cent of the halo nodes that a minibatch needs, by layer, with cs = 1M, ls = 2, nc = 2,000 and "
        "d = 1. Ours fetches features once, so all are there at the first layer. Our graphs are small: a "
        "minibatch reaches much of a part, and owners push most of what a peer needs.",
        ["", "layer 1", "layer 2", "layer 3"],
        rows,
    )


def _accuracy(stored: Stored) -> Compared:
    rows = [
        [f"{name}, published target", f"{accuracy:.1f}", f"at most {published.ALLOWED_POINTS:.0f} below"]
        for name, accuracy in published.TARGETS.items()
    ]
    for name, ranks, one in _measured(stored):
        difference = f"{one['mean_difference']:+.2f}"
        alone = one["mean"] - one["mean_difference"]
        rows.append([f"SAGE, {name}, {ranks} ranks, ours", f"{alone:.2f}", difference])
    return Compared(
        "Table 3: accuracy with historical embeddings",
        "Test accuracy of one process in per cent, and the points by which ranks differ. Published: up to "
        "64 ranks, more epochs on ranks than alone. Ours: real graphs of 7,650 (amazon_photo) and 22,470 "
        "nodes (facebook_pages) and a generated one of 8,000, the same epochs everywhere, 5 paired seeds.",
        ["", "one process, %", "ranks"],
        rows,
    )


def _cpu_seconds(stored: Stored, ranks: int) -> float | None:
    """Returns the CPU seconds of an epoch, all ranks together."""
    entries = stored.chosen("ranks-arxiv", "scaling", ranks=ranks)
    return typical(sum(of_ranks(one, "cpu")) for one in entries) if entries else None


def _scaling(stored: Stored) -> Compared:
    (first, _), (epoch, exact) = distgnn(4), distgnn(64)
    rows = [[name, f"{speedup:.1f}x", DASH] for name, speedup in published.SCALING.items()]
    rows[0][-1] = f"{first / epoch:.1f}x (planner)"
    one, four = (_cpu_seconds(stored, ranks) for ranks in (1, 4))
    share = ratio(one, four)
    line = ["exact mode, arxiv, 1 to 4 ranks, if each had its core", DASH]
    rows.append([*line, times(None if share is None else 4 * share)])
    over = published.OVER_DISTDGL
    rows.append(["an epoch against DistDGL, 64 ranks", f"{over:.1f}x", f"{exact / epoch:.1f}x (planner)"])
    seconds = f"{published.PAPERS_EPOCH['SAGE']:.1f} s"
    rows.append(["an epoch of SAGE, papers100M, 64 ranks", seconds, f"{epoch:.2f} s (planner)"])
    rows.append(["largest imbalance of SAGE", f"{100 * published.LOAD_IMBALANCE['SAGE']:.0f} %", DASH])
    return Compared(
        "Figures 3 to 5: scaling",
        "Published: sockets of 36 cores, HDR InfiniBand; 2.0 s per epoch of papers100M for SAGE and 4.9 s "
        "for GAT on 64 ranks. Ours: the planner's model of that cluster, which does not know that ranks wait "
        "for each other (benchmark/planning/PUBLISHED.md); against DistDGL it compares with the exact "
        "mode at B = 1. The line of arxiv is what the CPU seconds of all ranks leave of four times.",
        ["times as fast", "published", "ours"],
        rows,
    )


def panels(stored: Stored) -> Sequence[Panel]:
    """Draws steps on one socket, hit rates and accuracy."""
    measured = _measured(stored)
    dataset, ranks, one = max(measured, key=lambda found: found[1]) if measured else ("", 0, None)
    rates = [] if one is None else one["hit_rates"]
    title = "hits of historical embedding caches"
    title += f"\nours: {dataset}, {ranks} ranks" if one else ""
    hits = [
        Bar(f"layer {at + 1}", rate, rates[at] if at < len(rates) else None)
        for at, rate in enumerate(published.HIT_RATES)
    ]
    steps = [
        Bar(model.upper(), published.ONE_SOCKET[model, "products"], _step_gain(stored, model))
        for model in ("sage", "gat")
    ]
    return [
        Panel("a step on one socket, products", "times as fast as DGL", steps),
        Panel(title, "share of searched rows", hits),
    ]


SOURCE = Source("distgnn_mb", "DistGNN-MB (Md et al. 2022)", tables, panels)
