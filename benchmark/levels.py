"""Products and training steps of bfloat16, at each level that this processor has, and in float32.

The levels are those of `ops.bfloat16_levels`: "tiles" are Intel's matrix unit (AMX). Results are
first compared with float64, and with themselves on another number of threads. The losses of one
training in each of them are drawn. It needs no graph but amazon_photo, and about three minutes:

    python -m benchmark levels --threads 1
    PYG_BATCHGNN_TILES=emulated python -m benchmark levels --nodes 20000 --rounds 1   to try it
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from statistics import fmean, median
from typing import Any

import torch
from torch import Tensor
from torch_geometric.data import Data

from benchmark.accuracy import TASKS, graph_of
from benchmark.networks.recipe import DROPOUT, Trainer
from benchmark.support.cli import new_parser, stamped, write_json
from benchmark.support.meters import in_turns
from benchmark.support.plots import subplots
from benchmark.support.tables import Result, markdown
from pyg_batchgnn import MacrobatchNeighborLoader, nn, ops

#: Rows, columns and outputs of products: those of a layer of SAGE, and square ones.
SHAPES = ((16_384, 100, 256), (16_384, 200, 256), (16_384, 256, 256))
FLOAT32 = "float32"
MODELS: dict[str, Callable[[], nn.NativeModel]] = {
    "SAGE": lambda: nn.SAGE(100, 256, 2, 47, dropout=DROPOUT),
    "GCN": lambda: nn.GCN(100, 256, 2, 47, dropout=DROPOUT),
    "GAT": lambda: nn.GAT(100, 256, 2, 47, dropout=DROPOUT, heads=4),
}


def _seconds(works: dict[str, Callable[[], object]], rounds: int) -> dict[str, float]:
    return {name: median(seconds) for name, seconds in in_turns(works, rounds).items()}


def _at(level: str, work: Callable[[], Any]) -> Callable[[], Any]:

    def run() -> Any:
        if level != FLOAT32:
            ops.set_bfloat16_level(level)  # type: ignore[arg-type]
        return work()

    return run


def _check(level: str) -> None:
    """Compares a small layer with float64, and with itself on three threads."""
    torch.manual_seed(0)
    x, weight = torch.randn(300, 100).bfloat16(), torch.randn(70, 100).bfloat16()
    wanted = x.double() @ weight.double().t()
    run = _at(level, lambda: ops.linear([x], [weight]))
    found = run()
    with ops.thread_limit(3):
        assert torch.equal(run(), found), f"{level}: other bits on three threads"
    error = (found.double() - wanted).abs().max() / wanted.abs().max()
    assert error < 2**-7, f"{level}: {error} away from float64"


def products(levels: Sequence[str], rounds: int) -> dict[str, dict[str, float]]:
    """Returns GFLOP/s by shape and product, and within these by level or torch's."""
    found = {}
    for rows, columns, outputs in SHAPES:
        operations = 2e-9 * rows * columns * outputs
        for kind in ("forward", "weight gradient", "input gradient"):
            works = {level: _at(level, _product(kind, rows, columns, outputs, level)) for level in levels}
            works["torch.mm"] = _torch_product(kind, rows, columns, outputs)
            seconds = _seconds(works, rounds)
            found[f"{kind}, {columns} to {outputs}"] = {one: operations / seconds[one] for one in seconds}
    return found


def _product(kind: str, rows: int, columns: int, outputs: int, level: str) -> Callable[[], object]:
    dtype = torch.float32 if level == FLOAT32 else torch.bfloat16
    x, weight = torch.randn(rows, columns).to(dtype), torch.randn(outputs, columns).to(dtype)
    if kind == "forward":
        return lambda: ops.linear([x], [weight])
    wanted = (weight if kind == "weight gradient" else x).requires_grad_()
    y = ops.linear([x], [weight])
    grad = torch.randn_like(y)
    return lambda: torch.autograd.grad(y, [wanted], grad, retain_graph=True)


def _torch_product(kind: str, rows: int, columns: int, outputs: int) -> Callable[[], object]:
    x, weight, grad = (
        torch.randn(*size).bfloat16() for size in ((rows, columns), (outputs, columns), (rows, outputs))
    )
    one, two = {
        "forward": (x, weight.t()),
        "weight gradient": (grad.t(), x),
        "input gradient": (grad, weight),
    }[kind]
    out = torch.empty(one.size(0), two.size(1), dtype=torch.bfloat16)
    return lambda: torch.mm(one, two, out=out)


