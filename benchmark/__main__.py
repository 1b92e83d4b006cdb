"""The command line of all benchmarks: measures, draws, and writes the tables into the pages.

    python -m benchmark sampling                      one benchmark, on a generated graph
    python -m benchmark sampling loading --rounds 3   several, with options that all of them know
    python -m benchmark all --graph /data/products    the first four of the list
    python -m benchmark accuracy                      on real graphs; continues where it was
    python -m benchmark report                        tables and plots again, from stored results

A peer takes part if its interpreter has it. Use one environment per peer:
    python -m venv dgl-env && dgl-env/bin/pip install torch==2.13.0 dgl==1.1.3 packaging
    python -m benchmark all --peer dgl=dgl-env/bin/python --peer pyg=pyg-env/bin/python
`pyg` needs torch-geometric with pyg-lib (or torch-sparse); without them its columns are left out.
On two cores and a graph of 122 million edges, accelerate takes 15 minutes, own_models 10,
training 12 for --threads 1 --malloc kept --batches 2, sampling and loading 4 each for one
allocator; accuracy and convergence take 25 each, with all data sets.
Run on an idle machine only. Each benchmark lists its options: python -m benchmark NAME --help.
"""

from __future__ import annotations

import sys
from importlib import import_module

#: The benchmarks, by the names of their modules; the first four take the same options.
CHOICES = {
    "sampling": "edges per second: this package, pyg-lib, DGL, and the limit of the memory",
    "loading": "the loader with features, against PyG's NeighborLoader",
    "training": "a step of SAGE, GCN, GIN and GAT: native layers, PyG's and DGL's",
    "memory": "page faults, allocations and growth of the loader's resident memory",
    "modes": "types, times, weights and links, against PyG's loaders and DGL",
    "typed_layers": "a step of typed SAGE and GAT and of links, against PyG and DGL",
    "accelerate": "a user's script: import, accelerate, native batches, with PyG's models",
    "own_models": "a step of modules of a user's own: PyG, trimmed by hand, model(batch)",
    "accuracy": "the sampler against a reference and PyG's; native layers against PyG's; bfloat16",
    "convergence": "time to accuracy: native layers against PyG's",
    "historical": "historical embeddings on 2 and 4 ranks, against one process; hit rates",
    "caching": "the aggregation cache: making it; preparation and epochs with it",
    "embeddings": "learned rows over ranks, against torch's and DistDGL's (root)",
    "ranks": "rows fetched, preparation on a slow network, DistDGL (root), CPU seconds",
    "partitioning": "edge cut and balance by policy, against METIS",
    "planning": "the planner's predictions, against 4 ranks on a slow network (needs root)",
    "papers": "the settings of publications that no other benchmark has (needs root)",
    "tables": "tables with string keys to a data folder, against DuckDB's own joins",
    "disk": "an epoch of a graph that is larger than memory, and what bounds it",
    "levels": "products and steps of bfloat16 at each level of this processor, and in float32",
    "labor": "destinations that share words: rows, steps, accuracy, against plain sampling",
    "narrow": "rows of one byte: loading, steps, bytes over ranks, accuracy",
    "pyg_scripts": "PyG's own benchmark scripts and examples, with one changed import",
}
#: Those that take the same options, which ``all`` runs.
WITH_COMMON_OPTIONS = tuple(CHOICES)[:4]


def main(arguments: list[str]) -> int:
    """Runs the named benchmarks with the options that follow their names, then the report."""
    split = next((at for at, word in enumerate(arguments) if word.startswith("-")), len(arguments))
    names, options = arguments[:split], arguments[split:]
    unknown = [name for name in names if name not in (*CHOICES, "all", "report")]
    if not names or unknown:
        print(__doc__, "Benchmarks:", sep="\n")
        print(*(f"    {name:<15}{question}" for name, question in CHOICES.items()), sep="\n")
        if unknown:
            choices = ", ".join([*CHOICES, "all", "report"])
            print(f"There is no benchmark {unknown[0]!r}; choose among {choices}.")
        return 0 if "-h" in options or "--help" in options else 2
    for name in WITH_COMMON_OPTIONS if names == ["all"] else names:
        if name != "report":
            print(f"== {name}", flush=True)
            import_module(f"benchmark.{name}").main(options)
    import_module("benchmark.report").main([])
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
