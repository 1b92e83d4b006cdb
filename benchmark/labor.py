"""Test accuracy on minibatches whose destinations share the words of sources (LABOR).

Native models are trained on plain minibatches and by each strength, over paired seeds, on real
graphs and on one with communities. A pair shares initial weights and the order of the training
nodes. A run that is stopped goes on where it was, see `accuracy`.
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, replace

import numpy as np

from benchmark.accuracy import LABOR, AccuracyTask, compare, graph_of, train_missing
from benchmark.support.cli import Peers, new_parser, pieces_folder, seeds_done, write_datasets
from benchmark.support.graphs import GraphFolder, dataset_folder
from benchmark.support.tables import Result, markdown

SIDES = ("native", *LABOR)
GRAPHS = {
    "cora": AccuracyTask(epochs=40, batch_size=64),
    "amazon_photo": AccuracyTask(epochs=15, batch_size=512),
    "facebook_pages": AccuracyTask(epochs=6, batch_size=512),
    "oewn": AccuracyTask(epochs=5, batch_size=1024),
    "communities": AccuracyTask(epochs=10, batch_size=256, features=None),
}
FANOUTS = ((10, 5), (15, 10, 5))
MODELS = ("SAGE", "GAT")


def opened(name: str, task: AccuracyTask) -> GraphFolder:
    if name != "communities":
        return graph_of(name, task)
    options = {"nodes": 20_000, "degree": 20.0, "features": 64, "signal": 0.4, "train": 0.2}
    return dataset_folder(name, "generated", **options)


def tasks() -> dict[tuple[str, str, tuple[int, ...]], AccuracyTask]:
    return {
        (name, model, fanouts): replace(task, model=model, fanouts=fanouts)
        for name, task in GRAPHS.items()
        for model in MODELS
        for fanouts in FANOUTS
    }


def main(arguments: Sequence[str] | None = None) -> None:
    """Trains what is missing, then stores the JSON file."""
    parser = new_parser(__doc__)
    parser.add_argument("--seeds", type=int, default=20, help="paired seeds, at least 2")
    parser.add_argument("--jobs", type=int, default=2, help="processes at a time, of one thread each")
    parsed = parser.parse_args(arguments)
    pieces = pieces_folder(parsed.results, "labor")
    outputs = {
        (place, side): pieces / f"{place[0]}-{place[1]}-{len(place[2])}-{side}.jsonl"
        for place in tasks()
        for side in SIDES
    }
    graphs = {name: opened(name, task) for name, task in GRAPHS.items()}  # before processes look for them
    peers = Peers({})
    with ThreadPoolExecutor(parsed.jobs) as pool:
        for place, task in tasks().items():
            for side in SIDES:
                output = outputs[place, side]
                pool.submit(train_missing, graphs[place[0]], task, side, parsed.seeds, peers, output)
    found = {}
    for place, task in tasks().items():
        tests = {}
        for side in SIDES:
            records = seeds_done(outputs[place, side], asdict(task))
            tests[side] = np.array([records[seed]["test"] for seed in range(parsed.seeds)])
        found["-".join((*place[:2], str(len(place[2]))))] = {
            "task": asdict(task),
            "graph": place[0],
            "seeds": parsed.seeds,
            "mean": {side: 100 * float(values.mean()) for side, values in tests.items()},
            "against plain": {side: compare(tests[side], tests["native"]) for side in LABOR},
        }
    write_datasets(parsed.results / "labor.json", found)


def table(result: Result) -> str:
    """Returns the mean test accuracy, and by strength the paired difference with its bound."""
    rows = []
    for found in result["datasets"].values():
        task = found["task"]
        differences = [found["against plain"][side] for side in LABOR]
        rows.append(
            [
                f"{found['graph']}, {task['model']}, {', '.join(map(str, task['fanouts']))}",
                f"{found['mean']['native']:.2f}",
                *(f"{one['mean_difference']:+.2f} ({one['lower_95']:+.2f})" for one in differences),
            ]
        )
    return markdown(["", "plain %", *(f"{one} (lower 95 % bound)" for one in LABOR.values())], rows)
