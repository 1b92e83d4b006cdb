"""FastSample: the fused sampling kernel and hybrid partitioning."""

from __future__ import annotations

from collections.abc import Sequence

from benchmark.papers import published
from benchmark.papers.section import Bar, Compared, Panel, Source
from benchmark.papers.stored import DASH, Stored, quiet, ratio, shown, times
from benchmark.support.rounds import typical
from benchmark.support.tables import of_ranks


def tables(stored: Stored) -> Sequence[Compared]:
    """Returns the tables of figures 5 and 6."""
    return [_kernel(stored), _hybrid(stored)]


def _kernel_gains(stored: Stored) -> dict[str, float | None]:
    sampling = {"threads": 1, "malloc": "default"}
    step = {"model": "sage", "threads": 1, "malloc": "kept"}
    unfused, fused = "DGL sample + to_block", "DGL fused"
    return {
        "sampling: DGL's fused kernel over its unfused one": stored.gain(
            "sampling-products-like", unfused, fused, **sampling
        ),
        "sampling: ours over DGL's unfused one": stored.gain(
            "sampling-products-like", unfused, "ours", **sampling
        ),
        "sampling: ours over DGL's fused one": stored.gain(
            "sampling-products-like", fused, "ours", **sampling
        ),
        "a step of SAGE: ours over DGL's": stored.gain("training-products-like", "DGL", "ours", **step),
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


def _seconds(stored: Stored, setting: str) -> float | None:
    entries = quiet(stored.chosen("papers", "hybrid", setting=setting))
    return typical(max(of_ranks(one, "wall")) for one in entries) if entries else None


def _hybrid_gain(stored: Stored, phase: str) -> float | None:
    return ratio(*(_seconds(stored, f"{setting}, {phase}") for setting in ("vanilla", "hybrid")))


def _hybrid(stored: Stored) -> Compared:
    rows = []
    for phase, theirs in (("sampling and features", DASH), ("training", f"up to {published.HYBRID:.1f}x")):
        seconds = [_seconds(stored, f"{setting}, {phase}") for setting in ("vanilla", "hybrid")]
        entries = [
            stored.chosen("papers", "hybrid", setting=f"{one}, {phase}") for one in ("vanilla", "hybrid")
        ]
        rounds = [shown(of_ranks(one[0], "topology", "rounds")[0] if one else None, ".0f") for one in entries]
        gain = times(_hybrid_gain(stored, phase))
        rows.append([f"hybrid, {phase}", theirs, *(shown(one, ".2f") for one in seconds), *rounds, gain])
    both = f"almost {published.HYBRID_FUSED:.0f}x"
    rows.append(["hybrid with the fused kernel, training, 8 machines", both, *[DASH] * 5])
    found = stored.read("papers").get("parts", {}).get("hybrid")
    where = "not measured yet"
    if found is not None:
        where = f"4 ranks, {found['network']} links, a generated graph of {found['graph']['nodes']:,} nodes"
    header = ["", "published", "ours: vanilla, s", "hybrid, s", "vanilla: topology rounds", "hybrid"]
    return Compared(
        "Figure 6: hybrid partitioning",
        "Times as fast as vanilla training. Published: products and papers100M on machines with links of "
        f"200 Gbit/s; seconds are only drawn. Ours: {where}, minibatches one at a time (B = 1). All of "
        "ours sample with the fused kernel, so the paper's third bar has no line of its own here.",
        [*header, "times as fast"],
        rows,
    )


def panels(stored: Stored) -> Sequence[Panel]:
    """Draws the gains of the kernel and of hybrid partitioning."""
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
                Bar("training", published.HYBRID, _hybrid_gain(stored, "training")),
                Bar("sampling, and features", None, _hybrid_gain(stored, "sampling and features")),
            ],
        ),
    ]


SOURCE = Source("fastsample", "FastSample (Mostafa et al. 2023)", tables, panels)
