"""Runs one of PyG's scripts as it is, with a loader and data sets put in the places of PyG's.

    python -m benchmark.pyg_scripts.run_script --loader ours CHECKOUT/examples/reddit.py

Arguments behind the script's path are the script's own. This file runs in a process of its own:
what it changes in PyG's modules stays. It can record what a script sees: the losses of its steps,
and the schema of every batch, compared with that of the batch which PyG's own code makes of the
same sample: ``filter_fn`` of PyG's loaders, with this package's sampler, needs neither pyg-lib nor
torch-sparse.
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import sys
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
import torch.distributed as dist
import torch_geometric.loader
import torch_geometric.nn  # complete, before anything in it is replaced
from torch import Tensor
from torch.nn.parallel import DistributedDataParallel
from torch_geometric.data import HeteroData
from torch_geometric.loader import NodeLoader
from torch_geometric.loader.link_loader import LinkLoader
from torch_geometric.sampler import EdgeSamplerInput, NodeSamplerInput

from benchmark.pyg_scripts.batch_calls import PREPARE, preparing, rewritten
from benchmark.pyg_scripts.stand_ins import SCALE, install_data_sets


class EnoughError(Exception):
    """Ends a script that has made all steps that were asked for."""


@dataclass
class Record:
    """The losses and the batches of a script."""

    losses: list[float] = field(default_factory=list)
    batches: int = 0  # the number of batches that loaders handed out
    schema: dict[str, Any] = field(default_factory=dict)
    different: list[str] = field(default_factory=list)
    calls: int = 0  # the calls in the script that were rewritten to get a batch
    reports: list[str] = field(default_factory=list)  # how an accelerated model is computed

    def see(self, loader: Any, batch: Any) -> Any:
        """Records a batch, and returns it."""
        found = schema_of(batch)
        if not self.batches:
            self.schema = found
        self.batches += 1
        wanted = schema_of(batch_by_pyg(loader, batch))
        names = [name for name in found.keys() | wanted.keys() if found.get(name) != wanted.get(name)]
        self.different += [
            f"batch {self.batches}, {name}: {found.get(name)}, by PyG {wanted.get(name)}" for name in names
        ]
        return batch


def schema_of(batch: Any) -> dict[str, Any]:
    """Returns the names, dtypes and shapes of everything that a batch holds."""
    stores = {"": batch._store} if not isinstance(batch, HeteroData) else _stores(batch)
    return {
        f"{store}.{name}".lstrip("."): [str(value.dtype), list(value.shape)]
        if isinstance(value, Tensor)
        else value
        if isinstance(value, (int, list))
        else type(value).__name__
        for store, held in stores.items()
        for name, value in held.items()
    }


def _stores(batch: HeteroData) -> dict[str, Any]:
    named = {**batch._node_store_dict, **batch._edge_store_dict}
    every = {name if isinstance(name, str) else "__".join(name): store for name, store in named.items()}
    return {"": batch._global_store, **every}


def batch_by_pyg(loader: Any, batch: Any) -> Any:
    """Returns the batch that PyG's own code makes around the same seeds or links."""
    if isinstance(loader, LinkLoader):
        sampler, kind = loader.link_sampler, loader.input_data.input_type
        sampler.epoch = loader.epoch
        given = _links(loader, batch, kind)
        return LinkLoader.filter_fn(loader, sampler.sample_from_edges(given, loader.neg_sampling))
    sampler, kind = loader.node_sampler, loader.input_data.input_type
    sampler.epoch = loader.epoch
    seeds = batch if kind is None else batch[kind]
    time = seeds.seed_time if "seed_time" in seeds else None
    given = NodeSamplerInput(seeds.input_id, seeds.n_id[: seeds.batch_size], time, kind)
    return NodeLoader.filter_fn(loader, sampler.sample_from_nodes(given))


def _links(loader: Any, batch: Any, kind: Any) -> EdgeSamplerInput:
    source, link, target = (batch,) * 3 if kind is None else (batch[kind[0]], batch[kind], batch[kind[2]])
    count = link.input_id.numel()
    label, time = loader.input_data.label, loader.input_data.time
    if "edge_label_index" in link:
        row, col = link.edge_label_index[:, :count]
        label = None if label is None else link.edge_label[:count]
        time = None if time is None else link.edge_label_time[:count]
    else:
        row, col = source.src_index, target.dst_pos_index
        time = None if time is None else source.seed_time
    return EdgeSamplerInput(link.input_id, source.n_id[row], target.n_id[col], label, time, kind)


