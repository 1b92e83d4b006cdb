"""Starting, resuming and ending a run, and what is decided before: data, threads, products."""

from __future__ import annotations

import ctypes
import re
import sys
import textwrap
from dataclasses import asdict, replace
from itertools import pairwise
from math import prod
from pathlib import Path

import torch
from rich.console import Console

from pyg_batchgnn.data import (
    EDGE_FEATURES,
    Dataset,
    DatasetError,
    default_dataset,
    load_dataset,
    with_reverse_relations,
)
from pyg_batchgnn.nn import ProductChoice, default_products, probe_products, use_products
from pyg_batchgnn.ops import bfloat16_level, bfloat16_levels, set_bfloat16_level
from pyg_batchgnn.sample import ALL_NEIGHBORS
from pyg_batchgnn.train.checkpoint import Checkpoint, Phase
from pyg_batchgnn.train.config.choices import BFloat16Products, Malloc, MatrixProduct, Precision
from pyg_batchgnn.train.config.train_config import (
    TrainConfig,
    agreed_fields,
    assign,
    config_from_dict,
    config_to_dict,
    edges_unread,
    is_thread_independent,
    read_config,
    refuse_changes,
    with_decided_fields,
)
from pyg_batchgnn.train.errors import TrainError
from pyg_batchgnn.train.graphs import check_partition
from pyg_batchgnn.train.job import TrainingJob, build_job, check_optimiser
from pyg_batchgnn.train.node_tasks import task_of
from pyg_batchgnn.train.ranks import Ranks
from pyg_batchgnn.train.report import (
    TerminalReport,
    final_table,
    larger_budgets,
    opening_lines,
    plot_learning,
    plot_phases,
)
from pyg_batchgnn.train.run_folder import RunFolder, RunLog, RunResult, check_log, read_records, write_json
from pyg_batchgnn.train.trainer import RunOutcome, StopRequest, Trainer
from pyg_batchgnn.train.training_data import TrainingData, fingerprint_dataset


def open_dataset(name: str | None, reverse_relations: bool = False) -> Dataset:
    """Opens a data set by name or path; None opens the default one. ``reverse_relations``: also
    makes the reverse of each relation. Raises `DatasetError`; for a folder of tables `TrainError`,
    with the commands that convert them."""
    try:
        dataset = default_dataset() if name is None else load_dataset(name)
    except DatasetError as error:
        files = Path(name or "").glob("*") if name is not None and Path(name).is_dir() else ()
        if any(re.search(r"\.(csv|tsv|parquet)(\.gz)?$", file.name.lower()) for file in files):
            remedy = f"batchgnn tables describe {name}, then batchgnn tables convert {name} --out DATA"
            raise TrainError(f"{error}. Or does it hold tables? {remedy}") from error
        raise
    return with_reverse_relations(dataset) if reverse_relations else dataset


def open_on_all_ranks(config: TrainConfig, ranks: Ranks) -> tuple[Dataset, dict[str, int]]:
    dataset = open_dataset(config.run.dataset, config.run.reverse_relations)
    fingerprint = fingerprint_dataset(dataset)
    ranks.agree({f"data set, {name}": value for name, value in fingerprint.items()})
    return dataset, fingerprint


def choose_product(
    config: TrainConfig, features: int, columns: int, ranks: Ranks
) -> tuple[TrainConfig, ProductChoice | None]:
    """Decides which matrix product the run uses, and switches to it; collective. Returns the
    configuration with that product, and the result of the probe if this rank made one.
    ``features``, ``columns``: widths of the first layer's input and of the output."""
    choice, product, first = None, config.run.matrix_product, ranks.training.ranks_of_host[0]
    if product in (MatrixProduct.AUTO, MatrixProduct.PROBE):
        if product is MatrixProduct.PROBE and ranks.rank == first:  # one rank of each host
            shapes = product_shapes(config, features, columns)
            half = config.run.precision is Precision.BFLOAT16
            choice = probe_products(shapes, torch.bfloat16 if half else torch.float32, config.run.threads)
        mine = default_products() if product is MatrixProduct.AUTO else choice and choice.name
        names = {name for name in ranks.values(mine) if name is not None}
        name = names.pop() if len(names) == 1 else "native"
        config = replace(config, run=replace(config.run, matrix_product=MatrixProduct(name)))
    config = decide_level(config, ranks)
    apply_product(config)
    return config, choice


