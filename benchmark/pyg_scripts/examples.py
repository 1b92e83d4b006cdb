"""PyG's examples that sample neighbours, with the arguments that make them short."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmark.pyg_scripts.process import Side, run
from benchmark.pyg_scripts.recording import Record


@dataclass(frozen=True)
class Example:
    """An example of PyG's.

    Attributes:
        name: its name in tables.
        script: its path in a checkout of PyG.
        arguments: its own arguments.
        steps: the training steps after which it is ended.
        scale: the size of its data set.
    """

    name: str
    script: str
    arguments: tuple[str, ...] = ()
    steps: int = 10
    scale: float = 0.005


SHORT = (*("--epochs", "8", "--num_layers", "2"), *("--fan_out", "5", "--hidden_channels", "32"))
EXAMPLES = (
    Example("to_hetero_mag", "examples/hetero/to_hetero_mag.py"),
    Example("to_hetero_mag, HGT", "examples/hetero/to_hetero_mag.py", ("--use_hgt_loader",)),
    Example("hierarchical_sage", "examples/hetero/hierarchical_sage.py"),
    Example("graph_sage_unsup", "examples/graph_sage_unsup.py", steps=40),
    Example("ogbn_train, disjoint", "examples/ogbn_train.py", SHORT),
    Example("ogbn_train, SAGE", "examples/ogbn_train.py", (*SHORT, "--model", "sage")),
    Example("reddit", "examples/reddit.py"),
    Example("hierarchical_sampling", "examples/hierarchical_sampling.py", scale=0.01),
    Example("graph_sage_unsup_ppi", "examples/graph_sage_unsup_ppi.py", steps=20),
    Example("temporal_link_pred", "examples/hetero/temporal_link_pred.py", steps=20),
    Example("recommender_system", "examples/hetero/recommender_system.py", scale=0.1),
    Example("infomax_inductive", "examples/infomax_inductive.py", steps=15),
)


class ExampleError(RuntimeError):
    """The error of an example that failed; the text has the end of its output."""


def run_example(example: Example, checkout: Path, folder: Path) -> Record:
    """Runs an example with this package's loaders.

    Args:
        example: the example.
        checkout: the checkout of PyG.
        folder: where the record is written.

    Raises:
        ExampleError: it failed.
    """
    file = folder / "record.json"
    options = ["--record", str(file), "--steps", str(example.steps), "--workers", "1"]
    script = [str(checkout / example.script), *example.arguments]
    try:
        run(Side.OURS, [*options, "--scale", str(example.scale), *script])
    except subprocess.CalledProcessError as error:
        raise ExampleError(f"{example.name} failed:\n{error.stdout[-1500:]}{error.stderr[-3000:]}") from None
    return Record(**json.loads(file.read_text()))


def falls(losses: Sequence[float]) -> bool:
    """Returns whether the mean of the last third of the losses is below that of the first."""
    third = max(1, len(losses) // 3)
    return sum(losses[-third:]) < sum(losses[:third])


def measure(checkout: Path, folder: Path) -> list[dict[str, Any]]:
    """Runs all examples. Returns for each what was recorded, or why it failed."""
    rows = []
    for example in EXAMPLES:
        row: dict[str, Any] = {"name": example.name}
        try:
            found = run_example(example, checkout, folder)
            row |= {"batches": found.batches, "losses": found.losses, "different": len(found.different)}
        except ExampleError as error:
            row["error"] = str(error).splitlines()[-1]
        rows.append(row)
        print(f"  {example.name}: {row.get('error', 'done')}", flush=True)
    return rows
