"""Measures which share of the time a GPU works that a loader feeds, in at most five minutes.

    python benchmark/gpu/run.py --json gpu.json
    python benchmark/gpu/run.py --tiny --device cpu      a few seconds, to see that it runs

It needs an installed package (README.md of this folder says how to carry one), and nothing else of
this repository. The graph has the shape of ogbn-products and is made here.
"""

from __future__ import annotations

import argparse
import contextlib
import functools
import gc
import itertools
import json
import os
import resource
import signal
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch_geometric.data import Data, HeteroData
from torch_geometric.loader import NeighborLoader, PrefetchLoader
from torch_geometric.nn import GraphSAGE, HeteroConv, SAGEConv
from torch_geometric.typing import WITH_PYG_LIB

from pyg_batchgnn import MacrobatchLinkNeighborLoader, MacrobatchNeighborLoader
from pyg_batchgnn.device import lane_of, locked_bytes

# What is measured #################################################################################


@dataclass(frozen=True)
class Scale:
    """The sizes of a run."""

    nodes: int = 2_449_029
    edges: int = 123_718_280
    features: int = 100
    classes: int = 47
    training: int = 196_615
    batch_size: int = 1024
    fanouts: tuple[int, ...] = (15, 10, 5)
    hidden: int = 256
    warm: int = 50  # steps before the first window
    settle: int = 20  # steps of a fed window that are not measured, as some batches are ready then
    window: int = 100  # steps of a window
    windows: int = 3
    held: int = 20  # batches that lie on the device for the steps' own rate
    iterators: int = 1000  # that are broken off


TINY = Scale(
    3000, 60_000, 20, 5, 900, 64, (4, 3, 2), 16, warm=2, settle=1, window=3, windows=2, held=2, iterators=50
)
#: Our loader without `device=`, which the fed steps of the others are compared with.
TODAY = "without device=, pin_memory=True"


@dataclass
class Report:
    """The findings of a run; JSON can hold them."""

    machine: dict[str, Any] = field(default_factory=dict)
    scale: dict[str, Any] = field(default_factory=dict)
    bits: dict[str, bool] = field(default_factory=dict)
    rows: list[dict[str, Any]] = field(default_factory=list)
    times: dict[str, dict[str, float]] = field(default_factory=dict)  # as fast as other loaders
    ends: dict[str, Any] = field(default_factory=dict)  # what is left of iterators that were broken off
    left_out: list[str] = field(default_factory=list)
    parts: dict[str, float] = field(default_factory=dict)  # seconds from the start to the end of each
    seconds: float = 0.0


class Steps:
    """The training steps of a model on a device, timed in windows."""

    def __init__(
        self, device: torch.device, model: nn.Module, loss: Callable[[nn.Module, Any], Tensor]
    ) -> None:
        self.device, self.model, self.loss = device, model.to(device), loss
        self.optimiser = torch.optim.Adam(model.parameters(), lr=1e-3)

    def run(self, batches: Iterator[Any], count: int) -> float:
        """Trains on some batches. Returns the seconds; nothing is waited for in between."""
        self.wait()
        begin = time.perf_counter()
        for batch in itertools.islice(batches, count):
            self.optimiser.zero_grad()
            self.loss(self.model, batch).backward()
            self.optimiser.step()
        self.wait()
        return time.perf_counter() - begin

    def wait(self) -> None:
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)


def endless(loader: Any, device: torch.device) -> Iterator[Any]:
    while True:
        for batch in loader:
            yield batch if is_there(batch, device) else batch.to(device, non_blocking=True)


def is_there(batch: Any, device: torch.device) -> bool:
    first = next(value for value in batch.stores[-1].values() if isinstance(value, Tensor))
    return first.device.type == device.type


