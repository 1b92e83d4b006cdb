"""The tables and the plot of rows on disk."""

from __future__ import annotations

from collections.abc import Callable
from statistics import fmean, median
from typing import Any

from benchmark.support.cli import Series
from benchmark.support.plots import OURS_COLOUR, PEER_COLOUR, subplots
from benchmark.support.tables import Result, markdown, paragraph

_GIB, _GB = 1 << 30, 1e9
#: Lines of what was asked and seen, and the text of a part.
Shown = tuple[list[list[str]], str]


def table(result: Result) -> str:
    """Returns what was asked and seen, and what each part that was measured says."""
    parts = result["parts"]
    shown = [show(parts) for name, show in _SHOWN.items() if name in parts]
    missing = ", ".join(name for name in _SHOWN if name not in parts)
    texts = [text for _, text in shown] + ([paragraph(f"Not measured: {missing}.")] if missing else [])
    lines = [line for asked, _ in shown for line in asked]
    return "\n\n".join([markdown(["", "asked", "seen"], lines), *texts])


def plot(result: Result) -> Any:
    """Draws the bytes that an epoch reads by budget: predicted, and read where it ended."""
    figure, ((axes,),) = subplots(figsize=(6, 3.2))
    found = [one for one in result["parts"].get("budgets", {}).get("series", []) if one["forecast"]]
    predicted = [(one["loader_budget"], one["forecast"]["bytes"]) for one in found]
    read = [(one["loader_budget"], one["stats"]["disk_bytes"]) for one in found if _is_whole(one)]
    for name, points, colour in (("predicted", predicted, PEER_COLOUR), ("read", read, OURS_COLOUR)):
        at, height = [one / _GIB for one, _ in points], [one / _GB for _, one in points]
        axes.plot(at, height, "o-", color=colour, label=name)
    axes.set(xlabel="memory budget of the loader, GiB", ylabel="GB read in an epoch", ylim=(0, None))
    axes.legend(frameon=False)
    return figure


def _is_whole(one: Series) -> bool:
    return bool(one["steps"] == one["epoch"])


def _per_step(one: Series) -> float:
    return float(one["seconds"] / one["steps"])


def _useful(one: Series) -> str:
    return f"{one['stats']['disk_useful'] / max(1, one['stats']['disk_bytes']):.2f}"


def _sizes(one: Series) -> str:
    period = one["forecast"]["period"] if one["forecast"] else "-"
    return f"{one['macrobatch']}, {one['fetch']}, {period}"


def bounds(one: Series) -> tuple[float, float]:
    """Returns the seconds that an epoch takes at least: the same steps with rows held; its bytes at
    the sequential rate of the same run, the mean of before and after."""
    read = one["read"]
    return _per_step(one["held"]) * read["steps"], read["stats"]["disk_bytes"] / fmean(one["rates"])


def _epoch(parts: Result) -> Shown:
    series, budget = parts["epoch"]["series"], parts["epoch"]["settings"]["memory_budget"]
    reads = [one["read"] for one in series]
    names = _names(len(series))
    parts_of = "" if _is_whole(reads[0]) else f", {reads[0]['steps']:,} of {reads[0]['epoch']:,} steps"
    larger = "the larger of the same steps with rows held and its bytes at the sequential rate"
    over = [one["read"]["seconds"] / max(bounds(one)) for one in series]
    rate = fmean(rate for one in series for rate in one["rates"]) / _GB
    seconds, peak = max(one["seconds"] for one in reads), max(one["peak"] for one in reads) / _GIB
    pages = max(one["cached_before"] + one["cached_after"] for one in reads)
    which = f"the mean of {len(over)} epochs" if len(over) > 1 else names[0]
    lines = [
        [f"{which}{parts_of}, over {larger}", "at most 1.25", f"{fmean(over):.2f}"],
        ["each of them", "", ", ".join(f"{one:.2f}" for one in over)],
        [
            f"seconds of the longest epoch{parts_of}",
            "at most 300 at 1.2 GB/s",
            f"{seconds:,.0f} at {rate:.2f} GB/s",
        ],
        ["peak memory of the process, GiB", f"at most {budget:g}", f"{peak:.1f}"],
        ["pages of the feature file in the page cache, before and after", "0", f"{pages:,}"],
    ]
    forecast, stats = reads[0]["forecast"], reads[0]["stats"]
    for name, seen in (("bytes", "disk_bytes"), ("seconds", "disk_seconds")):
        if forecast and _is_whole(reads[0]):
            off = f"{100 * (forecast[name] / stats[seen] - 1):+.0f} %"
            lines.append([f"forecast of the {name} of reading, against those seen", "within 20 %", off])
    figures = [_figures(one) for one in series]
    rows = [[name, *(one[name] for one in figures)] for name in figures[0]]
    return lines, markdown(["", *names], rows)