def apply_product(config: TrainConfig) -> None:
    """Switches native layers to the configured matrix product and bfloat16 level. What is not
    decided, or missing on this processor, becomes the processor's default."""
    product = config.run.matrix_product
    if product is MatrixProduct.NATIVE:
        use_products("native")
    else:
        use_products("torch" if product is MatrixProduct.TORCH else default_products())
    level = config.run.bfloat16_products
    if level is not BFloat16Products.AUTO and level.value in bfloat16_levels():
        set_bfloat16_level(level.value)


def decide_level(config: TrainConfig, ranks: Ranks) -> TrainConfig:
    """Returns the configuration with a level of bfloat16 products that every rank's processor has,
    if native bfloat16 products are used; collective. Raises `TrainError` if a rank lacks it."""
    if not _multiplies_bfloat16(config):
        return config
    if config.run.bfloat16_products is BFloat16Products.AUTO:
        found = BFloat16Products(_common_level(ranks.values([bfloat16_level(), *bfloat16_levels()])))
        config = replace(config, run=replace(config.run, bfloat16_products=found))
    level = config.run.bfloat16_products
    with ranks.any_error():
        if level.value not in bfloat16_levels():
            raise TrainError(
                f"run.bfloat16_products is {level.value}, but this processor has only "
                f"{', '.join(bfloat16_levels())}; continue on a processor that has it, or with "
                f"--bfloat16-products {bfloat16_levels()[-1]}, whose results have other bits"
            )
    return config


def _multiplies_bfloat16(config: TrainConfig) -> bool:
    return config.run.matrix_product is MatrixProduct.NATIVE and config.run.precision is Precision.BFLOAT16


def _common_level(of_ranks: list[list[str]]) -> str:
    """Returns the highest level that all ranks have, and that exceeds no rank's default.
    ``of_ranks``: for each rank its default, then all its levels."""
    order = [level.value for level in BFloat16Products][1:]
    most = min(order.index(default) for default, *_ in of_ranks)
    return [level for level in order[: most + 1] if all(level in levels for _, *levels in of_ranks)][-1]


def product_line(config: TrainConfig, choice: ProductChoice | None) -> str:
    name = config.run.matrix_product.value
    if choice is None:
        level = f", bfloat16 {config.run.bfloat16_products.value}" if _multiplies_bfloat16(config) else ""
        return f"matrix products: {name}{level}"
    return str(choice) if choice.name == name else f"matrix products: {name}, as another host chose"


def product_shapes(config: TrainConfig, features: int, classes: int) -> list[tuple[int, int, int]]:
    """Returns (rows, columns, outputs) of each layer's matrix product, the first layer first, for a
    training minibatch in which no node occurs twice."""
    model, fanout = config.model, config.sampling.fanout
    widths = pairwise([features, *[model.hidden] * (model.num_layers - 1), classes])
    # A fanout of all neighbours counts as twenty: the probe multiplies at most a few thousand rows.
    growth = [1 + (20 if k == ALL_NEIGHBORS else k) for k in fanout]
    hops = range(model.num_layers - 1, -1, -1)
    return [
        (config.sampling.batch_size * prod(growth[:hop]), columns, outputs)
        for hop, (columns, outputs) in zip(hops, widths, strict=True)
    ]


