"""The memory of a rank's process that holds no graph.

Libraries take memory when they are imported, and more when they are first used. So the process
first loads a tiny graph and trains on it, and then measures itself.
"""

from __future__ import annotations

import subprocess
import sys

import psutil
import torch.nn.parallel.distributed  # noqa: F401 - ranks that train have it

from pyg_batchgnn.comm import Communicator
from pyg_batchgnn.data import load_dataset
from pyg_batchgnn.loader import MacrobatchNeighborLoader
from pyg_batchgnn.nn.models import SAGE
from pyg_batchgnn.partition import partition
from pyg_batchgnn.store import DistFeatureStore, DistGraphStore


def resident_bytes() -> float:
    """Returns the bytes that a new process takes after a few training steps."""
    command = [sys.executable, "-c", f"from {__name__} import after_work; print(after_work())"]
    return float(subprocess.run(command, capture_output=True, text=True, check=True).stdout)


def after_work() -> int:
    """Trains a few steps. Returns the bytes that this process then takes."""
    with Communicator.create("resident") as comm:
        part = partition(load_dataset("generated:nodes=200,features=8"), "random", comm=comm)
        stores = DistFeatureStore(part, comm), DistGraphStore(part, comm)
        model = SAGE(8, 8, 2, 64)
        for minibatch in MacrobatchNeighborLoader(
            stores, [2, 2], "train", batch_size=32, macrobatch_size=2, export="native"
        ):
            model(minibatch).sum().backward()
    return psutil.Process().memory_info().rss