def measured(
    name: str, loader: Any, steps: Steps, scale: Scale, windows: int | None = None
) -> dict[str, Any]:
    """Measures the seconds of a step that is fed, and of one whose batch lies on the device."""
    batches = endless(loader, steps.device)
    held = list(itertools.islice(batches, scale.held))
    own = itertools.cycle(held)
    steps.run(own, scale.held)
    steps.run(batches, scale.warm)
    alone, fed = [], []
    for _ in range(windows or scale.windows):
        alone.append(steps.run(own, scale.window) / scale.window)
        steps.run(batches, scale.settle)
        fed.append(steps.run(batches, scale.window) / scale.window)
    row = {
        "name": name,
        "own_ms": [1e3 * one for one in alone],
        "fed_ms": [1e3 * one for one in fed],
        "busy": sum(alone) / sum(fed),
        "host_peak_bytes": 1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss,
    }
    if hasattr(loader, "stats"):
        row |= counted(loader)
    if steps.device.type == "cuda":
        row["device_peak_bytes"] = torch.cuda.max_memory_allocated(steps.device)
    own_ms, fed_ms = 1e3 * min(alone), 1e3 * min(fed)
    print(f"{name:34s} own {own_ms:8.2f} ms  fed {fed_ms:8.2f} ms  busy {row['busy']:.0%}", flush=True)
    batches.close()  # type: ignore[attr-defined]
    return row


def counted(loader: Any) -> dict[str, Any]:
    """Returns what a loader of ours says of itself."""
    stats = loader.stats()
    total = stats.total
    return {
        "sizes": asdict(loader.sizes),
        "per_minibatch": {
            key: getattr(total, key) / max(1, total.minibatches)
            for key in vars(total)
            if "_over_bus" in key
            or "_from_device" in key
            or key.endswith("seconds")
            or key in ("nodes", "edges")
        },
        "memory": None if stats.device is None else asdict(stats.device),
    }


# Graphs ###########################################################################################


def skewed(count: int, below: int, device: torch.device, generator: torch.Generator) -> Tensor:
    drawn = (torch.rand(count, device=device, generator=generator) ** 2 * below).long().clamp(max=below - 1)
    return drawn * 7919 % below


def products(scale: Scale, device: torch.device) -> Data:
    """Returns an undirected graph of the shape of ogbn-products."""
    generator = torch.Generator(device=device).manual_seed(0)
    half = scale.edges // 2
    ends = torch.stack([skewed(half, scale.nodes, device, generator) for _ in range(2)]).cpu()
    edge_index = torch.cat([ends, ends.flip(0)], dim=1)
    x = torch.randn(scale.nodes, scale.features, device=device, generator=generator).cpu()
    y = torch.randint(scale.classes, (scale.nodes,), device=device, generator=generator).cpu()
    return Data(x=x, y=y, edge_index=edge_index)


