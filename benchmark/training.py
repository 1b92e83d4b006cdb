"""One step of GraphSAGE: sampling, features, forward, backward and Adam, ours against PyG and DGL."""

from __future__ import annotations

from collections.abc import Sequence

from cli import Run, parser

OURS = ("ours", "ours", "training")
OTHERS = [
    ("PyG trim_to_layer", "pyg", "training-trimmed"),
    ("PyG hand-written slices", "pyg", "training-sliced"),
    ("DGL", "dgl", "training"),
]


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure, then store the JSON file."""
    run = Run.parse(parser(__doc__ or "", batches=4, rounds=5, threads=(1,)).parse_args(arguments))
    run.store("training", {"series": run.duels(OURS, OTHERS)})


if __name__ == "__main__":
    main()
