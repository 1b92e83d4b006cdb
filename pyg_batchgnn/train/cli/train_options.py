"""The options of ``batchgnn train`` that set a field of the configuration."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Annotated, Any

import typer

from pyg_batchgnn.train.cli.quantities import parse_size
from pyg_batchgnn.train.errors import TrainError

_MODEL, _SAMPLING, _CACHE, _RUN = "Model and optimiser", "Sampling", "Aggregation cache", "Running"
_TASK = "Task"
_RANKS = "Several ranks (with torchrun)"

Model = Annotated[
    str | None,
    typer.Option(help="Kind of model: sage, gcn, gin or gat. Default: sage.", rich_help_panel=_MODEL),
]
Layers = Annotated[
    str | None,
    typer.Option(
        help="Whose layers: native (fast on CPUs) or pyg (PyG's convolutions). Default: native.",
        rich_help_panel=_MODEL,
    ),
]
NumLayers = Annotated[
    int | None,
    typer.Option(
        help="Number of layers; each needs one number in --fanout. Default: as many as --fanout has, else 3.",
        rich_help_panel=_MODEL,
    ),
]
Hidden = Annotated[
    int | None,
    typer.Option(
        help="Columns between two layers. Default: 256. Fewer train faster and need less memory.",
        rich_help_panel=_MODEL,
    ),
]
Dropout = Annotated[
    float | None,
    typer.Option(
        help="Probability of setting an element between layers to zero. Default: 0.5. Raise it against "
        "overfitting. GIN has none.",
        rich_help_panel=_MODEL,
    ),
]
Heads = Annotated[
    int | None,
    typer.Option(
        help="Attention heads per layer of GAT; they share the hidden columns. Default: 4.",
        rich_help_panel=_MODEL,
    ),
]
LearningRate = Annotated[
    float | None,
    typer.Option(
        "--lr",
        help="Learning rate of Adam. Default: 0.003. Lower it if the loss jumps.",
        rich_help_panel=_MODEL,
    ),
]
WeightDecay = Annotated[
    float | None,
    typer.Option(
        help="Factor of Adam's L2 penalty. Default: 0. Raise it, as to 0.0005, against overfitting.",
        rich_help_panel=_MODEL,
    ),
]

Task = Annotated[
    str | None,
    typer.Option(
        help="What is predicted for each node: classes (one of several), labels (any number of them), values "
        "(numbers), or auto: integers [N] are classes, integers or booleans [N, C] labels, floats values. "
        "Default: auto.",
        rich_help_panel=_TASK,
    ),
]
Loss = Annotated[
    str | None,
    typer.Option(help="Loss of values: mse or mae. Default: mse.", rich_help_panel=_TASK),
]
ClassWeights = Annotated[
    str | None,
    typer.Option(
        help="Weights in the loss: one number per class, as in 1,1,5, or per label for the nodes that have "
        "it; balanced makes rare classes weigh as much as frequent ones. Default: all weigh the same.",
        rich_help_panel=_TASK,
    ),
]
MetricOption = Annotated[
    str | None,
    typer.Option(
        "--metric",
        help="Metric of validation nodes that chooses the best epoch: accuracy or macro_f1 for classes; "
        "roc_auc, average_precision, micro_f1 or macro_f1 for labels; mae or rmse for values. Default: the "
        "first; for values that of the loss.",
        rich_help_panel=_TASK,
    ),
]

Fanout = Annotated[
    str | None,
    typer.Option(
        help="Neighbours to sample per node at each hop, as in 15,10,5; -1 takes all. Default: 15,10,5. "
        "Smaller numbers are faster and less accurate.",
        rich_help_panel=_SAMPLING,
    ),
]
TestFanout = Annotated[
    str | None,
    typer.Option(
        help="The same for evaluation. Default: 20 at each hop; for gin, --fanout.",
        rich_help_panel=_SAMPLING,
    ),
]
ReplacementOption = Annotated[
    str | None,
    typer.Option(
        "--replacement",
        help="Sample neighbours with or without replacement. Default: with, as BatchGNN; PyG's default "
        "is without.",
        rich_help_panel=_SAMPLING,
    ),
]
BatchSize = Annotated[
    int | None,
    typer.Option(
        help="Training nodes per minibatch on each rank. Default: 1024. Lower it for small graphs.",
        rich_help_panel=_SAMPLING,
    ),
]
LastBatch = Annotated[
    str | None,
    typer.Option(
        help="drop or keep an epoch's last, smaller minibatch. Default: drop.", rich_help_panel=_SAMPLING
    ),
]
Macrobatch = Annotated[
    str | None,
    typer.Option(
        "--macrobatch",
        "--macrobatch-size",
        help="Minibatches that are sampled together: a number, all of an epoch, or auto. Default: auto. More "
        "need more memory and fewer exchanges between ranks. Results do not change.",
        rich_help_panel=_SAMPLING,
    ),
]
Fetch = Annotated[
    str | None,
    typer.Option(
        "--fetch",
        "--fetch-size",
        help="Minibatches that have their features fetched together: a number, all of a macrobatch, or auto. "
        "Default: auto. Fewer need less memory. Results do not change.",
        rich_help_panel=_SAMPLING,
    ),
]
MemoryBudget = Annotated[
    str | None,
    typer.Option(
        help="Memory that the loader may use on each rank, as in 2GiB or 500MB; auto sizes fit into it. "
        "Default: an eighth of the free memory.",
        rich_help_panel=_SAMPLING,
    ),
]
Prefetch = Annotated[
    int | None,
    typer.Option(
        help="Macrobatches to prepare during training. Default: 0. Set 1 if cores or the network are idle; "
        "it needs more memory.",
        rich_help_panel=_SAMPLING,
    ),
]

Cache = Annotated[
    str | None,
    typer.Option(
        help="aggregation replaces the last hop by aggregates of all neighbours, built before training "
        "(native sage, gcn and gin); off samples every hop. Default: off. It is faster and changes the "
        "trained model.",
        rich_help_panel=_CACHE,
    ),
]
CacheFolder = Annotated[
    str | None,
    typer.Option(
        help="Folder of the aggregates: read if it exists, else written. Default: build them in every run.",
        rich_help_panel=_CACHE,
    ),
]
Evaluation = Annotated[
    str | None,
    typer.Option(
        help="How nodes are evaluated: sampled, by --test-fanout, or exact, from all their neighbours, "
        "layer by layer over all nodes (native layers). Default: sampled.",
        rich_help_panel=_SAMPLING,
    ),
]

EvaluateWithCache = Annotated[
    bool | None,
    typer.Option(
        "--evaluate-with-cache/--evaluate-without-cache",
        help="Evaluate with the aggregates too. Default: with them for gin, without for sage and gcn.",
        rich_help_panel=_CACHE,
    ),
]

Epochs = Annotated[
    int | None,
    typer.Option(help="Passes over the training nodes. Default: 20.", rich_help_panel=_RUN),
]
EvaluateEvery = Annotated[
    int | None,
    typer.Option(
        help="Epochs between two validations; the last epoch is always validated. Default: 1.",
        rich_help_panel=_RUN,
    ),
]
Patience = Annotated[
    int | None,
    typer.Option(
        help="Stop after this many validations in a row without a better metric. Default: train all epochs.",
        rich_help_panel=_RUN,
    ),
]
Seed = Annotated[
    int | None,
    typer.Option(
        help="Determines initial weights, order of nodes, samples and dropout. Default: 0. The same seed "
        "repeats a run.",
        rich_help_panel=_RUN,
    ),
]
Threads = Annotated[
    int | None,
    typer.Option(
        help="Threads of torch and the loader on each rank. Default: one per core, shared by the ranks of "
        "a host.",
        rich_help_panel=_RUN,
    ),
]
Precision = Annotated[
    str | None,
    typer.Option(
        help="float32, or bfloat16 for features, activations and products: half the memory, and faster on "
        "CPUs with AMX or AVX-512 BF16. Default: float32.",
        rich_help_panel=_RUN,
    ),
]

Partition = Annotated[
    str | None,
    typer.Option(
        help="Which rank owns which node: random, contiguous, ldg, fennel, or the folder of a saved "
        "partition. Default: random. ldg and fennel take longer to make and send less in training.",
        rich_help_panel=_RANKS,
    ),
]
Hybrid = Annotated[
    bool | None,
    typer.Option(
        "--hybrid/--no-hybrid",
        help="Keep all edges on every rank, so that only features travel. Default: no. Use it if the edges "
        "fit the memory of each rank.",
        rich_help_panel=_RANKS,
    ),
]
FeatureCache = Annotated[
    str | None,
    typer.Option(
        help="Memory per rank for the features of other hosts that are needed most, as in 2GiB. Default: "
        "none.",
        rich_help_panel=_RANKS,
    ),
]
ScheduleOption = Annotated[
    str | None,
    typer.Option(
        "--schedule",
        help="local: each rank trains on the nodes that it owns, which sends least. global: the ranks share "
        "the minibatches of one process, whatever their number. Default: local.",
        rich_help_panel=_RANKS,
    ),
]
Backend = Annotated[
    str | None,
    typer.Option(
        help="Backend of torch.distributed, as in gloo or ccl; batchgnn doctor shows which work here. "
        "Default: gloo.",
        rich_help_panel=_RANKS,
    ),
]
Timeout = Annotated[
    float | None,
    typer.Option(
        help="Seconds that a rank waits for the others before it ends with an error. Default: 600.",
        rich_help_panel=_RANKS,
    ),
]

#: The field that each option sets.
FIELDS: Mapping[str, str] = {
    "model": "model.kind",
    "layers": "model.layers",
    "num_layers": "model.num_layers",
    "hidden": "model.hidden",
    "dropout": "model.dropout",
    "heads": "model.heads",
    "lr": "optimiser.learning_rate",
    "evaluation": "sampling.evaluation",
    "weight_decay": "optimiser.weight_decay",
    "task": "task.kind",
    "loss": "task.loss",
    "class_weights": "task.class_weights",
    "metric": "task.metric",
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
    "evaluate_every": "run.evaluate_every",
    "patience": "run.patience",
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

#: The options that mean nothing in one process.
OF_RANKS = ("partition", "hybrid", "feature_cache", "backend", "timeout")

#: The options with a number of bytes as their value.
_SIZES = ("memory_budget", "feature_cache")


def assignments(given: Mapping[str, Any], settings: list[str]) -> list[str]:
    """Returns the fields that the user wants to set, as texts for `assign`.

    A fanout without a number of layers sets the number of layers too.

    Args:
        given: the value of each option by its name, None if it was not given.
        settings: the texts given with ``--set``. They come last.

    Raises:
        TrainError: a size is not a number of bytes, or ``--layers`` is a number.
    """
    texts = []
    layers = str(given.get("layers"))
    if layers.isdecimal():
        raise TrainError(
            f"--layers {layers}: it chooses native or pyg layers; for the number of layers use "
            f"--num-layers {layers}"
        )
    if given.get("fanout") is not None and given.get("num_layers") is None:
        texts.append(f"model.num_layers={len(str(given['fanout']).split(','))}")
    for option, value in given.items():
        if value is None:
            continue
        shown = parse_size(value) if option in _SIZES else value
        shown = json.dumps(shown) if isinstance(shown, bool) else shown
        texts.append(f"{FIELDS[option]}={shown}")
    return texts + settings