def decide_fields(
    config: TrainConfig, dataset: Dataset, ranks: Ranks
) -> tuple[TrainConfig, ProductChoice | None]:
    """Fills in data set, threads and matrix product, so that the configuration repeats the run;
    collective. Returns this rank's configuration, and the result of the probe if it made one.

    A rank may have its own number of threads only if results do not depend on it: a resumed run
    knows the first rank's number alone.
    """
    own_threads = config.run.threads

    def decided() -> dict[str, dict[str, object]]:
        name = config.run.dataset or dataset.name
        name = str(Path(name).resolve()) if Path(name).is_dir() else name
        threads = config.run.threads or ranks.threads()
        return config_to_dict(replace(config, run=replace(config.run, dataset=name, threads=threads)))

    config = config_from_dict(ranks.from_first(decided))
    torch.set_num_threads(config.run.threads or 1)
    inputs = TrainingData.of(dataset, config).inputs
    columns, is_read = inputs.first_columns(config.model.hidden), config.model.edge_features
    if is_read == "auto" and not config.task.kind.is_of_edges:  # whose decoder reads them with any model
        is_read = "read" if inputs.edges else "none"
    config = replace(config, model=replace(config.model, edge_features=is_read))
    task = task_of(dataset, config.task, config.model.hidden)
    config, choice = choose_product(config, columns, task.columns, ranks)
    config = replace(config, run=replace(config.run, threads=own_threads or config.run.threads))
    if not is_thread_independent(config):
        ranks.agree({"run.threads": config.run.threads})
    torch.set_num_threads(config.run.threads or 1)
    return config, choice


#: By the parameter numbers of glibc's <malloc.h>: blocks below 2 GiB come from the heap instead of
#: a mapping of their own, which is never trimmed and grows by 64 MiB at a time.
_MALLOPT = {"M_MMAP_THRESHOLD": (-3, 2**31 - 1), "M_TRIM_THRESHOLD": (-1, -1), "M_TOP_PAD": (-2, 64 << 20)}


def configure_malloc(choice: Malloc) -> bool:
    """Makes the C library keep freed memory, or not, in this process. Returns True if it now does.
    Training and prediction call it; importing the package does not.

    Each step allocates and frees the same few hundred megabytes. By default glibc returns large
    blocks to the system at once, and every step pays for the page faults again.
    """
    if choice is Malloc.DEFAULT or not sys.platform.startswith("linux"):
        return False
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is None:
        return False
    mallopt.argtypes, mallopt.restype = [ctypes.c_int, ctypes.c_int], ctypes.c_int
    accepted = [mallopt(parameter, value) == 1 for parameter, value in _MALLOPT.values()]
    return all(accepted)


_HEADER = textwrap.TextWrapper(80, subsequent_indent=" " * 8, break_long_words=False, break_on_hyphens=False)


def start_run(config: TrainConfig, path: Path | None, console: Console) -> RunOutcome:
    """Trains a model from the beginning, in a new run folder.

    >>> config = assign(preset("p3"), ["run.dataset=generated:nodes=500", "run.epochs=1"])
    >>> start_run(config, Path("runs/new"), Console(quiet=True))
    <RunOutcome.FINISHED: 'finished'>

    ``path``: the new folder; None chooses ``runs/<dataset>-<model>-<n>``. ``console``: a rich
    console, for the lines of the run. Returns how the run ended: Ctrl-C and SIGTERM interrupt it,
    with a checkpoint. Call it in every process of a launcher such as torchrun, on the main thread.

    Raises:
        TrainError: the configuration or the run folder cannot be used.
        DatasetError: the data set or the saved partition cannot be used.
        CommError: another rank failed, or was given other arguments.
    """
    with Ranks.join(config.ranks) as ranks:
        return _start(ranks, config, path, _first_console(ranks, console))


