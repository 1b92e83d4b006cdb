"""``batchgnn train``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from pyg_batchgnn.train.cli import options
from pyg_batchgnn.train.config import DEFAULT_PRESET, PRESETS, assign, preset, read_config
from pyg_batchgnn.train.errors import TrainError
from pyg_batchgnn.train.loop import RunOutcome
from pyg_batchgnn.train.run import resume_run, start_or_resume_run, start_run

_INTERRUPTED = 130


def train(
    dataset: Annotated[
        str | None,
        typer.Argument(
            help='Name, "generated:nodes=100000", or folder; default: a real graph where one is found. '
            "[bold]batchgnn datasets[/bold] lists names."
        ),
    ] = None,
    preset_name: Annotated[
        str, typer.Option("--preset", help=f"Configuration to start from: {', '.join(PRESETS)}.")
    ] = DEFAULT_PRESET,
    config: Annotated[
        Path | None, typer.Option(help="A config.json to start from instead of a preset.")
    ] = None,
    resume: Annotated[
        Path | None,
        typer.Option(
            help="A run folder to go on with, exactly where it stopped; "
            '"auto": that of --run where it has a checkpoint, else start it.'
        ),
    ] = None,
    run: Annotated[
        Path | None,
        typer.Option(
            "--run",
            "--run-folder",
            help="Folder to write; default runs/<dataset>-<model>-<n>. (torchrun takes --run for its own.)",
        ),
    ] = None,
    settings: Annotated[
        list[str] | None,
        typer.Option("--set", help="Any field, as in optimiser.weight_decay=0.0005; may be repeated."),
    ] = None,
    model: options.Model = None,
    layers: options.Layers = None,
    num_layers: options.NumLayers = None,
    hidden: options.Hidden = None,
    dropout: options.Dropout = None,
    heads: options.Heads = None,
    lr: options.LearningRate = None,
    fanout: options.Fanout = None,
    test_fanout: options.TestFanout = None,
    replacement: options.ReplacementOption = None,
    batch_size: options.BatchSize = None,
    last_batch: options.LastBatch = None,
    macrobatch: options.Macrobatch = None,
    fetch: options.Fetch = None,
    memory_budget: options.MemoryBudget = None,
    prefetch: options.Prefetch = None,
    cache: options.Cache = None,
    cache_folder: options.CacheFolder = None,
    evaluate_with_cache: options.EvaluateWithCache = None,
    epochs: options.Epochs = None,
    seed: options.Seed = None,
    threads: options.Threads = None,
    precision: options.Precision = None,
    partition: options.Partition = None,
    hybrid: options.Hybrid = None,
    feature_cache: options.FeatureCache = None,
    schedule: options.ScheduleOption = None,
    backend: options.Backend = None,
    timeout: options.Timeout = None,
) -> int:
    """Train a model and write a run folder.

    Prints a line an epoch and a table at the end: test accuracy at the
    best validation epoch, and where the time went. The run folder holds
    config.json, metrics.jsonl, checkpoint.safetensors, result.json and
    two plots. Ctrl-C saves a checkpoint; [bold]--resume[/bold] goes on from it and
    ends with the very same weights.

    [bold]Examples[/bold]

      batchgnn train

      batchgnn train cora --model gcn --batch-size 64 --epochs 30

      batchgnn train ogbn-products --threads 16 --prefetch 1 --precision bfloat16

      batchgnn train cora --layers pyg --fanout 15,10 --batch-size 64

      batchgnn train cora --cache aggregation --fanout 15,10,5 --batch-size 64

      batchgnn train ogbn-papers100M --preset p3 --run runs/p3

      batchgnn train --resume runs/cora-gcn-1 --epochs 60

      batchgnn train --config runs/cora-gcn-1/config.json --seed 1

    Several processes train together under torchrun; a step then takes a
    minibatch of every rank. Started again with [bold]--resume auto[/bold], by torchrun
    or by you, a run goes on from its last checkpoint.

      torchrun --nproc-per-node=4 -m pyg_batchgnn train cora --partition ldg

      torchrun --nproc-per-node=4 --max-restarts=3 -m pyg_batchgnn train ogbn-products
        --schedule global --run-folder runs/products --resume auto
    """
    given = {
        "model": model,
        "layers": layers,
        "num_layers": num_layers,
        "hidden": hidden,
        "dropout": dropout,
        "heads": heads,
        "lr": lr,
        "fanout": fanout,
        "test_fanout": test_fanout,
        "replacement": replacement,
        "batch_size": batch_size,
        "last_batch": last_batch,
        "macrobatch": macrobatch,
        "fetch": fetch,
        "memory_budget": memory_budget,
        "prefetch": prefetch,
        "cache": cache,
        "cache_folder": cache_folder,
        "evaluate_with_cache": evaluate_with_cache,
        "dataset": dataset,
        "epochs": epochs,
        "seed": seed,
        "threads": threads,
        "precision": precision,
        "partition": partition,
        "hybrid": hybrid,
        "feature_cache": feature_cache,
        "schedule": schedule,
        "backend": backend,
        "timeout": timeout,
    }
    console = Console()
    changes = options.assignments(given, settings or [])
    base = preset(preset_name) if config is None else read_config(config)
    if resume == Path("auto"):
        if run is None:
            raise TrainError("--resume auto needs --run FOLDER, the run to go on with or to start")
        outcome = start_or_resume_run(assign(base, changes), run, console)
    elif resume is not None:
        if config is not None or run is not None or preset_name != DEFAULT_PRESET:
            raise TrainError(
                "--resume goes on with its own configuration and folder: drop --config, --run, --preset"
            )
        outcome = resume_run(resume, changes, console)
    else:
        outcome = start_run(assign(base, changes), run, console)
    return _INTERRUPTED if outcome is RunOutcome.INTERRUPTED else 0