def changed(loader: type, record: Record | None, workers: int | None, seed: int | None) -> type:
    """Returns a loader that shows a record what it hands out, has at most so many worker processes,
    and samples the same in every run; None of each changes nothing."""

    class Changed(loader):
        def __init__(self, *args: Any, **kwargs: Any) -> None:
            if workers is not None:
                count = min(kwargs.get("num_workers", 0), workers)
                persistent = bool(count) and kwargs.get("persistent_workers", False)
                kwargs |= {"num_workers": count, "persistent_workers": persistent}
            if seed is not None:
                kwargs["seed"] = seed
            super().__init__(*args, **kwargs)

        def __iter__(self) -> Iterator[Any]:
            batches = super().__iter__()
            return batches if record is None else (record.see(self, batch) for batch in batches)

    Changed.__name__ = loader.__name__
    return Changed


def record_losses(record: Record, steps: int | None) -> None:
    """Lets a record see each loss; ends the script after a number of steps, if one is given."""
    backward = torch.Tensor.backward

    def recording(self: Tensor, *args: Any, **kwargs: Any) -> None:
        backward(self, *args, **kwargs)
        record.losses.append(float(self.detach()))
        if steps is not None and len(record.losses) >= steps:
            raise EnoughError

    torch.Tensor.backward = recording  # type: ignore[method-assign]


def train_on_ranks(backend: str, arguments: Sequence[str]) -> None:
    """Trains on this rank of a job that torchrun started."""
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
    del device_ids
    return DistributedDataParallel(model, **kwargs)


def main(arguments: list[str] | None = None) -> None:
    """Runs the script, and writes the record if one is asked for."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("--loader", choices=("ours", "pyg"), default="ours", help="whose loaders the script gets")
    add("--scale", default="0.01", help="size of the data sets, as a share of the real ones")
    add("--threads", type=int, default=1)
    add("--workers", type=int, help="at most this many worker processes per loader, whatever it asks for")
    add("--record", type=Path, help="JSON file for losses and the schema of batches (ours only)")
    add("--steps", type=int, help="number of training steps after which the script ends")
    add(
        "--models",
        choices=("pyg", "tensors", "batch"),
        help="compare losses: in float64, without dropout, with the same seeds; PyG's model, or an "
        "accelerated one that is called with tensors, or with the batch",
    )
    add("--backend", choices=("gloo", "ccl"), help="run benchmark/multi_gpu on the ranks of torchrun")
    add("script", type=Path)
    add("rest", nargs=argparse.REMAINDER)
    options = parser.parse_args(arguments)
    os.environ[SCALE] = options.scale
    torch.set_num_threads(options.threads)
    record = Record()
    if options.models:
        torch.set_default_dtype(torch.float64)
        torch.manual_seed(0)
    use_stand_ins(
        options.loader,
        record if options.record and not options.models else None,
        options.workers,
        seed=0 if options.models else None,
    )
    if options.record:
        record_losses(record, options.steps)
    lead_to_checkout(options.script.resolve())
    sys.argv = [str(options.script), *options.rest]
    try:
        if options.backend:
            train_on_ranks(options.backend, options.rest)
        else:
            execute(options.script.resolve(), options.models, record)
    except EnoughError:
        print(f"ended after {len(record.losses)} steps")
    if options.record:
        options.record.write_text(json.dumps(asdict(record)))


def use_stand_ins(side: str, record: Record | None, workers: int | None, seed: int | None = None) -> None:
    """Replaces data sets and loaders; with PyG's loaders nothing is recorded or seeded."""
    install_data_sets()
    record, seed = (record, seed) if side == "ours" else (None, None)
    for name in ("NeighborLoader", "LinkNeighborLoader", "HGTLoader"):
        loader = getattr(torch_geometric.loader, name)
        if side == "ours":
            import pyg_batchgnn

            loader = getattr(pyg_batchgnn, f"Macrobatch{name}", loader)
        setattr(torch_geometric.loader, name, changed(loader, record, workers, seed))


def lead_to_checkout(script: Path) -> None:
    """Lets the name ``benchmark`` lead to PyG's folder of that name, which scripts import from."""
    for name in [name for name in sys.modules if name.partition(".")[0] == "benchmark"]:
        del sys.modules[name]
    folder = next((one for one in script.parents if one.name == "benchmark"), None)
    if folder is not None:
        package = ModuleType("benchmark")
        package.__path__ = [str(folder)]
        sys.modules["benchmark"] = package


def execute(script: Path, models: str | None, record: Record) -> None:
    """Executes a script as Python does."""
    main = ModuleType("__main__")
    main.__file__ = str(script)
    sys.modules["__main__"] = sys.modules[script.stem] = main
    sys.path.insert(0, str(script.parent))
    source = script.read_text(encoding="utf-8")
    if models is None:
        exec(compile(source, str(script), "exec"), vars(main))
        return
    vars(main)[PREPARE] = preparing(None if models == "pyg" else record.reports.append)
    code, record.calls = rewritten(source, str(script), calls=models == "batch")
    exec(code, vars(main))


if __name__ == "__main__":
    main()