def steps(levels: Sequence[str], nodes: int, rounds: int) -> dict[str, dict[str, float]]:
    """Returns the milliseconds of a step by model, and within these by level."""
    generator = torch.Generator().manual_seed(0)
    edges = torch.randint(nodes, (2, 40 * nodes), generator=generator)
    x, y = torch.randn(nodes, 100, generator=generator), torch.randint(47, (nodes,), generator=generator)
    batches = {
        dtype: list(
            MacrobatchNeighborLoader(
                Data(x=x.to(dtype), y=y, edge_index=edges),
                [15, 10],
                input_nodes=torch.arange(min(nodes, 4096)),
                batch_size=1024,
                seed=0,
                export="native",
            )
        )
        for dtype in (torch.float32, torch.bfloat16)
    }
    found = {}
    for name, make in MODELS.items():
        works = {
            level: _at(level, _step(make(), batches[torch.float32 if level == FLOAT32 else torch.bfloat16]))
            for level in levels
        }
        seconds = _seconds(works, rounds)
        found[name] = {level: 1e3 * seconds[level] / len(batches[torch.float32]) for level in levels}
    return found


def _step(model: nn.NativeModel, batches: Iterable[Any]) -> Callable[[], float]:
    trainer = Trainer(model, learning_rate=1e-3)

    def step() -> float:
        losses = []
        for batch in batches:
            narrow = batch.block["x"].dtype is torch.bfloat16
            with torch.autocast("cpu", torch.bfloat16, enabled=narrow):
                logits = model(batch)
            wanted: Tensor = batch.attribute("y", batch.batch_size)
            loss = torch.nn.functional.cross_entropy(logits.float(), wanted)
            trainer.update(loss)
            losses.append(loss.item())
        return fmean(losses)

    return step


def losses(levels: Sequence[str], epochs: int) -> dict[str, list[float]]:
    """Returns the mean loss of each epoch on amazon_photo by level, from the same weights and
    minibatches."""
    graph = graph_of("amazon_photo", TASKS["amazon_photo"])
    known, found = graph.read("train_idx").long(), {}
    for level in levels:
        torch.manual_seed(0)
        x = graph.x if level == FLOAT32 else graph.x.bfloat16()
        data = Data(x=x, y=graph.y.long(), edge_index=graph.edge_index)
        loader = MacrobatchNeighborLoader(
            data, [15, 10], known, batch_size=512, shuffle=True, seed=0, export="native"
        )
        model = nn.SAGE(graph.num_features, 64, 2, graph.num_classes, dropout=DROPOUT)
        work = _at(level, _step(model, loader))
        found[level] = [work() for _ in range(epochs)]
    return found


def table(result: Result) -> str:
    """Returns the tables of products, of steps and of losses."""
    (one,) = result["series"]
    levels = list(one["losses"])
    columns = [*levels, "torch.mm"]
    rows = [
        [name, *(f"{speed[column]:,.0f}" for column in columns)] for name, speed in one["products"].items()
    ]
    texts = [markdown(["GFLOP/s", *columns], rows)]
    rows = [
        [name, *(f"{cost[level]:.1f} ({cost[level] / cost[FLOAT32]:.2f})" for level in levels)]
        for name, cost in one["steps"].items()
    ]
    texts.append(markdown(["ms per step (against float32)", *levels], rows))
    last = [f"{one['losses'][level][-1]:.4f}" for level in levels]
    return "\n\n".join([*texts, markdown(["amazon_photo", *levels], [["loss of the last epoch", *last]])])


def plot(result: Result) -> Any:
    """Draws the loss of each epoch at each level."""
    figure, ((axes,),) = subplots(figsize=(6, 3.2))
    for number, (level, found) in enumerate(result["series"][0]["losses"].items()):
        axes.plot(range(1, len(found) + 1), found, "o" if number else "-", fillstyle="none", label=level)
    axes.set(xlabel="epoch", ylabel="training loss", ylim=(0, None))
    axes.legend(frameon=False)
    return figure


def main(arguments: Sequence[str] | None = None) -> None:
    """Checks and measures, then stores the JSON file and prints its tables."""
    parser = new_parser(__doc__)
    add = parser.add_argument
    add("--threads", type=int, default=1, help="threads (default: 1)")
    add("--nodes", type=int, default=500_000, help="nodes of the graph of the steps (default: 500,000)")
    add("--rounds", type=int, default=7, help="rounds measured, after one unmeasured (default: 7)")
    chosen = parser.parse_args(arguments)
    torch.set_num_threads(chosen.threads)
    nn.use_products("native")
    levels = [FLOAT32, *ops.bfloat16_levels()]
    for level in levels[1:]:
        _check(level)
    found = {
        "products": products(levels, chosen.rounds),
        "steps": steps(levels, chosen.nodes, chosen.rounds),
        "losses": losses(levels, TASKS["amazon_photo"].epochs),
        "used by default": ops.bfloat16_level(),
    }
    options = {"threads": chosen.threads, "nodes": chosen.nodes, "rounds": chosen.rounds}
    result = stamped("levels", options=options, series=[found])
    write_json(chosen.results / "levels.json", result)
    print(table(result))
