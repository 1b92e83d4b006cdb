"""The process of test_interrupts.py, which is interrupted in the middle of each kind of loader.

It says on its standard output when a loader is at work, and what is left once the interrupt came.
At the end it interrupts itself as often as its argument says, at any moment of an epoch.
"""

from __future__ import annotations

import contextlib
import gc
import multiprocessing
import os
import random
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch_geometric.data import HeteroData

from pyg_batchgnn import MacrobatchLinkNeighborLoader, MacrobatchNeighborLoader
from pyg_batchgnn.device import locked_bytes
from tests.support.leftovers import shared_memory, stays
from tests.support.loader_cases import make_data

WAYS: dict[str, dict[str, Any]] = {
    "plain": {},
    "prefetch": {"prefetch": 1},
    "device": {"device": "cpu", "feature_placement": "host"},
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


#: The kinds of loaders, one for each way.
KINDS = ("node", "link", "typed", "node", "link")
MAKE: dict[str, Callable[..., Any]] = {
    "node": lambda **given: MacrobatchNeighborLoader(make_data(), [4, 3], **given),
    "link": lambda **given: MacrobatchLinkNeighborLoader(make_data(), [4], neg_sampling="binary", **given),
    "typed": lambda **given: MacrobatchNeighborLoader(typed(), [4, 3], "a", **given),
}


def loaders() -> Iterator[tuple[str, Any]]:
    for kind, (way, options) in zip(KINDS, WAYS.items(), strict=True):
        given = {"seed": 0, "batch_size": 8, "macrobatch_size": 2, **options}
        yield f"{kind}, {way}", MAKE[kind](**given)  # which nothing else holds


def left() -> list[str]:
    for _ in range(200):
        gc.collect()
        found = [one.name for one in threading.enumerate() if one.name.startswith("macrobatch")]
        found += [str(child) for child in multiprocessing.active_children()]
        if not found:
            break
        time.sleep(0.05)
    return found


def interrupt_often(times: int, **options: Any) -> None:
    loader = MacrobatchNeighborLoader(make_data(), [4, 3], seed=0, batch_size=8, macrobatch_size=1, **options)
    moments = random.Random(0)
    reading, writing = os.pipe()
    sender = os.fork()
    if sender == 0:
        while delay := os.read(reading, 1)[0]:
            for _ in range(20 * delay):
                pass
            os.kill(os.getppid(), signal.SIGINT)
        os._exit(0)
    for _ in range(times):
        at, count = moments.randrange(8), 0
        with contextlib.suppress(KeyboardInterrupt):
            while True:
                for _ in loader:
                    if count % 100 == at:  # again, if the interrupt came in a destructor
                        os.write(writing, bytes([moments.randrange(1, 255)]))
                    count += 1
    os.write(writing, b"\0")  # workers hold the pipe as well, so that closing it would not do
    os.waitpid(sender, 0)


def main(times: int) -> None:
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
        names = sorted(path.name for path in stays(shared_memory, before))  # other tests have some as well
        print(f"{name}: left {left()} {names}", flush=True)
    interrupt_often(times, **WAYS["prefetch"])
    print(f"prefetch, often: left {left()}", flush=True)
    interrupt_often(times, **WAYS["device"])
    print(f"device, often: left {left()} {locked_bytes()}", flush=True)
    interrupt_often(times // 6, **WAYS["persistent workers"])
    print(f"persistent workers, often: left {left()}", flush=True)


if __name__ == "__main__":
    main(int(sys.argv[1]))
