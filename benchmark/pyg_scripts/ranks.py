"""PyG's training over several GPUs, on ranks of this machine's CPU.

PyG's ``benchmark/multi_gpu/training/common.py`` has no way for CPUs. Its file stays as it is. Two
of its names are replaced: what devices there are, and the wrapper of the model, which is asked for
a device by number.
"""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from typing import Any

import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel


def train(backend: str, arguments: Sequence[str]) -> None:
    """Trains on this rank of a job that torchrun started.

    Args:
        backend: the backend of the collectives, "gloo" or "ccl".
        arguments: those of PyG's script.
    """
    if backend == "ccl":
        importlib.import_module("pyg_batchgnn")  # registers it
    common: Any = importlib.import_module("benchmark.multi_gpu.training.common")
    utils: Any = importlib.import_module("benchmark.utils")
    common.device_conditions["cpu"] = lambda: True
    common.DDP = _on_cpu
    options = common.get_predefined_args().parse_args(arguments)
    options.device = "cpu"
    data, classes = utils.get_dataset(options.dataset, options.root)
    dist.init_process_group(backend)
    common.run(dist.get_rank(), dist.get_world_size(), options, classes, data)


def _on_cpu(model: Any, device_ids: Any, **kwargs: Any) -> DistributedDataParallel:
    """Wraps a model without the numbers of devices."""
    del device_ids
    return DistributedDataParallel(model, **kwargs)