def resume_run(path: Path, changes: list[str], console: Console) -> RunOutcome:
    """Continues the run in the folder `path` from its checkpoint, in the middle of an epoch too. It
    ends with the weights of a run that was never interrupted.

    >>> resume_run(Path("runs/first"), ["run.epochs=2"], Console(quiet=True))
    <RunOutcome.FINISHED: 'finished'>

    ``changes``: fields to change, as `assign` takes them. Only the first rank need see the folder:
    the others join by the "ranks." fields of ``changes``. Raises errors like `start_run`."""
    joining = [change for change in changes if change.startswith("ranks.")]
    with Ranks.join(assign(TrainConfig(), joining).ranks) as ranks:
        written = _read_written(ranks, path)
        return _resume(ranks, path, written, assign(written, changes), _first_console(ranks, console))


def start_or_resume_run(config: TrainConfig, path: Path, console: Console) -> RunOutcome:
    """Continues the run at `path` if it has a checkpoint, else starts it, as a restarted job does.
    The configuration must equal the first start's. Raises errors like `start_run`."""
    with Ranks.join(config.ranks) as ranks:
        console = _first_console(ranks, console)
        if ranks.from_first(lambda: RunFolder(path).checkpoint.exists()):
            written = _read_written(ranks, path)
            return _resume(ranks, path, written, with_decided_fields(config, written), console)
        ranks.from_first(RunFolder(path).clear)
        return _start(ranks, config, path, console)


def _start(ranks: Ranks, config: TrainConfig, path: Path | None, console: Console) -> RunOutcome:
    ranks.agree({"command": "start a run", **agreed_fields(config)})
    check_partition(config.ranks.partition)
    with ranks.any_error():
        check_log(config.run.log)
        check_optimiser(config)
    configure_malloc(config.run.malloc)
    dataset, fingerprint = open_on_all_ranks(config, ranks)
    config, choice = decide_fields(config, dataset, ranks)
    job = build_job(config, dataset, ranks)

    def make() -> str:
        source = Path(config.run.dataset or "")
        name = source.name if source.is_dir() and source.name else dataset.name.partition(":")[0]
        made = RunFolder.create(path, f"{name}-{config.model.kind.value}")
        write_json(made.config, config_to_dict(config))
        return str(made.path)

    folder = RunFolder(Path(ranks.from_first(make)))
    _print_opening(console, job, folder, choice, ranks)
    return _run(ranks, job, fingerprint, folder, console)


def _resume(
    ranks: Ranks, path: Path, written: TrainConfig, config: TrainConfig, console: Console
) -> RunOutcome:
    folder = RunFolder(path)
    data = ranks.bytes_from_first(folder.checkpoint.read_bytes() if ranks.is_first else b"")
    checkpoint = Checkpoint.load(folder.checkpoint, data)
    refuse_changes(written, config, "a run cannot be resumed with another")
    ranks.agree({"command": f"resume {path}", **agreed_fields(config)})
    configure_malloc(config.run.malloc)
    dataset, fingerprint = open_on_all_ranks(config, ranks)
    torch.set_num_threads(config.run.threads or 1)
    config = decide_level(config, ranks)
    apply_product(config)
    job = build_job(config, dataset, ranks)
    _print_opening(console, job, folder, None, ranks)
    before, now = (one.run.bfloat16_products.value for one in (written, config))
    if now not in (before, "auto") and before != "auto":
        goes_on = "the run goes on with other bits"
        _note(console, f"products of bfloat16 were {before} and are {now} now: {goes_on}")
    rate, new = (one.optimiser.learning_rate for one in (checkpoint.config, config))
    if rate != new:
        _note(console, f"the learning rate was {rate:g} and is {new:g} from here on")
    return _run(ranks, job, fingerprint, folder, console, checkpoint)


