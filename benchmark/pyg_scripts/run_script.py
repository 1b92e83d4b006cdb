"""Runs one of PyG's scripts as it is, with a loader and data sets put in the places of PyG's.

    python -m benchmark.pyg_scripts.run_script --loader ours CHECKOUT/examples/reddit.py

Arguments behind the script's path are the script's own. This file runs in a process of its own:
what it changes in PyG's modules stays.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
import torch_geometric.loader
import torch_geometric.nn  # complete, before anything in it is replaced

from benchmark.pyg_scripts import ranks
from benchmark.pyg_scripts.recording import EnoughError, Record, record_losses, recorded
from benchmark.pyg_scripts.stand_ins.datasets import SCALE
from benchmark.pyg_scripts.stand_ins.modules import install_data_sets


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
    add("--backend", choices=("gloo", "ccl"), help="run benchmark/multi_gpu on the ranks of torchrun")
    add("script", type=Path)
    add("rest", nargs=argparse.REMAINDER)
    options = parser.parse_args(arguments)
    os.environ[SCALE] = options.scale
    torch.set_num_threads(options.threads)
    record = Record()
    use_stand_ins(options.loader, record if options.record else None, options.workers)
    if options.record:
        record_losses(record, options.steps)
    lead_to_checkout(options.script.resolve())
    sys.argv = [str(options.script), *options.rest]
    try:
        if options.backend:
            ranks.train(options.backend, options.rest)
        else:
            execute(options.script.resolve())
    except EnoughError:
        print(f"ended after {len(record.losses)} steps")
    if options.record:
        options.record.write_text(json.dumps(record.as_dict()))


def use_stand_ins(side: str, record: Record | None, workers: int | None) -> None:
    """Replaces data sets and, for "ours", loaders.

    Args:
        side: whose loaders scripts get.
        record: sees the batches, if given.
        workers: at most this many worker processes per loader.
    """
    install_data_sets()
    for name in ("NeighborLoader", "LinkNeighborLoader", "HGTLoader"):
        loader = getattr(torch_geometric.loader, name)
        if side == "ours":
            import pyg_batchgnn

            loader = getattr(pyg_batchgnn, f"Macrobatch{name}", loader)
            loader = loader if record is None else recorded(loader, record)
        setattr(torch_geometric.loader, name, loader if workers is None else with_fewer(loader, workers))


def with_fewer(loader: type, workers: int) -> type:
    """Returns a loader with at most this many worker processes."""

    class Fewer(loader):
        def __init__(self, *args: Any, num_workers: int = 0, **kwargs: Any) -> None:
            super().__init__(*args, num_workers=min(num_workers, workers), **kwargs)

    Fewer.__name__ = loader.__name__
    return Fewer


def lead_to_checkout(script: Path) -> None:
    """Lets the name ``benchmark`` lead to PyG's folder of that name, which scripts import from.

    PyG itself stays the one that is installed.
    """
    for name in [name for name in sys.modules if name.partition(".")[0] == "benchmark"]:
        del sys.modules[name]
    folder = next((one for one in script.parents if one.name == "benchmark"), None)
    if folder is not None:
        package = ModuleType("benchmark")
        package.__path__ = [str(folder)]
        sys.modules["benchmark"] = package


def execute(script: Path) -> None:
    """Executes a script as Python does.

    Its file's name leads to it too: PyG's ``Sequential`` imports the file that it is called in, and
    would execute the script a second time.
    """
    main = ModuleType("__main__")
    main.__file__ = str(script)
    sys.modules["__main__"] = sys.modules[script.stem] = main
    sys.path.insert(0, str(script.parent))
    exec(compile(script.read_text(encoding="utf-8"), str(script), "exec"), vars(main))


if __name__ == "__main__":
    main()