def _names(epochs: int) -> list[str]:
    if epochs == 1:
        return ["the only epoch"]
    middle = [f"epoch {number}" for number in range(2, epochs)]
    return ["the first epoch", *middle, "the last epoch"]


def _figures(one: Series) -> dict[str, str]:
    read, stats, (held, sequential) = one["read"], one["read"]["stats"], bounds(one)
    return {
        "seconds, looking ahead and the first read included": f"{read['seconds']:.1f}",
        "seconds of the same steps with rows held": f"{held:.1f}",
        "seconds of its bytes at the sequential rate": f"{sequential:.1f}",
        "sequential rate before and after, GB/s": ", ".join(f"{rate / _GB:.2f}" for rate in one["rates"]),
        "seconds until the first minibatch": f"{read['first_batch']:.1f}",
        "of them looking ahead": f"{stats['ahead_seconds']:.1f}",
        "seconds of waiting, for the first one too": f"{read['waiting']:.1f}",
        "seconds of reading, beside training": f"{stats['disk_seconds']:.1f}",
        "GB read": f"{stats['disk_bytes'] / _GB:.1f}",
        "operations": f"{stats['disk_operations']:,}",
        "million rows read": f"{stats['disk_rows'] / 1e6:.1f}",
        "useful share of the bytes": _useful(read),
        "GiB for the loader": f"{read['loader_budget'] / _GIB:.1f}",
        "B, F, fetch groups of a sweep": _sizes(read),
        "peak, GiB: own, of files, shared": ", ".join(f"{n / _GIB:.1f}" for n in read["kinds"].values()),
        **{
            f"{name}: loss of the first and the last step": ", ".join(f"{loss:.3f}" for loss in side["loss"])
            for name, side in (("read", read), ("held", one["held"]))
        },
    }


def _budgets(parts: Result) -> Shown:
    head = ["without a model: GiB for the loader", "B, F, sweep", "minibatches", "GB read", "forecast"]
    head, rows = [*head, "useful", "seconds of reading", "forecast", "seconds", "peak, GiB"], []
    for one in parts["budgets"]["series"]:
        forecast = one["forecast"] or {"bytes": 0, "seconds": 0}
        row = [f"{one['loader_budget'] / _GIB:g}", _sizes(one), f"{one['steps']:,} of {one['epoch']:,}"]
        row += [f"{size / _GB:.1f}" for size in (one["stats"]["disk_bytes"], forecast["bytes"])]
        row += [_useful(one), f"{one['stats']['disk_seconds']:.1f}", f"{forecast['seconds']:.1f}"]
        rows.append([*row, f"{one['seconds']:.1f}", f"{one['peak'] / _GIB:.1f}"])
    return [], markdown(head, rows)


def _reads(parts: Result) -> Shown:
    reads = parts["reads"]["series"][0]["reads"]
    if not reads:
        return [], paragraph("Nothing was read: features fit the budget.")
    for one in reads:
        one["least"] = (one["least_before"] + one["least_after"]) / 2
    names = ("bytes", "useful", "seconds", "least", "least_before", "least_after")
    sums = {name: sum(one[name] for one in reads) for name in names}
    gaps = ", ".join(f"{gap / 1024:g}" for gap in sorted({one["gap"] for one in reads}))
    middle, count = median(one["seconds"] / one["least"] for one in reads), len(reads)
    what = f"time of {count} macrobatches' reads over the least that the cost model finds over all gaps"
    text = (
        f"{count} macrobatches' reads after the first pass, without a model: {sums['bytes'] / _GB:.1f} GB in "
        f"{sums['seconds']:.1f} s, a share of {sums['useful'] / sums['bytes']:.2f} useful, gaps of {gaps} "
        f"KiB. The least is the mean of {sums['least_before']:.1f} s by the rates of the disk before them "
        f"and {sums['least_after']:.1f} s by the rates right after. The median read takes {middle:.2f} "
        f"times the least."
    )
    return [[what, "at most 1.2", f"{sums['seconds'] / sums['least']:.2f}"]], paragraph(text)


def _pages(parts: Result) -> Shown:
    one = parts["pages"]["series"][0]
    alone = one["pages"] * 4096 * one["epoch"]
    epochs = [two["read"] for two in parts.get("epoch", {}).get("series", [])]
    read = [two["stats"]["disk_bytes"] for two in epochs if _is_whole(two)]
    times = f"{alone / max(read):.1f}" if any(read) else "-"
    what = "bytes if each minibatch read its rows alone in pages of 4 KiB, over those of an epoch"
    text = (
        f"Pages were counted for {one['sample']} minibatches: {one['pages']:,.0f} for {one['rows']:,.0f} "
        f"rows on average, so {alone / _GB:,.1f} GB for {one['epoch']:,} minibatches."
    )
    return [[what, "at least 8", times]], paragraph(text)


