"""The process of test_interrupts.py, which is interrupted in the middle of each kind of loader.

It says on its standard output when a loader is at work, and what is left once the interrupt came.
"""

from __future__ import annotations

import gc
import multiprocessing
import signal
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from torch_geometric.data import HeteroData

from pyg_batchgnn import MacrobatchLinkNeighborLoader, MacrobatchNeighborLoader
from tests.support.loader_cases import make_data

WAYS: dict[str, dict[str, Any]] = {
    "plain": {},
    "prefetch": {"prefetch": 1},
    "workers": {"num_workers": 2},
    "persistent workers": {"num_workers": 1, "persistent_workers": True},
}


def typed() -> HeteroData:
    data = HeteroData()
    plain = make_data()
    data["a"].x, data["b"].x = plain.x, plain.x
    data["a", "to", "b"].edge_index = plain.edge_index
    data["b", "back", "a"].edge_index = plain.edge_index.flip(0)
    return data


def loaders() -> Iterator[tuple[str, Any]]:
    """Yields every kind of loader, each in every way."""
    for way, options in WAYS.items():
        given: dict[str, Any] = {"seed": 0, "batch_size": 8, "macrobatch_size": 2, **options}
        yield f"node, {way}", MacrobatchNeighborLoader(make_data(), [4, 3], **given)
        yield f"link, {way}", MacrobatchLinkNeighborLoader(make_data(), [4], neg_sampling="binary", **given)
        yield f"typed, {way}", MacrobatchNeighborLoader(typed(), [4, 3], "a", **given)


def left() -> list[str]:
    """Names what still runs once a loader is gone. It may take its time to end."""
    for _ in range(200):
        gc.collect()
        found = [one.name for one in threading.enumerate() if one.name.startswith("macrobatch")]
        found += [str(child) for child in multiprocessing.active_children()]
        if not found:
            break
        time.sleep(0.05)
    return found


def shared_memory() -> set[str]:
    return {path.name for path in Path("/dev/shm").iterdir()}


def main() -> None:
    torch.set_num_threads(2)
    # A shell lets what it starts in the background ignore Ctrl-C, and children inherit that.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    for name, loader in loaders():
        before, count = shared_memory(), 0
        try:
            while True:
                for _ in loader:
                    count += 1
                    # Python drops an interrupt that comes in a destructor: ask for it again.
                    if count % 500 == 3:
                        print(f"at work: {name}", flush=True)
        except KeyboardInterrupt:
            pass
        del loader
        print(f"{name}: left {left()} {sorted(shared_memory() - before)}", flush=True)


if __name__ == "__main__":
    main()
