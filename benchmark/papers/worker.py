"""One rank of runs with published settings, started by `World` with JOB OPTIONS ANSWER."""

from __future__ import annotations

import sys
from typing import Any

from benchmark.ranks.rank_graph import RankGraph
from benchmark.ranks.worker import JOBS, answer_with, train_epochs
from pyg_batchgnn.comm import Communicator

Answer = dict[str, Any]


def epoch(comm: Communicator, options: Answer) -> Answer:
    """Trains SAGE with a layer per fanout, on neighbours drawn with replacement."""
    graph = RankGraph(comm, options)
    loader = graph.loader(options["macrobatch"], replace=True)
    return train_epochs(graph, options, loader, graph.sage())


if __name__ == "__main__":
    answer_with({**JOBS, "epoch": epoch}, *sys.argv[1:])