def _mapped(parts: Result) -> Shown:
    one, ours = parts["mapped"]["series"][0], "our loader over the mapping"
    times = f"{_times(one['mapping'], one['read']):,.0f}"
    lines = [[f"{ours}, time of the first steps over the reader's", "at least 10", times]]
    return lines, _first_steps({"reader": one["read"], ours: one["mapping"]})


def _peer(parts: Result) -> Shown:
    one, memory = parts["peer"]["series"][0], parts["peer"]["settings"]["memory"]
    of = f"{one['share']:.2f} of the nodes, {memory:.1f} GiB for each process"
    what = "time of the first minibatches over the reader's steps"
    line = [f"PyG's over the mapping, {of}, {what}", "at least 10", f"{_times(one['pyg'], one['read']):.1f}"]
    text = _first_steps(
        {f"{of}: reader": one["read"], f"{of}: PyG's NeighborLoader over the mapping, no steps": one["pyg"]}
    )
    return [line], text


def _times(one: Series, other: Series) -> float:
    return _per_step(one) / _per_step(other)


def _first_steps(sides: dict[str, Series]) -> str:
    numbers = [(name, one["steps"], one["seconds"]) for name, one in sides.items()]
    rows = [[name, f"{steps}", f"{took:.1f}", f"{took / steps:.2f}"] for name, steps, took in numbers]
    return markdown(["first steps, page cache emptied before", "steps", "seconds", "a step"], rows)


_EDGES = {
    "memory": "in memory",
    "mapping": "mapped, page cache emptied before",
    "emptied": "mapped, page cache emptied before each macrobatch",
    "file": "read from their file by hop",
}


def _edges(part: Result) -> Shown:
    steps, settings = part["series"][0]["steps"], part["settings"]
    head = [f"edges, without features, in {settings['memory']:.1f} GiB", "B", "first macrobatch, s"]
    head = [*head, "s of a minibatch", "of the last macrobatch"]
    head, rows = [*head, "GB read", "operations", "pages left in the cache", "GiB taken"], []
    for one in part["series"]:
        each, stats, size = one["each"], one["stats"], one["macrobatch"]
        row = [_EDGES[one["edges"]], f"{size}", f"{each[0]:.2f}"]
        row += [f"{seconds:.4f}" for seconds in (sum(each) / len(each) / size, each[-1] / size)]
        row += [f"{stats['topology_bytes'] / _GB:.1f}", f"{stats['topology_operations']:,}"]
        rows.append([*row, f"{one['cached_after']:,}", f"{one['peak'] / _GIB:.2f}"])
    budget = settings["edge_budget"]
    note = f"{steps} minibatches each; {budget:g} GiB for the loader where edges are read from their file."
    return [], f"{markdown(head, rows)}\n\n{paragraph(note)}"


def _fits(parts: Result) -> Shown:
    one = parts["fits"]["series"][0]
    middle = {name: median(found) for name, found in one["seconds"].items()}
    off = f"{100 * (middle['mapped'] / middle['tensor'] - 1):+.1f} %"
    rows = [[name, ", ".join(f"{took:.2f}" for took in found)] for name, found in one["seconds"].items()]
    text = markdown([f"a graph that fits: features, rounds of {one['steps']} steps", "seconds"], rows)
    return [["a graph that fits: mapped features over a tensor", "within 3 %", off]], text


def _sort(parts: Result) -> Shown:
    one = parts["sort"]["series"][0]
    text = (
        f"{one['edges'] / 1e6:,.0f} million edges in no order become CSC in {one['seconds']:.0f} s, "
        f"{one['edges per second'] / 1e6:.1f} million a second; a plain copy of the list takes "
        f"{one['seconds of a plain copy']:.0f} s. Memory beside the program: "
        f"{one['memory beside the program'] / _GIB:.2f} GiB of {one['memory budget']}."
    )
    return [], paragraph(text)


_SHOWN: dict[str, Callable[[Result], Shown]] = {
    **{"epoch": _epoch, "reads": _reads, "pages": _pages, "mapped": _mapped},
    **{"peer": _peer, "fits": _fits},
    **{"budgets": _budgets, "sort": _sort},
    "topology": lambda parts: _edges(parts["topology"]),
    "limited": lambda parts: _edges(parts["limited"]),
}
