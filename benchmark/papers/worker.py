"""One rank of runs with published settings, started by `World` with JOB OPTIONS ANSWER."""

from __future__ import annotations

import sys
from typing import Any

import torch

from benchmark.ranks.worker import JOBS, RankGraph, answer_with, train_epochs
from pyg_batchgnn.comm import Communicator
from pyg_batchgnn.data import NODES
from pyg_batchgnn.nn.models import SAGE

Answer = dict[str, Any]


def epoch(comm: Communicator, options: Answer) -> Answer:
    """Trains SAGE with a layer per fanout, on neighbours drawn with replacement."""
    graph = RankGraph(comm, options)
    loader = graph.loader(options["macrobatch"], replace=True)
    torch.manual_seed(0)
    columns = graph.part.attributes[NODES]["x"].shape[1]
    model = SAGE(columns, options["hidden"], len(options["fanouts"]), graph.classes(), dropout=0.5)
    return train_epochs(graph, options, loader, model)


if __name__ == "__main__":
    answer_with({**JOBS, "epoch": epoch}, *sys.argv[1:])
