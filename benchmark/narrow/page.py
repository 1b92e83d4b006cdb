"""The tables and the plot of rows of one byte."""

from __future__ import annotations

from collections.abc import Callable
from statistics import fmean
from typing import Any

from benchmark.networks.recipe import TITLES
from benchmark.support.plots import OURS_COLOUR, PEER_COLOUR, subplots
from benchmark.support.tables import Result, markdown, paragraph, typical

#: What a form is compared with, by part.
_AGAINST = {"loading": "float32", "steps": "bfloat16"}
_ASKED = {"loading": {"int8": 0.8, "int8, bfloat16": 0.65}, "steps": {"int8": 1.0, "int8, bfloat16": 1.0}}


def table(result: Result) -> str:
    """Returns the tables of the parts that were measured."""
    parts = result["parts"]
    texts = [show(parts[name]["series"]) for name, show in _SHOWN.items() if name in parts]
    missing = ", ".join(name for name in _SHOWN if name not in parts)
    return "\n\n".join([*texts, *([paragraph(f"Not measured: {missing}.")] if missing else [])])


def plot(result: Result) -> Any:
    """Draws the paired differences of accuracy and their lower bounds."""
    figure, ((axes,),) = subplots(figsize=(9, 3.2))
    found = result["parts"].get("accuracy", {}).get("series", [])
    names = [f"{one['setting']}\n{TITLES[one['model']]}" for one in found]
    axes.bar(names, [one["mean_difference"] for one in found], color=OURS_COLOUR, label="mean")
    axes.plot(
        names,
        [one["lower_95"] for one in found],
        "_",
        color=PEER_COLOUR,
        markersize=24,
        markeredgewidth=2,
        label="lower 95 % bound",
    )
    axes.axhline(-0.2, linewidth=0.8, color=PEER_COLOUR)
    axes.set(ylabel="points, int8 less float32")
    axes.tick_params(axis="x", labelsize=6)
    axes.legend(frameon=False, loc="lower center", bbox_to_anchor=(0.5, 1.0), ncols=2, markerscale=0.4)
    return figure


def _timed(part: str, series: list[Result]) -> str:
    against, rows = _AGAINST[part], list[list[str]]()
    for one in series:
        costs = {name: typical(found) for name, found in one["seconds"].items()}
        for name in [name for name in costs if not name.endswith(", written")]:
            asked, written = _ASKED[part].get(name), costs.get(f"{name}, written")
            what = ", ".join([*([TITLES[one["model"]]] if "model" in one else []), one["setting"]])
            limit = "" if asked is None else f"at most {asked}"
            if written and asked:
                limit += f" (least {(costs['none'] + written) / costs[against]:.2f})"
            ratio = costs[name] / costs[against]
            shown = "no features" if name == "none" else name
            rows.append([what, shown, f"{1e3 * costs[name]:,.1f}", f"{ratio:.2f}", limit])
    return markdown([f"{part}: ms per minibatch", "rows", "ms", f"over {against}", "asked"], rows)


def _wire(series: list[Result]) -> str:
    forms = {form: [one for one in series if one["form"] == form] for form in ("float32", "int8")}
    rows = []
    for form, found in forms.items():
        if found:
            received = fmean(one["features"]["bytes"] for one in found)
            seconds, per_row = typical(one["wall"] for one in found), fmean(one["row_bytes"] for one in found)
            rows.append([form, f"{per_row:,.0f}", f"{received / 1e6:,.1f}", f"{seconds:.2f}"])
    text = ""
    if all(forms.values()):
        times = [typical(one["wall"] for one in found) for found in forms.values()]
        text = f"\n\nSeconds of int8 over those of float32: {times[1] / times[0]:.2f}, asked at most 0.4."
    return markdown(["wire: 4 ranks, B = 1", "bytes of a row", "MB received", "seconds"], rows) + text


def _accuracy(series: list[Result]) -> str:
    rows = []
    for one in series:
        means = [f"{one['mean'][form]:.2f}" for form in ("int8", "float32")]
        found = f"{one['mean_difference']:+.2f}", f"{one['lower_95']:+.2f}"
        rows.append([f"{one['setting']}, {TITLES[one['model']]}", str(one["seeds"]), *means, *found])
    head = ["accuracy", "seeds", "int8 %", "float32 %", "mean difference", "lower 95 % bound"]
    text = paragraph("Asked: a mean loss of at most 0.2 points, and a lower bound of at least -0.5.")
    return f"{markdown(head, rows)}\n\n{text}"


_SHOWN: dict[str, Callable[[list[Result]], str]] = {
    "loading": lambda series: _timed("loading", series),
    "steps": lambda series: _timed("steps", series),
    "wire": _wire,
    "accuracy": _accuracy,
}
