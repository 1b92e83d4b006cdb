"""DistDGL, DistGNN-MB, FastSample and Katana Graph's article, with this package's figures."""

from __future__ import annotations

from collections.abc import Sequence

from benchmark.papers import published
from benchmark.papers.forecasts import distgnn
from benchmark.papers.page import (
    DASH,
    Bar,
    Compared,
    Panel,
    Source,
    Stored,
    epoch_parts,
    quiet,
    ratio,
    shown,
    times,
    where,
)
from benchmark.support.tables import Result, over_rounds, typical

MODELS = ("sage", "gcn", "gin", "gat")


def over_dist_dgl(stored: Stored, *parts: str) -> dict[str, float | None]:
    """Returns how many times as fast ours is as DistDGL in parts of an epoch."""
    theirs, ours = (
        epoch_parts(stored.chosen("ranks-arxiv", "dist_dgl", setting=setting))
        for setting in ("DistDGL", "B = all")
    )
    return {name: ratio(theirs.get(name), ours.get(name)) for name in parts}


POLICIES = {"random": "random", "ldg": "ldg, one pass", "multilevel": "multilevel, as METIS"}


def _euler(stored: Stored) -> Compared:
    gains = over_dist_dgl(stored, "epoch", "preparation")
    rows = [
        ["an epoch", f"{published.OVER_EULER:.1f}x", times(gains["epoch"])],
        ["copying data", f"{published.COPY_OVER_EULER:.0f}x", DASH],
        ["sampling", f"{published.SAMPLE_OVER_EULER:.0f}x", DASH],
        ["copying and sampling", DASH, times(gains["preparation"])],
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
    seconds = {name: typical(found) for name, found in stored.read("embeddings").get("seconds", {}).items()}
    ours, torchs = seconds.get("ours"), [seconds[name] for name in ("sparse", "dense") if name in seconds]
    return {"torch's": ratio(min(torchs, default=None), ours), "DistDGL's": ratio(seconds.get("dgl"), ours)}


def _learned_embeddings(stored: Stored) -> Compared:
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
    entries = stored.chosen("papers", "partitions", setting=policy)
    return epoch_parts(entries).get("epoch"), stored.total(entries, "features", "rows")


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
    return Compared(
        "The ablation of partitions",
        "Published: on products METIS with several constraints gains 4 % over METIS's default, which is "
        "faster than random parts; on papers100M the default is slower than random parts, because "
        f"training nodes are uneven. Seconds are only drawn. Ours: {where(stored, 'partitions')}, "
        "minibatches one at a time; rows and ids that ranks exchange for features in an epoch. Our "
        "policies balance nodes, edges and training nodes.",
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
        balance = [f"{one['balance'][name]:.3f}" for name in ("nodes", "edges", "train")]
        name = (
            f"{int(one['graph']):,} nodes, {one['side']}, balanced: {one['constraints'].replace('_', ', ')}"
        )
        rows.append([name, f"{100 * one['edge_cut']:.2f} %", *balance])
    return Compared(
        "One constraint and several",
        "The edge cut of 4 parts, and the largest part over the mean by nodes, edges and training nodes. "
        "The slides have no figures for it. Ours: generated graphs.",
        ["", "edge cut", "nodes", "edges", "training nodes"],
        rows or [[DASH] * 5],
    )


def _distdgl_panels(stored: Stored) -> Sequence[Panel]:
    gains = over_dist_dgl(stored, "epoch", "preparation")
    base = _of_policy(stored, "random")
    by_policy = {policy: _of_policy(stored, policy) for policy in POLICIES}
    return [
        Panel(
            "against the peer (Euler; DistDGL)",
            "times as fast",
            [
                Bar("epoch", published.OVER_EULER, gains["epoch"]),
                Bar("copying", published.COPY_OVER_EULER, None),
                Bar("sampling", published.SAMPLE_OVER_EULER, None),
                Bar("both", None, gains["preparation"]),
            ],
        ),
        Panel(
            "partitions: feature rows exchanged",
            "times fewer than random owners",
            [Bar(policy, None, ratio(base[1], found[1])) for policy, found in by_policy.items()],
        ),
    ]


_DISTDGL_TABLES = (_euler, _learned_embeddings, _ablation, _cuts)
DISTDGL = Source("distdgl", "DistDGL (Zheng et al. 2020)", _DISTDGL_TABLES, _distdgl_panels)


def _step_gain(stored: Stored, model: str) -> float | None:
    return stored.gain("training-products-like", "DGL", "ours", model=model, threads=1, malloc="kept")


def _update_gain(stored: Stored) -> float | None:
    entries = {one["setting"]: one["wall"] for one in stored.series("papers", "update")}
    return ratio(entries.get("torch"), entries.get("ours"))


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
    found = stored.read("historical").get("datasets", {})
    return [
        (name, ranks, one) for name in found for ranks in (2, 4) if (one := _variant(stored, name, ranks))
    ]


def _hit_rates(stored: Stored) -> Compared:
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
    entries = stored.chosen("ranks-arxiv", "scaling", ranks=ranks)
    return over_rounds(entries, "cpu") if entries else None


def _distgnn_scaling(stored: Stored) -> Compared:
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
        "for each other (benchmark/pages/forecasts.md); against DistDGL it compares with the exact "
        "mode at B = 1. The line of arxiv is what the CPU seconds of all ranks leave of four times.",
        ["times as fast", "published", "ours"],
        rows,
    )


def _distgnn_panels(stored: Stored) -> Sequence[Panel]:
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


_DISTGNN_TABLES = (_one_socket, _hit_rates, _accuracy, _distgnn_scaling)
DISTGNN_MB = Source("distgnn_mb", "DistGNN-MB (Md et al. 2022)", _DISTGNN_TABLES, _distgnn_panels)


def _kernel_gains(stored: Stored) -> dict[str, float | None]:
    def sampling(peer: str, ours: str) -> float | None:
        return stored.gain("sampling-products-like", peer, ours, threads=1, malloc="default")

    unfused, fused = "DGL sample + to_block", "DGL fused"
    return {
        "sampling: DGL's fused kernel over its unfused one": sampling(unfused, fused),
        "sampling: ours over DGL's unfused one": sampling(unfused, "ours"),
        "sampling: ours over DGL's fused one": sampling(fused, "ours"),
        "a step of SAGE: ours over DGL's": _step_gain(stored, "sage"),
    }


def _kernel(stored: Stored) -> Compared:
    low, high = published.FUSED_TRAINING
    told = {
        "sampling: DGL's fused kernel over its unfused one": f"up to {published.FUSED_SAMPLING:.0f}x",
        "a step of SAGE: ours over DGL's": f"{low:.2f}x to {high:.2f}x",
    }
    rows = [[name, told.get(name, DASH), times(gain)] for name, gain in _kernel_gains(stored).items()]
    return Compared(
        "Figure 5: the fused sampling kernel",
        "Published: one 2-socket machine, papers100M, over DGL's unfused kernels, batches of 1,024 to "
        "10,240; DGL has had that kernel since. Ours: one thread, a graph of the size of products, "
        "batches of 1,024. In the paper only the kernel changes; in our step layers differ too.",
        ["times as fast", "published", "ours"],
        rows,
    )


def _hybrid_entries(stored: Stored, phase: str) -> list[list[Result]]:
    """Returns the rounds of a phase in parts, and with the topology on every rank."""
    return [stored.chosen("papers", "hybrid", setting=f"{one}, {phase}") for one in ("vanilla", "hybrid")]


def _hybrid_seconds(stored: Stored, phase: str) -> list[float | None]:
    known = map(quiet, _hybrid_entries(stored, phase))
    return [over_rounds(entries, "wall") if entries else None for entries in known]


def _hybrid(stored: Stored) -> Compared:
    rows = []
    for phase, theirs in (("sampling and features", DASH), ("training", f"up to {published.HYBRID:.1f}x")):
        seconds, entries = _hybrid_seconds(stored, phase), _hybrid_entries(stored, phase)
        rounds = [shown(one[0]["topology"]["rounds"] if one else None, ".0f") for one in entries]
        gain = times(ratio(*seconds))
        rows.append([f"hybrid, {phase}", theirs, *(shown(one, ".2f") for one in seconds), *rounds, gain])
    both = f"almost {published.HYBRID_FUSED:.0f}x"
    rows.append(["hybrid with the fused kernel, training, 8 machines", both, *[DASH] * 5])
    header = ["", "published", "ours: vanilla, s", "hybrid, s", "vanilla: topology rounds", "hybrid"]
    return Compared(
        "Figure 6: hybrid partitioning",
        "Times as fast as vanilla training. Published: products and papers100M on machines with links of "
        f"200 Gbit/s; seconds are only drawn. Ours: {where(stored, 'hybrid')}, minibatches one at a "
        "time (B = 1). All of ours sample with the fused kernel, so the paper's third bar has no line "
        "of its own here.",
        [*header, "times as fast"],
        rows,
    )


def _fastsample_panels(stored: Stored) -> Sequence[Panel]:
    gains = _kernel_gains(stored)
    return [
        Panel(
            "sampling on one machine",
            "times as fast as DGL's unfused kernel",
            [
                Bar("fused kernel", published.FUSED_SAMPLING, gains["sampling: ours over DGL's unfused one"]),
                Bar("DGL's fused kernel", None, gains["sampling: DGL's fused kernel over its unfused one"]),
            ],
        ),
        Panel(
            "hybrid partitioning",
            "times as fast as vanilla",
            [
                Bar("training", published.HYBRID, ratio(*_hybrid_seconds(stored, "training"))),
                Bar("sampling, and features", None, ratio(*_hybrid_seconds(stored, "sampling and features"))),
            ],
        ),
    ]


FASTSAMPLE = Source("fastsample", "FastSample (Mostafa et al. 2023)", (_kernel, _hybrid), _fastsample_panels)


def _against_distdgl(stored: Stored) -> Compared:
    told = {"epoch": f"{published.KATANA_EPOCH:.1f}x", "preparation": f"{published.KATANA_PREPARATION:.1f}x"}
    rows = [
        [name, told.get(name, DASH), times(gain)]
        for name, gain in over_dist_dgl(stored, "epoch", "preparation", "forward", "backward").items()
    ]
    return Compared(
        "Against DistDGL",
        "SAGE of 3 layers and 256 columns. Published: papers100M, 16 ranks on 4th-generation Xeon, "
        "DistDGL 0.9.0; forward and backward are only drawn. Ours: 2 hosts of one core, a graph of the "
        "size of arxiv, DGL 1.1.3, B = all.",
        ["times as fast", "published", "ours"],
        rows,
    )


def _bfloat16_gain(stored: Stored, model: str) -> float | None:
    chosen = {"model": model, "threads": 1, "malloc": "kept"}
    return stored.gain("training-products-like", "ours", "ours, bfloat16", **chosen)


def _bfloat16(stored: Stored) -> Compared:
    rows = [[f"{model}, products", times(_bfloat16_gain(stored, model))] for model in MODELS]
    return Compared(
        "bfloat16",
        "Times as fast as float32, a step with sampling and features on one process. The article only "
        "draws its figure, for SAGE over ranks: features of half the size, and the matrix units of the "
        "processor. Ours: no such units, but vector products of bfloat16; a graph of the size of products.",
        ["", "1 thread"],
        rows,
    )


def _katana_scaling(stored: Stored) -> Compared:
    rows = []
    for graph in ("arxiv", "products"):
        for ranks in (1, 2, 4):
            entries = stored.chosen(f"ranks-{graph}", "scaling", ranks=ranks)
            if entries:
                cpu = entries[0]["cpu"]
                minibatches = entries[0]["minibatches"]
                rows.append(
                    [f"{graph}, {ranks} rank{'s' * (ranks > 1)}", f"{minibatches:.0f}", shown(cpu, ".1f")]
                )
    return Compared(
        "Scaling",
        "The article draws the speedup over DistDGL on 4 to 16 ranks, and is faster on all of them. Ours: "
        "CPU seconds of all ranks for the same epoch, which ranks of their own cores would share.",
        ["", "minibatches per rank", "CPU seconds"],
        rows or [[DASH] * 3],
    )


def _katana_panels(stored: Stored) -> Sequence[Panel]:
    gains = over_dist_dgl(stored, "epoch", "preparation")
    halves = [Bar(model, None, _bfloat16_gain(stored, model)) for model in MODELS]
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


_KATANA_TABLES = (_against_distdgl, _bfloat16, _katana_scaling)
KATANA = Source("katana", "Katana Graph's article (2023)", _KATANA_TABLES, _katana_panels)
