"""Rows of one byte, against float32 and bfloat16, from one machine and over ranks.

    python -m benchmark narrow --graph /data/products           all parts; `wire` needs root
    python -m benchmark narrow --parts wire --network loopback  bytes alone
    python -m benchmark narrow --parts accuracy --seeds-paired 20

Parts:

    loading   PyG batches of one sample: float32 rows, int8 to float32, int8 to bfloat16
    steps     native SAGE, GCN and GAT steps: float32, bfloat16, int8, int8 in bfloat16
    wire      an epoch's minibatches on 4 ranks, B = 1: bytes by the layout, and seconds
    accuracy  int8 against float32 over paired seeds, SAGE and GAT, on real graphs; a run that is
              stopped goes on where it was
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from benchmark.accuracy import INT8, TASKS, compare, graph_of, train_all
from benchmark.narrow.jobs import MODELS
from benchmark.support.cli import pieces_folder, seeds_done
from benchmark.support.harness import ProcessSetting
from benchmark.support.ranks import Answer, Measured, RankWorkload, measure_parts, workload_parser
from benchmark.support.start import in_process
from benchmark.support.tables import threads_in_words
from pyg_batchgnn.partition import quantize_partition

JOBS, RANKS = "benchmark.narrow.jobs", 4
#: The models whose accuracy is compared, and the forms: the first against the second.
COMPARED, PAIR = ("SAGE", "GAT"), {INT8: "int8", "native": "float32"}


def _in_process(job: str, order: dict[str, Any], threads: int) -> Answer:
    environment = ProcessSetting(threads=threads, malloc="kept").environment()
    found: Answer = in_process(JOBS, job, {**order, "threads": threads}, environment=environment)
    return found


def _order(bench: RankWorkload, batches: int) -> dict[str, Any]:
    return {
        "graph": str(bench.graph.path.resolve()),
        "fanouts": bench.fanouts,
        "batch_size": bench.batch_size,
        "hidden": bench.hidden,
        "batches": batches,
        "rounds": bench.rounds,
    }


def _loading(batches: int, threads: Sequence[int], bench: RankWorkload) -> Iterator[Answer]:
    for count in threads:
        yield {"setting": threads_in_words(count), **_in_process("loading", _order(bench, batches), count)}


def _steps(batches: int, threads: Sequence[int], bench: RankWorkload) -> Iterator[Answer]:
    for count in threads:
        for model in MODELS:
            about = {"setting": threads_in_words(count), "model": model}
            yield {**about, **_in_process("steps", {**_order(bench, batches), "model": model}, count)}


def _wire(bench: RankWorkload) -> Iterator[Answer]:
    wide = Path(bench.partition(RANKS))
    narrow = wide.with_name(f"{wide.name}-int8")
    if not narrow.is_dir():
        quantize_partition(wide, narrow)
    with bench.world(RANKS) as world:
        for number in range(bench.rounds):
            for form, folder in (("float32", wide), ("int8", narrow)):
                about = {"setting": f"{form}, round {number + 1}", "form": form}
                yield bench.entry(world, "preparation", about, macrobatch=1, partition=str(folder), epochs=2)


def _accuracy(
    names: Sequence[str], seeds: int, jobs: int, results: Path, _: RankWorkload
) -> Iterator[Answer]:
    tasks = {
        f"{name}-{model}": (graph_of(name, TASKS[name]), replace(TASKS[name], model=model))
        for name in names
        for model in COMPARED
    }
    pieces = pieces_folder(results, "narrow")
    for reason in train_all(tasks, list(PAIR), seeds, pieces, jobs).values():
        raise RuntimeError(reason)
    for name, (_graph, task) in tasks.items():
        tests = {}
        for side, form in PAIR.items():
            done = seeds_done(pieces / f"{name}-{side}.jsonl", asdict(task))
            tests[form] = np.array([done[seed]["test"] for seed in range(seeds)])
        means = {form: 100 * float(found.mean()) for form, found in tests.items()}
        about = {"setting": name.rpartition("-")[0], "model": task.model.lower(), "seeds": seeds}
        yield {**about, "mean": means, **compare(*tests.values())}


def main(arguments: Sequence[str] | None = None) -> None:
    """Measures the chosen parts in turn; stored results of others stay."""
    parser = workload_parser(__doc__, ["loading", "steps", "wire", "accuracy"])
    add = parser.add_argument
    add("--threads", type=int, nargs="+", default=[1, 2], help="thread counts of loading and steps")
    add("--batches", type=int, default=8, help="minibatches of a round of loading and steps")
    add("--tasks", nargs="+", choices=list(TASKS), default=list(TASKS), help="graphs of accuracy")
    add("--seeds-paired", type=int, default=20, help="paired seeds of accuracy, at least 2")
    add("--jobs", type=int, default=2, help="processes of accuracy at a time, of one thread each")
    options = parser.parse_args(arguments)
    parts: dict[str, Measured] = {
        "loading": partial(_loading, options.batches, options.threads),
        "steps": partial(_steps, options.batches, options.threads),
        "wire": _wire,
        "accuracy": partial(_accuracy, options.tasks, options.seeds_paired, options.jobs, options.results),
    }
    measure_parts("narrow", parts, {}, RankWorkload.parse(options), options)