def mag(scale: Scale, device: torch.device) -> HeteroData:
    """Returns a typed graph of about the shape of ogbn-mag, with a tenth of products' edges."""
    generator = torch.Generator(device=device).manual_seed(1)
    counts = {"paper": scale.nodes * 3 // 10, "author": scale.nodes * 4 // 10, "field": scale.nodes // 40}
    edges = scale.edges // 10
    data = HeteroData()
    for name, count in counts.items():
        data[name].x = torch.randn(count, scale.features, device=device, generator=generator).cpu()
    data["paper"].y = torch.randint(scale.classes, (counts["paper"],))
    for source, name, target, share in (
        ("paper", "cites", "paper", 1.0),
        ("author", "writes", "paper", 1.0),
        ("field", "of", "paper", 0.8),
        ("paper", "has", "field", 0.8),
        ("paper", "by", "author", 1.0),
    ):
        number = int(edges * share)
        ends = [skewed(number, counts[end], device, generator) for end in (source, target)]
        data[source, name, target].edge_index = torch.stack(ends).cpu()
    return data


# Models ###########################################################################################


def node_loss(model: nn.Module, batch: Any) -> Tensor:
    out = model(
        batch.x,
        batch.edge_index,
        num_sampled_nodes_per_hop=batch.num_sampled_nodes,
        num_sampled_edges_per_hop=batch.num_sampled_edges,
    )
    return F.cross_entropy(out[: batch.batch_size], batch.y[: batch.batch_size])


def link_loss(model: nn.Module, batch: Any) -> Tensor:
    out = model(batch.x, batch.edge_index)
    source, target = batch.edge_label_index
    score = (out[source] * out[target]).sum(1)
    return F.binary_cross_entropy_with_logits(score, batch.edge_label.float())


class Typed(nn.Module):
    """Two layers of a SAGEConv for each relation."""

    def __init__(self, relations: list[tuple[str, str, str]], scale: Scale) -> None:
        super().__init__()
        widths = (scale.features, scale.hidden, scale.classes)
        self.layers = nn.ModuleList(
            HeteroConv({relation: SAGEConv(i, o) for relation in relations})
            for i, o in itertools.pairwise(widths)
        )

    def forward(self, batch: Any) -> Tensor:
        x = batch.x_dict
        for layer in self.layers:
            x = {name: rows.relu() for name, rows in layer(x, batch.edge_index_dict).items()}
        return x["paper"][: batch["paper"].batch_size]


def typed_loss(model: nn.Module, batch: Any) -> Tensor:
    paper = batch["paper"]
    return F.cross_entropy(model(batch), paper.y[: paper.batch_size])


# The run ##########################################################################################


def same_bits(there: Any, plain: Any, batches: int = 3) -> bool:
    """Compares the first batches of two loaders in every attribute."""
    for one, other in itertools.islice(zip(there, plain, strict=True), batches):
        for left, right in zip(one.stores, other.stores, strict=True):
            if set(left.keys()) != set(right.keys()):
                return False
            for name, value in right.items():
                mine = left[name]
                is_same = mine.cpu().equal(value) if isinstance(value, Tensor) else mine == value
                if not is_same:
                    print(f"differs: {name}")
                    return False
    return True


class Run:
    """All measurements of one machine, as long as the time lasts."""

    def __init__(self, scale: Scale, device: torch.device, limit: float, path: Path | None) -> None:
        self.scale, self.device, self._end = scale, device, time.perf_counter() + limit
        self._path, self._begin = path, time.perf_counter()
        self.report = Report(scale=asdict(scale))
        self._sampler: Any = None  # of products: its edges are sorted once

    def part(self, name: str, work: Callable[[], None]) -> None:
        """Does a part, unless the time is over. What fails is said and left out."""
        if time.perf_counter() > self._end:
            self.report.left_out.append(f"{name}: no time left")
            return
        try:
            work()
        except Exception as error:
            self.report.left_out.append(f"{name}: {type(error).__name__}: {error}")
            print(self.report.left_out[-1], flush=True)
        gc.collect()
        if self.device.type == "cuda":
            with contextlib.suppress(RuntimeError):  # an error of the GPU stays
                torch.cuda.empty_cache()
                torch.cuda.reset_peak_memory_stats(self.device)
        self.report.parts[name] = time.perf_counter() - self._begin
        self._write()

    def _write(self) -> None:
        self.report.seconds = time.perf_counter() - self._begin
        if self._path is not None:
            self._path.write_text(json.dumps(asdict(self.report), indent=1) + "\n")

    def loader(self, data: Data, **given: Any) -> MacrobatchNeighborLoader:
        scale = self.scale
        seeds = torch.randperm(scale.nodes, generator=torch.Generator().manual_seed(2))[: scale.training]
        chosen = {"batch_size": scale.batch_size, "shuffle": True, "drop_last": True, **given}
        chosen |= {"seed": 0} if self._sampler is None else {"neighbor_sampler": self._sampler}
        made = MacrobatchNeighborLoader(data, list(scale.fanouts), seeds, **chosen)
        self._sampler = made.node_sampler
        return made

    def all(self) -> Report:
        self.report.machine = machine(self.device)
        print(json.dumps(self.report.machine), flush=True)
        self._of_products()
        self.part("typed", self._typed)
        self._compare()
        self._write()
        return self.report

    def _of_products(self) -> None:
        scale, begin = self.scale, time.perf_counter()
        data = products(scale, self.device)
        print(f"graph made in {time.perf_counter() - begin:.0f} s", flush=True)
        fifth = scale.nodes * (scale.features * 4) // 5 + 4 * scale.nodes
        places: dict[str, dict[str, Any]] = {
            "features on the device": {"feature_placement": "device"},
            "features on the host": {"feature_placement": "host"},
            "host, a cache of a fifth": {"feature_placement": "host", "device_cache": fifth},
        }
        for name, place in places.items():
            self.part(f"bits, {name}", functools.partial(self._bits, data, name, place))
        layers = len(scale.fanouts)
        sage = GraphSAGE(scale.features, scale.hidden, layers, out_channels=scale.classes)
        steps = Steps(self.device, sage, node_loss)
        for name, place in places.items():
            self.part(name, functools.partial(self._measure, name, data, steps, place))
        self.part("peer", lambda: self._peer(data, steps))
        self.part("ends", self._ends)
        self.part("bfloat16", lambda: self._bfloat16(data, sage))
        self.part("links", lambda: self._links(data, sage))
        for workers in (8, 0) if WITH_PYG_LIB else ():
            self.part(f"PyG's loader, {workers}", functools.partial(self._pyg, data, steps, workers))

    def _bfloat16(self, data: Data, sage: nn.Module) -> None:
        half = Data(x=data.x.bfloat16(), y=data.y, edge_index=data.edge_index)
        steps = Steps(self.device, _Widened(sage), node_loss)
        self._measure("bfloat16 on the host", half, steps, {"feature_placement": "host"})

    def _bits(self, data: Data, name: str, place: dict[str, Any]) -> None:
        there, plain = self.loader(data, device=self.device, **place), self.loader(data)
        self.report.bits[name] = same_bits(there, plain)
        print(f"bits, {name}: {'the same' if self.report.bits[name] else 'DIFFERENT'}", flush=True)

    def _measure(self, name: str, data: Data, steps: Steps, place: dict[str, Any]) -> None:
        loader = self.loader(data, device=self.device, **place)
        self.report.rows.append(measured(name, loader, steps, self.scale))

    @property
    def _few(self) -> Scale:
        return replace(self.scale, window=max(2, self.scale.window // 4), warm=5, settle=2)

    def _peer(self, data: Data, steps: Steps) -> None:
        loader = self.loader(data, pin_memory=True)
        self.report.rows.append(measured(TODAY, loader, steps, self._few, 2))

    def _pyg(self, data: Data, steps: Steps, workers: int) -> None:
        scale = self.scale
        given = {"batch_size": scale.batch_size, "shuffle": True, "drop_last": True, "num_workers": workers}
        seeds = torch.arange(scale.training) * 7919 % scale.nodes
        loader = NeighborLoader(data, list(scale.fanouts), input_nodes=seeds, **given)
        name = f"PyG's NeighborLoader and PrefetchLoader, num_workers={workers}"
        row = measured(name, PrefetchLoader(loader, self.device), steps, self._few, 2)
        self.report.rows.append(row)

    def _compare(self) -> None:
        fed = {row["name"]: min(row["fed_ms"]) for row in self.report.rows}
        for other in [name for name in fed if name == TODAY or name.startswith("PyG's")]:
            ours = [name for name in fed if name.startswith(("features on", "host, "))]
            self.report.times[other] = {name: fed[other] / fed[name] for name in ours}
            print(f"beside {other}: {self.report.times[other]}", flush=True)

    def _ends(self) -> None:
        """Breaks iterators off: closed, dropped, by an error and by Ctrl-C."""
        count, begin = self.scale.iterators, time.perf_counter()
        small = Scale(nodes=20_000, edges=400_000, features=self.scale.features)
        loader = MacrobatchNeighborLoader(
            products(small, self.device),
            [4, 3],
            batch_size=64,
            seed=0,
            macrobatch_size=2,
            device=self.device,
            feature_placement="host",
        )
        done = 0
        while done < count and time.perf_counter() < self._end:
            number, done = done, done + 1
            batches = iter(loader)
            for _ in itertools.islice(batches, number % 4):
                pass
            if number % 3 == 0:
                batches.close()  # type: ignore[attr-defined]
            elif number % 3 == 1:
                with contextlib.suppress(ZeroDivisionError):
                    for _ in batches:
                        raise ZeroDivisionError
            del batches
        for number in range(count // 50):
            stop = threading.Timer(0.01 + 0.003 * number, os.kill, [os.getpid(), signal.SIGINT])
            with contextlib.suppress(KeyboardInterrupt):
                stop.start()
                for _ in itertools.islice(endless(loader, self.device), 500):
                    pass
                stop.join()  # or a destructor has swallowed the interrupt
        del loader
        gc.collect()
        seconds = time.perf_counter() - begin
        while (left := threads()) and time.perf_counter() < begin + seconds + 2:
            time.sleep(0.05)  # after a Ctrl-C in the middle of an end they look 5 times a second
        self.report.ends = {"seconds": seconds, "threads": left, "locked_bytes": locked_bytes()}
        self.report.ends["iterators"] = done
        print(f"{done} iterators broken off: {self.report.ends}", flush=True)

    def _pair(self, make: Callable[..., Any], data: Any, seeds: Any, **given: Any) -> list[Any]:
        scale = self.scale
        given |= {"batch_size": scale.batch_size, "shuffle": True, "seed": 0}
        return [
            make(data, list(scale.fanouts[:2]), seeds, device=device, **given)
            for device in (self.device, None)
        ]

    def _links(self, data: Data, model: nn.Module) -> None:
        links = data.edge_index[:, : self.scale.training]
        there, plain = self._pair(MacrobatchLinkNeighborLoader, data, links, neg_sampling="binary")
        self.report.bits["links"] = same_bits(there, plain)
        self.report.rows.append(measured("links", there, Steps(self.device, model, link_loss), self.scale))

    def _typed(self) -> None:
        scale = self.scale
        data = mag(scale, self.device)
        papers = torch.arange(min(scale.training, data["paper"].num_nodes))
        there, plain = self._pair(MacrobatchNeighborLoader, data, ("paper", papers))
        self.report.bits["typed"] = same_bits(there, plain)
        steps = Steps(self.device, Typed(data.edge_types, scale), typed_loss)
        self.report.rows.append(measured("typed", there, steps, scale))


class _Widened(nn.Module):
    """A model that is given bfloat16 rows and computes in float32."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, x: Tensor, *args: Any, **kwargs: Any) -> Any:
        return self.model(x.float(), *args, **kwargs)


def threads() -> list[str]:
    return [one.name for one in threading.enumerate() if one.name.startswith("macrobatch")]


def machine(device: torch.device) -> dict[str, Any]:
    """Returns what the figures depend on."""
    lane = lane_of(device)
    is_gpu = device.type == "cuda"
    return {
        "device": torch.cuda.get_device_name(device) if is_gpu else "cpu",
        "torch": torch.__version__,
        "cuda": torch.version.cuda,
        "cores": len(os.sched_getaffinity(0)),
        "threads": torch.get_num_threads(),
        "waiting": {name: os.environ.get(name) for name in ("OMP_WAIT_POLICY", "GOMP_SPINCOUNT")},
        "reads_host": lane.reads_host,
        "why_not": getattr(lane, "why_not", None),
        "pyg_lib": WITH_PYG_LIB,
        "date": time.strftime("%Y-%m-%d"),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--tiny", action="store_true", help="a small graph and few steps")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--json", type=Path, help="the file that gets the figures")
    parser.add_argument("--limit", type=float, default=240.0, help="seconds after which no part begins")
    given = parser.parse_args()
    torch.manual_seed(0)
    run = Run(TINY if given.tiny else Scale(), torch.device(given.device), given.limit, given.json)
    report = run.all()
    print(f"{report.seconds:.0f} s; left out: {report.left_out or 'nothing'}")
    if not report.bits or not all(report.bits.values()):
        raise SystemExit("bits differ from those of the CPU")
    if report.ends and (report.ends["threads"] or report.ends["locked_bytes"]):
        raise SystemExit("threads or pinned memory are left of iterators that were broken off")


if __name__ == "__main__":
    main()
