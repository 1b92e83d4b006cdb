"""Counts sampled minibatches. Started by ``limits.py``.

Reads the options of the workload as one JSON object from standard input; answers with one line of
JSON: ``nodes`` by type and ``edges`` by relation, means per hop.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from typing import Any

from benchmark.contestants.typed_jobs import link_loader, typed_loader
from benchmark.support.jobs import Options
from pyg_batchgnn import MacrobatchLinkNeighborLoader, MacrobatchNeighborLoader


def means(hops: Sequence[Sequence[int]]) -> list[float]:
    """Returns the mean of each hop over minibatches."""
    return [sum(hop) / len(hops) for hop in zip(*hops, strict=True)]


def counts(options: Options) -> dict[str, Any]:
    """Returns the mean counts of the minibatches of a round."""
    arguments = {"seed": options.seed, "threads": options.threads, "export": "native"}
    if options.typed_graph:
        batches = list(typed_loader(MacrobatchNeighborLoader, options, **arguments))
    else:
        batches = list(link_loader(MacrobatchLinkNeighborLoader, options, **arguments))
    schema = batches[0].schema
    return {
        "nodes": {
            name: means([batch.nodes_of(name).nodes_per_hop for batch in batches])
            for name in schema.node_types
        },
        "edges": [
            [relation, means([batch.edges_of(relation).edges_per_hop for batch in batches])]
            for relation in schema.relations
        ],
    }


def main() -> None:
    """Answers the one order."""
    print(json.dumps(counts(Options.from_dict(json.loads(sys.stdin.read())))))


if __name__ == "__main__":
    main()
