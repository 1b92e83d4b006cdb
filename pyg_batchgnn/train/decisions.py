"""What is decided before a run: data set, threads, matrix product, the C library's allocator."""

from __future__ import annotations

import ctypes
import re
import sys
from dataclasses import replace
from itertools import pairwise
from math import prod
from pathlib import Path

import torch

from pyg_batchgnn.data import Dataset, DatasetError, default_dataset, load_dataset, with_reverse_relations
from pyg_batchgnn.nn import ProductChoice, default_products, probe_products, use_products
from pyg_batchgnn.ops import bfloat16_level, bfloat16_levels, set_bfloat16_level
from pyg_batchgnn.train.config.choices import BFloat16Products, Malloc, MatrixProduct, Precision
from pyg_batchgnn.train.config.train_config import (
    TrainConfig,
    config_from_dict,
    config_to_dict,
    is_thread_independent,
)
from pyg_batchgnn.train.errors import TrainError
from pyg_batchgnn.train.node_tasks import task_of
from pyg_batchgnn.train.ranks import Ranks
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
    growth = [1 + (20 if k < 0 else k) for k in fanout]
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
