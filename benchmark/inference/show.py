"""The table of the inference of all nodes."""

from __future__ import annotations

from benchmark.support.tables import OURS, Result
from benchmark.support.tables import table as markdown


def table(result: Result) -> str:
    """Returns seconds for all nodes, and how many times as fast ours is."""
    lines = []
    for model, found in result["models"].items():
        for name, took in found.items():
            times = took["wall"] / found[OURS]["wall"]
            faster = "" if name == OURS else f"{times:,.1f}x"
            lines.append([f"{model}, {name}", f"{took['wall']:,.2f}", f"{took['cpu']:,.2f}", faster])
    options = result["options"]
    header = f"all nodes, {options['layers']} layers of {options['hidden']}, {options['threads']} threads"
    return markdown([header, "seconds", "CPU seconds", "ours is faster by"], lines)
