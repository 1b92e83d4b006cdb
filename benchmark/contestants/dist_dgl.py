"""DistDGL: the server of a host, its trainer, and the partitioning, as in DGL's examples.

``dist_dgl.py partition OPTIONS`` writes the parts of a graph. ``dist_dgl.py JOB OPTIONS`` is a
server, which never returns, or, by DGL_ROLE, a trainer that does the job and writes its answer to
the file OPTIONS["answer"].
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import dgl
import dgl.distributed
import torch

from benchmark.contestants.dist_dgl_epochs import preparation, training
from benchmark.contestants.dist_dgl_parts import NAME, partition
from benchmark.contestants.dist_dgl_rows import embedding

Options = dict[str, Any]

JOBS: dict[str, Callable[[dgl.distributed.DistGraph, Options], Options]] = {
    "training": training,
    "preparation": preparation,
    "embedding": embedding,
}


def rank(job: str, options: Options) -> None:
    """Serves a host's part, or does a job as the trainer of a host."""
    dgl.distributed.initialize(os.environ["DGL_IP_CONFIG"])
    torch.distributed.init_process_group("gloo")
    graph = dgl.distributed.DistGraph(NAME, part_config=os.environ["DGL_CONF_PATH"])
    found = JOBS[job](graph, options)
    own = torch.distributed.get_rank()
    Path(options["answer"].format(rank=own)).write_text(json.dumps(found))
    torch.distributed.barrier()


if __name__ == "__main__":
    wanted = json.loads(sys.argv[2])
    if sys.argv[1] == "partition":
        partition(wanted)
    else:
        rank(sys.argv[1], wanted)
