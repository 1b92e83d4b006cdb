"""The memory of a training step: peak, page faults and allocations, against PyG and DGL.

Every contestant runs alone, in a process of its own, with a counter preloaded under the C
allocator. The peak is the highest resident memory of the measured rounds, reset as each begins;
beside it stands what was resident when graph, features and network were ready and no step had been
taken.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from benchmark.support.cli import BenchmarkRun, parser
from benchmark.support.harness import Contestant, run_series
from benchmark.support.native import compiled

# (name, side, job, minibatches per round; 0: all)
COLUMNS = [
    ("ours", "ours", "training-native", 0),
    ("ours, bfloat16", "ours", "training-native-bfloat16", 0),
    ("ours, PyG's layers", "ours", "training", 0),
    ("PyG trim_to_layer", "pyg", "training-trimmed", 1),
    ("PyG hand-written slices", "pyg", "training-sliced", 2),
    ("DGL", "dgl", "training", 2),
]


def alone(run: BenchmarkRun, contestant: Contestant) -> list[dict[str, Any]]:
    """Measures every network and setting of one contestant, each in a fresh process."""
    return [
        {
            **run_series([contestant], replace(run.options, model=model), setting, run.rounds, 2).as_dict(),
            "model": model,
        }
        for model in run.models
        for setting in run.settings
    ]


def main(arguments: Sequence[str] | None = None) -> None:
    """Measures, then stores the JSON file."""
    options = parser(__doc__ or "", batches=4, rounds=9, threads=(1,))
    options.set_defaults(models=["sage"])
    run = BenchmarkRun.parse(options.parse_args(arguments))
    counter = str(compiled("allocation_count", "-shared", "-fPIC"))
    counted = replace(run, settings=[replace(setting, preload=counter) for setting in run.settings])
    series = [one for column in COLUMNS for one in alone(counted, run.peers.contestant(*column))]
    run.store("footprint", {"series": series})


if __name__ == "__main__":
    main()
