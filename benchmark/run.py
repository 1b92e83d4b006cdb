"""The way in to all benchmarks: measure what is asked for, draw, and write the tables into README.md.

    python benchmark/run.py sampling                      one benchmark, on a graph of our own generator
    python benchmark/run.py sampling loading --rounds 3   several, with options that all of them know
    python benchmark/run.py all --graph /data/products    all but accuracy, convergence, distributed, caching
    python benchmark/run.py training --models sage gat    some networks; --resume goes on where it was
    python benchmark/run.py accuracy                      on real graphs; as convergence, goes on where it was
    python benchmark/run.py report                        tables and plots again, from the stored JSON files

Benchmarks:
    sampling     edges a second: ours, pyg-lib, DGL, and the memory's own limit
    loading      the loader with features: ours and PyG's NeighborLoader
    training     a step of SAGE, GCN, GIN and GAT: native layers, PyG's (trim_to_layer, hand-written
                 slices), DGL's; and the time that gathers and matrix products alone need
    footprint    peak memory, page faults and allocations of training steps
    layers       aggregation and dense layers alone: GB/s and GFLOP/s of ours and torch
    memory       page faults, allocations and growth of the loader's resident memory
    accuracy     our sampler against a reference and PyG's; native layers against PyG's; bfloat16
    rank_accuracy  the main job on 2 and 4 ranks against one process at the same global batch
    convergence  time to accuracy of the main job: native layers against PyG's
    caching      aggregation cache: making it; preparation, epochs, bytes and accuracy with it and without
    planning     the planner's forecasts beside what 4 ranks then measure over a slow network (root)
    communication  all-to-all and all-reduce over gloo and ccl, 1 KiB to 64 MiB
    distributed  ranks: rows fetched, preparation over a slow network (root), CPU seconds, partitioning
    growth       partitioning graphs of 1, 4 and 16 million nodes, beside METIS

A peer takes part where its interpreter has it. Give each its own environment, so that nothing disturbs ours:
    python -m venv dgl-env && dgl-env/bin/pip install torch==2.13.0 dgl==1.1.3 packaging
    python benchmark/run.py all --peer dgl=dgl-env/bin/python --peer pyg=pyg-env/bin/python
`pyg` needs torch-geometric with pyg-lib (or torch-sparse); without them its columns are left out.
On two cores and a graph of 124 million edges: training 32 minutes, sampling, loading, footprint and memory 5
each, layers 1; accuracy and convergence 25 each, with all data sets.
Figures mean something on an idle machine only. Options: python benchmark/SCRIPT.py --help.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence

import accuracy
import caching
import convergence
import distributed
import footprint
import growth
import layers
import loading
import memory
import planning
import rank_accuracy
import report
import sampling
import training
from communication import measure as communication

MEASURED: dict[str, Callable[[Sequence[str] | None], None]] = {
    "sampling": sampling.main,
    "loading": loading.main,
    "training": training.main,
    "footprint": footprint.main,
    "layers": layers.main,
    "memory": memory.main,
}
CHOICES = {
    **MEASURED,
    "accuracy": accuracy.main,
    "convergence": convergence.main,
    "rank_accuracy": rank_accuracy.main,
    "distributed": distributed.main,
    "caching": caching.main,
    "communication": communication.main,
    "growth": growth.main,
    "planning": planning.main,
}


def main(arguments: list[str]) -> int:
    """Run the named benchmarks with the options that follow their names, then the report."""
    split = next((place for place, word in enumerate(arguments) if word.startswith("-")), len(arguments))
    names, options = arguments[:split], arguments[split:]
    unknown = [name for name in names if name not in (*CHOICES, "all", "report")]
    if not names or unknown:
        print(__doc__)
        if unknown:
            choices = ", ".join([*CHOICES, "all", "report"])
            print(f"There is no benchmark {unknown[0]!r}; choose among {choices}.")
        return 0 if "-h" in options or "--help" in options else 2
    if names == ["all"]:
        names = list(MEASURED)
    for name in names:
        if name in CHOICES:
            print(f"== {name}", flush=True)
            CHOICES[name](options)
    report.main([])
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
