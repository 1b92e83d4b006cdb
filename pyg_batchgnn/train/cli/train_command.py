"""The command ``batchgnn train``."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from pyg_batchgnn.train.cli.options import OF_TABLE, assignments, opt, with_options
from pyg_batchgnn.train.config.table import OPTIONS
from pyg_batchgnn.train.config.train_config import (
    DEFAULT_PRESET,
    PRESETS,
    TrainConfig,
    assign,
    preset,
    read_config,
)
from pyg_batchgnn.train.errors import TrainError

INTERRUPTED = 130  # the exit status of a run that was asked to stop


@with_options(OF_TABLE)
def train(
    dataset: Annotated[
        str | None,
        typer.Argument(
            help='Name of a data set, "generated:nodes=100000", or a folder. '
            "[bold]batchgnn datasets[/bold] lists the names. Default: a real graph if one is found, else a "
            "generated one."
        ),
    ] = None,
    preset_name: Annotated[
        str,
        opt(f"Ready configuration to start from: {', '.join(PRESETS)}. Other options change it.", "--preset"),
    ] = DEFAULT_PRESET,
    config: Annotated[
        Path | None, opt("config.json to start from, as in a run folder, instead of a preset.")
    ] = None,
    resume: Annotated[
        Path | None,
        opt(
            "Run folder to continue exactly where it stopped. "
            '"auto" continues the run of --run if it has a checkpoint, else starts it.'
        ),
    ] = None,
    run: Annotated[
        Path | None,
        opt(
            "New run folder. Default: runs/<dataset>-<model>-<n>. Under torchrun use the longer name.",
            "--run",
            "--run-folder",
        ),
    ] = None,
    settings: Annotated[
        list[str] | None,
        opt(
            "Any field of the configuration, as in run.checkpoint_seconds=60; may be repeated. "
            "A run's config.json shows all fields.",
            "--set",
        ),
    ] = None,
    **given: Any,
) -> int:
    """Trains a model and writes a run folder.

    Prints one line per epoch, and a table at the end: the test metrics of
    the epoch with the best validation, and the time per phase. The run folder
    holds config.json, metrics.jsonl, checkpoint.safetensors, result.json and
    two plots. Ctrl-C saves a checkpoint. [bold]--resume[/bold] continues
    from it and ends with the same weights, bit for bit.

    [bold]Examples[/bold]

      batchgnn train

      batchgnn train cora --model gcn --batch-size 64 --epochs 30

      batchgnn train ogbn-products --threads 16 --prefetch 1 --precision bfloat16

      batchgnn train cora --cache aggregation --fanout 15,10,5 --batch-size 64

      batchgnn train ogbn-mag --node-type paper --reverse --fanout 10,10

      batchgnn train ogbl-collab --task link --metric hits@50 --fanout 15,10

      batchgnn train bank-data --task edge-class --edge-type card,pays,merchant

      batchgnn train ogbn-papers100M --preset p3 --run runs/p3

      batchgnn train --resume runs/cora-gcn-1 --epochs 60

      batchgnn train --config runs/cora-gcn-1/config.json --seed 1

    Several ranks train together under torchrun. A step then takes one
    minibatch per rank. With [bold]--resume auto[/bold] a run that is started again, by
    torchrun or by you, continues from its last checkpoint.

      torchrun --nproc-per-node=4 -m pyg_batchgnn train cora --partition ldg

      torchrun --nproc-per-node=4 --max-restarts=3 -m pyg_batchgnn train cora
        --schedule global --run-folder runs/cora --resume auto
    """
    from pyg_batchgnn.train.start import resume_run, start_or_resume_run, start_run
    from pyg_batchgnn.train.trainer import RunOutcome

    console = Console()
    changes = [
        *([] if dataset is None else [f"run.dataset={dataset}"]),
        *assignments(given),
        *(settings or []),
    ]
    _refuse_options_of_ranks(given, changes)
    base = preset(preset_name) if config is None else read_config(config)
    if resume == Path("auto"):
        if run is None:
            raise TrainError("--resume auto needs --run FOLDER: the run to continue or to start")
        outcome = start_or_resume_run(assign(base, changes), run, console)
    elif resume is not None:
        if config is not None or run is not None or preset_name != DEFAULT_PRESET:
            raise TrainError(
                "--resume continues with its own configuration and folder: drop --config, --run and --preset"
            )
        outcome = resume_run(resume, changes, console)
    else:
        outcome = start_run(assign(base, changes), run, console)
    return INTERRUPTED if outcome is RunOutcome.INTERRUPTED else 0


def _refuse_options_of_ranks(given: Mapping[str, Any], changes: list[str]) -> None:
    from pyg_batchgnn.train.graphs import check_partition
    from pyg_batchgnn.train.ranks import check_backend

    rows = [row for name, row in OPTIONS.items() if row.option.needs_ranks and given.get(name) is not None]
    if not rows or "WORLD_SIZE" in os.environ:
        return
    ranks = assign(TrainConfig(), [change for change in changes if change.startswith("ranks.")]).ranks
    check_backend(ranks.backend)
    check_partition(ranks.partition)
    shown = " and ".join(row.flags[0].partition("/")[0] for row in rows)
    raise TrainError(
        f"{shown}: this is for several ranks, and here is one process; start ranks with torchrun "
        f"--nproc-per-node=2 -m pyg_batchgnn train ..., or leave it out"
    )
