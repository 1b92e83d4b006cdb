"""Table of what was measured."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from benchmark.embeddings import staleness
from benchmark.support.rounds import typical

Result = dict[str, Any]
NAMES = {
    "ours": "`Embedding` with `SparseAdam`",
    "sparse": "`nn.Embedding(sparse=True)` with `SparseAdam`, DistributedDataParallel",
    "dense": "`nn.Embedding` with `Adam`, DistributedDataParallel",
    "dgl": "`DistEmbedding` with `SparseAdam` of DistDGL, random owners",
    "limit": "both exchanges, a gathering and a random update alone",
}


def table(result: Result) -> str:
    """Milliseconds per step of each side, and how they compare with ours."""
    options, counts = result["workload"], result["counts"]
    seconds = {name: typical(times) for name, times in result["seconds"].items()}
    lines = [
        f"`{Path(options['dataset']).name}`, {options['ranks']} ranks of {options['threads']} threads, "
        f"owners by {options['policy']},",
        f"{options['network']} links, {options['columns']} columns,",
        f"batch {options['batch_size']:,}, fanout {', '.join(map(str, options['fanouts']))}: a rank's "
        f"minibatch reads {counts['nodes']:,.0f} rows,",
        f"{counts['remote']:,.0f} of them from other ranks, and {counts['changed']:,.0f} of its own rows",
        "change.",
        "",
        "| the embedding part of a step | ms | of ours |",
        "| --- | ---: | ---: |",
    ]
    for name, label in NAMES.items():
        if name in seconds:
            lines.append(f"| {label} | {seconds[name] * 1e3:,.1f} | {seconds[name] / seconds['ours']:.2f}x |")
    if "staleness" in result:
        lines += ["", staleness.table(result["staleness"])]
    return "\n".join(lines)
