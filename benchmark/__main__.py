"""The command line of all benchmarks: measures, draws, and writes the tables into the READMEs.

    python -m benchmark sampling                      one benchmark, on a generated graph
    python -m benchmark sampling loading --rounds 3   several, with options that all of them know
    python -m benchmark all --graph /data/products    the first six of the list below
    python -m benchmark training --models sage gat    some networks; --resume continues a run
    python -m benchmark accuracy                      on real graphs; continues where it was
    python -m benchmark report                        tables and plots again, from stored results

Benchmarks:
    sampling       edges per second: this package, pyg-lib, DGL, and the limit of the memory
    loading        the loader with features, against PyG's NeighborLoader
    modes          types, times, weights and links, against PyG's loaders and DGL
    accelerate     a user's script: import, accelerate, native batches; PyG's models, 2 and 3 layers
    training       a step of SAGE, GCN, GIN and GAT: native layers, PyG's (trim_to_layer and
                   hand-written slices), DGL's; and the time that gathers and products alone need
    typed_layers   a step of typed SAGE and GAT and of links, against PyG and DGL; its least time
    footprint      peak memory, page faults and allocations of training steps
    layers         aggregation and dense layers alone: GB/s and GFLOP/s, against torch
    memory         page faults, allocations and growth of the loader's resident memory
    accuracy       the sampler against a reference and PyG's; native layers against PyG's, also by
                   type and for links; bfloat16
    rank_accuracy  the main job on 2 and 4 ranks, against one process at the same global batch
    historical     historical embeddings on 2 and 4 ranks, against one process; hit rates
    historical_epochs  epochs and bytes with them on a slow network, against the exact mode (root)
    convergence    time to accuracy of the main job: native layers against PyG's
    caching        the aggregation cache: making it; preparation, epochs, bytes and accuracy
    inference      all nodes layer by layer, against PyG's inference and against sampling
    planning       the planner's predictions, against 4 ranks on a slow network (needs root)
    embeddings     learned rows over ranks, against torch's and DistDGL's (root)
    communication  all-to-all and all-reduce over gloo and ccl, 1 KiB to 64 MiB
    ranks          rows fetched, preparation on a slow network (root), CPU seconds, partitioning
    pyg_scripts    PyG's own benchmark scripts and examples, with one changed import
    partitioning   edge cut and balance by policy, against METIS and KaMinPar
    partition_traffic  rows, bytes and seconds of an epoch by policy, and balanced training sets
    papers         the settings of publications that no other benchmark has (needs root)
    growth         partitioning graphs of 1, 4 and 16 million nodes, against METIS

A peer takes part if its interpreter has it. Use one environment per peer:
    python -m venv dgl-env && dgl-env/bin/pip install torch==2.13.0 dgl==1.1.3 packaging
    python -m benchmark all --peer dgl=dgl-env/bin/python --peer pyg=pyg-env/bin/python
`pyg` needs torch-geometric with pyg-lib (or torch-sparse); without them its columns are left out.
On two cores and a graph of 122 million edges, accelerate takes 18 minutes, training 12 for
--threads 1 --malloc kept --batches 2, sampling and loading 4 each for one allocator, layers 1;
accuracy and convergence take 25 each, with all data sets.
Run on an idle machine only. Each benchmark lists its options: python -m benchmark NAME --help.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence

from benchmark import report
from benchmark.accelerate import measure as accelerate
from benchmark.accuracy import measure as accuracy
from benchmark.caching import measure as caching
from benchmark.communication import measure as communication
from benchmark.convergence import measure as convergence
from benchmark.embeddings import measure as embeddings
from benchmark.footprint import measure as footprint
from benchmark.growth import measure as growth
from benchmark.historical import epochs as historical_epochs
from benchmark.historical import measure as historical
from benchmark.inference import measure as inference
from benchmark.layers import measure as layers
from benchmark.loading import measure as loading
from benchmark.memory import measure as memory
from benchmark.modes import measure as modes
from benchmark.papers import measure as papers
from benchmark.partition_traffic import measure as partition_traffic
from benchmark.partitioning import measure as partitioning
from benchmark.planning import measure as planning
from benchmark.pyg_scripts import measure as pyg_scripts
from benchmark.rank_accuracy import measure as rank_accuracy
from benchmark.ranks import measure as ranks
from benchmark.sampling import measure as sampling
from benchmark.training import measure as training
from benchmark.typed_layers import measure as typed_layers

#: The benchmarks that take the same options, which ``all`` runs.
WITH_COMMON_OPTIONS: dict[str, Callable[[Sequence[str] | None], None]] = {
    "sampling": sampling.main,
    "loading": loading.main,
    "training": training.main,
    "footprint": footprint.main,
    "layers": layers.main,
    "memory": memory.main,
}
CHOICES = {
    **WITH_COMMON_OPTIONS,
    "modes": modes.main,
    "typed_layers": typed_layers.main,
    "accelerate": accelerate.main,
    "accuracy": accuracy.main,
    "convergence": convergence.main,
    "rank_accuracy": rank_accuracy.main,
    "historical": historical.main,
    "historical_epochs": historical_epochs.main,
    "ranks": ranks.main,
    "caching": caching.main,
    "communication": communication.main,
    "embeddings": embeddings.main,
    "inference": inference.main,
    "partitioning": partitioning.main,
    "partition_traffic": partition_traffic.main,
    "growth": growth.main,
    "planning": planning.main,
    "pyg_scripts": pyg_scripts.main,
    "papers": papers.main,
}


def main(arguments: list[str]) -> int:
    """Runs the named benchmarks with the options that follow their names, then the report."""
    split = next((at for at, word in enumerate(arguments) if word.startswith("-")), len(arguments))
    names, options = arguments[:split], arguments[split:]
    unknown = [name for name in names if name not in (*CHOICES, "all", "report")]
    if not names or unknown:
        print(__doc__)
        if unknown:
            choices = ", ".join([*CHOICES, "all", "report"])
            print(f"There is no benchmark {unknown[0]!r}; choose among {choices}.")
        return 0 if "-h" in options or "--help" in options else 2
    if names == ["all"]:
        names = list(WITH_COMMON_OPTIONS)
    for name in names:
        if name in CHOICES:
            print(f"== {name}", flush=True)
            CHOICES[name](options)
    report.main([])
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
