"""The fields of the configuration that the options of ``batchgnn train`` set."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from pyg_batchgnn.train.cli.quantities import parse_size

#: The field that each option sets.
FIELDS: Mapping[str, str] = {
    "model": "model.kind",
    "num_layers": "model.num_layers",
    "hidden": "model.hidden",
    "dropout": "model.dropout",
    "heads": "model.heads",
    "lr": "optimiser.learning_rate",
    "evaluation": "sampling.evaluation",
    "weight_decay": "optimiser.weight_decay",
    "embed": "embedding.types",
    "embed_columns": "embedding.columns",
    "embed_rule": "embedding.rule",
    "embed_lr": "embedding.learning_rate",
    "node_type": "task.node_type",
    "task": "task.kind",
    "loss": "task.loss",
    "class_weights": "task.class_weights",
    "metric": "task.metric",
    "edge_type": "task.edge_type",
    "reverse_edge_type": "task.reverse_edge_type",
    "decoder": "task.decoder",
    "negatives": "task.negatives",
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
    "reverse": "run.reverse_relations",
    "epochs": "run.epochs",
    "evaluate_every": "run.evaluate_every",
    "patience": "run.patience",
    "seed": "run.seed",
    "threads": "run.threads",
    "precision": "run.precision",
    "matrix_product": "run.matrix_product",
    "partition": "ranks.partition",
    "hybrid": "ranks.hybrid",
    "feature_cache": "ranks.feature_cache",
    "schedule": "ranks.schedule",
    "remote": "ranks.remote",
    "cache_lines": "ranks.cache_lines",
    "life_span": "ranks.life_span",
    "push": "ranks.push",
    "delay": "ranks.delay",
    "backend": "ranks.backend",
    "timeout": "ranks.timeout",
}

#: The options with a number of bytes as their value.
_SIZES = ("memory_budget", "feature_cache")


def assignments(given: Mapping[str, Any], settings: list[str]) -> list[str]:
    """Returns the fields that the user wants to set, as texts for `assign`.

    A fanout without a number of layers sets the number of layers too.

    Args:
        given: the value of each option by its name, None if it was not given.
        settings: the texts given with ``--set``. They come last.

    Raises:
        TrainError: a size is not a number of bytes.
    """
    texts = []
    if given.get("fanout") is not None and given.get("num_layers") is None:
        texts.append(f"model.num_layers={len(str(given['fanout']).split(','))}")
    for option, value in given.items():
        if value is None:
            continue
        shown = parse_size(value) if option in _SIZES else value
        shown = json.dumps(shown) if isinstance(shown, bool) else shown
        texts.append(f"{FIELDS[option]}={shown}")
    return texts + settings