def _run(
    ranks: Ranks,
    job: TrainingJob,
    fingerprint: dict[str, int],
    folder: RunFolder,
    console: Console,
    checkpoint: Checkpoint | None = None,
) -> RunOutcome:
    """Trains and tests, from the checkpoint if one is given."""
    kept = 0 if checkpoint is None else checkpoint.progress.epoch
    with ranks.any_error():  # other ranks than the first have a log that receives nothing
        kind = job.config.run.log if ranks.is_first else None
        opened = RunLog(kind, folder.path, config_to_dict(job.config), kept)
    report = TerminalReport(
        console,
        job.config.run.epochs,
        job.task,
        ahead=lambda: job.train_loader.stats().total.minibatches_ahead,
    )
    with StopRequest() as stop, report, opened as log:
        trainer = Trainer(job, ranks, folder, fingerprint, stop, report, log)
        if checkpoint is not None:
            trainer.resume(checkpoint)
            ranks.from_first(lambda: write_json(folder.config, config_to_dict(job.config)))
            step = f", minibatch {checkpoint.progress.step}" if checkpoint.progress.step else ""
            console.print(f"resumed after {kept} epochs{step}", highlight=False)
        result = None if trainer.fit() is RunOutcome.INTERRUPTED else trainer.test()
        if result is not None and result.test is not None:
            log.write({f"test/{name}": value for name, value in result.test.items()}, result.best_epoch)
    return _end(ranks, folder, result, job, console)


def _note(console: Console, text: str) -> None:
    console.print(f"note    {text}", highlight=False, soft_wrap=True)


def _first_console(ranks: Ranks, console: Console) -> Console:
    return console if ranks.is_first else Console(quiet=True, force_terminal=False)


def _read_written(ranks: Ranks, path: Path) -> TrainConfig:
    def read() -> dict[str, dict[str, object]]:
        folder = RunFolder.open(path)
        folder.remove_leftovers()
        written = read_config(folder.config)
        checkpoint = Checkpoint.load(folder.checkpoint)
        refuse_changes(checkpoint.config, written, f"{folder.config} was changed since the checkpoint:")
        return config_to_dict(written)

    return config_from_dict(ranks.from_first(read))


def _print_opening(
    console: Console, job: TrainingJob, folder: RunFolder, choice: ProductChoice | None, ranks: Ranks
) -> None:
    lines, dataset = opening_lines(job, folder, ranks), job.dataset
    lines.append(f"        {product_line(job.config, choice)}")
    unread = [one for one in dataset.edge_sets if EDGE_FEATURES in one.tables]
    because = edges_unread(job.config)
    if unread and because is not None:
        names = " of " + ", ".join("-".join(one.relation) for one in unread) if dataset.has_names else ""
        job.notes.append(f"no layer reads the features of edges{names}: {because}")
    for line in [*lines, *(f"note    {note}" for note in job.notes)]:
        console.print(_HEADER.fill(line), highlight=False, markup=False, soft_wrap=True)


def _end(
    ranks: Ranks, folder: RunFolder, result: RunResult | None, job: TrainingJob, console: Console
) -> RunOutcome:
    outcome = RunOutcome.INTERRUPTED if result is None else RunOutcome.FINISHED
    if not ranks.is_first:
        return outcome
    records = read_records(folder.metrics)
    if result is not None:  # before the plots: a failing plot must not cost the result
        write_json(folder.result, asdict(result))
        larger = larger_budgets(job.dataset) if result.ranks == 1 else (0, 0)
        console.print(final_table(result, records, larger), highlight=False)
        several = result.ranks > 1
        phases = {name: one for name, one in result.phases.items() if several or name != Phase.EXCHANGE}
        plot_phases(phases, f"Wall time by phase: {folder.path.name}", folder.path / "phases.png")
    if records:
        name, best, epoch = job.task.metric.value, None, records[-1].epoch
        for record in records:  # the epoch with the best validation; the last one if there was none
            if (found := (record.val or {}).get(name)) is not None and job.task.improves(found, best):
                best, epoch = found, record.epoch
        title = f"{job.dataset.name}: {folder.path.name}"
        plot_learning(records, job.task, title, epoch, folder.path / "learning.png")
    ending = "written to" if result is not None else "stopped; continue with: batchgnn train --resume"
    console.print(f"{ending} {folder.path}", highlight=False, soft_wrap=True)
    return outcome
