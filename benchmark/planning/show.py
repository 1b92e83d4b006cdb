"""The table and the picture of the planner's predictions and the measured figures."""

from __future__ import annotations

from typing import Any

import matplotlib.pyplot as plt

from benchmark.support.tables import Result
from benchmark.support.tables import table as markdown

#: What is compared, by name in the results, and how it is shown.
COMPARED = {
    "rows": ("rows", 1.0, ",.0f"),
    "topology_bytes": ("topology MB", 1e6, ",.1f"),
    "feature_bytes": ("feature MB", 1e6, ",.1f"),
    "memory": ("memory MiB", 2.0**20, ",.0f"),
    "preparation": ("seconds", 1.0, ".2f"),
}


def name_of(setting: Result) -> str:
    """Returns a setting in words."""
    words = [f"B = {setting['macrobatch'] or 'all'}"]
    words += [f"F = {setting['fetch']}"] if setting["fetch"] else []
    words += ["hybrid"] if setting["hybrid"] else []
    words += [f"aggregates by {setting['aggregation']}"] if setting["aggregation"] else []
    words += [f"cache {setting['feature_cache'] / 1e6:.1f} MB"] if setting["feature_cache"] else []
    return ", ".join(words)


def table(result: Result) -> str:
    """Returns the measured figures, and by how much the predictions were off."""
    part, lines = result["parts"]["planning"], []
    for one in part["series"]:
        told, seen = one["predicted"], one["measured"]
        line = [name_of(one["setting"])]
        line += [
            f"{' + '.join(map(str, seen['rounds']))}{'' if told['rounds'] == seen['rounds'] else ' (!)'}"
        ]
        for key, (_, unit, form) in COMPARED.items():
            off = f"{100 * (told[key] / seen[key] - 1):+.0f} %" if seen[key] else "exact"
            line.append(f"{seen[key] / unit:{form}} ({off})")
        lines.append(line)
    header = [f"4 hosts, {part['network']} links: measured (forecast)", "rounds"]
    return markdown([*header, *(title for title, _, _ in COMPARED.values())], lines)


def plot(result: Result) -> Any:
    """Draws preparation, rows and memory, predicted and measured."""
    series = result["parts"]["planning"]["series"]
    figure, panels = plt.subplots(1, 3, figsize=(13, 4))
    for axes, key in zip(panels, ("preparation", "rows", "memory"), strict=True):
        title, unit, _ = COMPARED[key]
        names = [name_of(one["setting"]) for one in series][::-1]
        for shift, side in ((0.2, "measured"), (-0.2, "predicted")):
            places = [place + shift for place in range(len(names))]
            axes.barh(places, [one[side][key] / unit for one in series][::-1], height=0.4, label=side)
        axes.set_yticks(range(len(names)), names if key == "preparation" else [""] * len(names), fontsize=8)
        axes.set_xlabel(title)
    figure.legend(*panels[0].get_legend_handles_labels(), loc="upper right", ncols=2, fontsize=8)
    return figure
