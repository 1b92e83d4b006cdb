"""The options of ``batchgnn train`` that stand for a field of the configuration."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Annotated, Any

import typer

from pyg_batchgnn.loader import parse_bytes as as_bytes
from pyg_batchgnn.train.errors import TrainError

_MODEL, _SAMPLING, _RUN = "Model and optimiser", "Sampling", "Running"
_RANKS = "Several ranks (with torchrun)"

Model = Annotated[str | None, typer.Option(help="sage, gcn, gin or gat.", rich_help_panel=_MODEL)]
Layers = Annotated[
    str | None, typer.Option(help="native, or pyg for PyG's convolutions.", rich_help_panel=_MODEL)
]
NumLayers = Annotated[
    int | None, typer.Option(help="Number of layers, one hop each.", rich_help_panel=_MODEL)
]
Hidden = Annotated[int | None, typer.Option(help="Columns between layers.", rich_help_panel=_MODEL)]
Dropout = Annotated[float | None, typer.Option(help="Not for GIN.", rich_help_panel=_MODEL)]
Heads = Annotated[int | None, typer.Option(help="Attention heads of GAT.", rich_help_panel=_MODEL)]
LearningRate = Annotated[float | None, typer.Option("--lr", help="Of Adam.", rich_help_panel=_MODEL)]

Fanout = Annotated[
    str | None,
    typer.Option(help="Neighbours a node by hop, as in 15,10,5; -1 is all.", rich_help_panel=_SAMPLING),
]
TestFanout = Annotated[
    str | None,
    typer.Option(
        help="The same for evaluation; 20 a hop, for GIN as in training.", rich_help_panel=_SAMPLING
    ),
]
ReplacementOption = Annotated[
    str | None,
    typer.Option("--replacement", help="with or without.", rich_help_panel=_SAMPLING),
]
BatchSize = Annotated[
    int | None, typer.Option(help="Training nodes a minibatch, on each rank.", rich_help_panel=_SAMPLING)
]
LastBatch = Annotated[
    str | None, typer.Option(help="drop or keep a last, smaller minibatch.", rich_help_panel=_SAMPLING)
]
Macrobatch = Annotated[
    str | None,
    typer.Option(
        "--macrobatch",
        "--macrobatch-size",
        help='Minibatches sampled together, or "auto".',
        rich_help_panel=_SAMPLING,
    ),
]
Fetch = Annotated[
    str | None,
    typer.Option(
        "--fetch",
        "--fetch-size",
        help='Minibatches whose features are fetched together, or "auto".',
        rich_help_panel=_SAMPLING,
    ),
]
MemoryBudget = Annotated[
    str | None, typer.Option(help="Memory for the loader, as in 2GiB or 500MB.", rich_help_panel=_SAMPLING)
]
Prefetch = Annotated[
    int | None, typer.Option(help="Macrobatches prepared beside training.", rich_help_panel=_SAMPLING)
]

Cache = Annotated[
    str | None,
    typer.Option(
        help="aggregation: aggregates of all neighbours, made before training, instead of the last hop "
        "(native sage, gcn, gin); or off.",
        rich_help_panel=_SAMPLING,
    ),
]
CacheFolder = Annotated[
    str | None,
    typer.Option(
        help="Where the cache is kept: read if it is there, else written.", rich_help_panel=_SAMPLING
    ),
]
EvaluateWithCache = Annotated[
    bool | None,
    typer.Option(
        "--evaluate-with-cache/--evaluate-without-cache",
        help="Default: with for GIN, without for SAGE and GCN.",
        rich_help_panel=_SAMPLING,
    ),
]

Epochs = Annotated[int | None, typer.Option(help="Passes over the training nodes.", rich_help_panel=_RUN)]
Seed = Annotated[int | None, typer.Option(help="Of weights, order, samples, dropout.", rich_help_panel=_RUN)]
Threads = Annotated[
    int | None, typer.Option(help="Of torch and of the loader; default one a core.", rich_help_panel=_RUN)
]
Precision = Annotated[
    str | None,
    typer.Option(help="float32, or bfloat16 for features, activations and products.", rich_help_panel=_RUN),
]

Partition = Annotated[
    str | None,
    typer.Option(
        help="Who owns which node: random, contiguous, ldg, fennel, or the folder of a saved partition.",
        rich_help_panel=_RANKS,
    ),
]
Hybrid = Annotated[
    bool | None,
    typer.Option(
        "--hybrid/--no-hybrid",
        help="Every rank has all edges, so that only features travel.",
        rich_help_panel=_RANKS,
    ),
]
FeatureCache = Annotated[
    str | None,
    typer.Option(
        help="Memory of a rank for rows of other hosts that are needed most, as in 2GiB; none by default.",
        rich_help_panel=_RANKS,
    ),
]
ScheduleOption = Annotated[
    str | None,
    typer.Option(
        "--schedule",
        help="local: a rank trains the nodes it owns; global: the minibatches of one process, in turns.",
        rich_help_panel=_RANKS,
    ),
]
Backend = Annotated[
    str | None, typer.Option(help="Of torch.distributed; gloo by default.", rich_help_panel=_RANKS)
]
Timeout = Annotated[
    float | None,
    typer.Option(help="Seconds to wait for a rank before giving up; 600.", rich_help_panel=_RANKS),
]

FIELDS: Mapping[str, str] = {
    "model": "model.kind",
    "layers": "model.layers",
    "num_layers": "model.num_layers",
    "hidden": "model.hidden",
    "dropout": "model.dropout",
    "heads": "model.heads",
    "lr": "optimiser.learning_rate",
    "fanout": "sampling.fanout",
    "test_fanout": "sampling.test_fanout",
    "replacement": "sampling.replacement",
    "batch_size": "sampling.batch_size",
    "last_batch": "sampling.last_batch",
    "macrobatch": "sampling.macrobatch_size",
    "fetch": "sampling.fetch_size",
    "memory_budget": "sampling.memory_budget",
    "prefetch": "sampling.prefetch",
    "cache": "sampling.cache",
    "cache_folder": "sampling.cache_folder",
    "evaluate_with_cache": "sampling.evaluate_with_cache",
    "dataset": "run.dataset",
    "epochs": "run.epochs",
    "seed": "run.seed",
    "threads": "run.threads",
    "precision": "run.precision",
    "partition": "ranks.partition",
    "hybrid": "ranks.hybrid",
    "feature_cache": "ranks.feature_cache",
    "schedule": "ranks.schedule",
    "backend": "ranks.backend",
    "timeout": "ranks.timeout",
}

#: Options whose value is a number of bytes.
_BYTES = ("memory_budget", "feature_cache")


def assignments(given: Mapping[str, Any], settings: list[str]) -> list[str]:
    """What the user asked to change, as texts for `assign`: options first, then ``--set``.

    A fanout without a number of layers sets that as well.

    Raises:
        TrainError: a memory budget that is no number of bytes, or a number where the layers are
            named.
    """
    texts = []
    layers = str(given.get("layers"))
    if layers.isdecimal():
        raise TrainError(
            f"--layers {layers}: it says whose layers they are, native or pyg; "
            f"for their number use --num-layers {layers}"
        )
    if given.get("fanout") is not None and given.get("num_layers") is None:
        texts.append(f"model.num_layers={len(str(given['fanout']).split(','))}")
    for option, value in given.items():
        if value is None:
            continue
        shown = parse_bytes(value) if option in _BYTES else value
        shown = json.dumps(shown) if isinstance(shown, bool) else shown
        texts.append(f"{FIELDS[option]}={shown}")
    return texts + settings


def parse_bytes(text: str) -> int:
    """As `pyg_batchgnn.loader.parse_bytes`.

    Raises:
        TrainError: it is no number of bytes.
    """
    try:
        return as_bytes(text)
    except ValueError as error:
        raise TrainError(str(error)) from error
