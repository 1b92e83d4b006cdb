"""The choice of the matrix product of native layers, which is made once per run."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from math import prod

import torch

from pyg_batchgnn.nn import ProductChoice, default_products, probe_products, use_products
from pyg_batchgnn.train.config import MatrixProduct, Precision, TrainConfig
from pyg_batchgnn.train.ranks import Ranks


def choose_product(
    config: TrainConfig, features: int, columns: int, ranks: Ranks
) -> tuple[TrainConfig, ProductChoice | None]:
    """Decides which matrix product the run uses, and applies the decision; collective.

    "auto" takes the product of the processors. "probe" lets one rank of each host probe while the
    others wait. The run uses torch's product if that is the one of all processors or hosts.

    Args:
        config: of the run.
        features: columns of the features.
        columns: of the model's output.
        ranks: of the run.

    Returns:
        The configuration with the product, and the result of this rank's probe, or None without a
        probe.
    """
    choice, product = None, config.run.matrix_product
    if product in (MatrixProduct.AUTO, MatrixProduct.PROBE):
        if product is MatrixProduct.PROBE and ranks.is_first_of_host:
            shapes = product_shapes(config, features, columns)
            half = config.run.precision is Precision.BFLOAT16
            choice = probe_products(shapes, torch.bfloat16 if half else torch.float32, config.run.threads)
        mine = default_products() if product is MatrixProduct.AUTO else choice and choice.name
        names = {name for name in ranks.values(mine) if name is not None}
        name = names.pop() if len(names) == 1 else "native"
        config = replace(config, run=replace(config.run, matrix_product=MatrixProduct(name)))
    apply_product(config)
    return config, choice


def apply_product(config: TrainConfig) -> None:
    """Makes native layers use the configured product from now on; if it is open, that of this
    processor."""
    product = config.run.matrix_product
    if product is MatrixProduct.NATIVE:
        use_products("native")
    else:
        use_products("torch" if product is MatrixProduct.TORCH else default_products())


def product_line(config: TrainConfig, choice: ProductChoice | None) -> str:
    """Returns the log's line about the product.

    Args:
        config: of the run, with the product decided.
        choice: the result of this rank's probe, or None without a probe.
    """
    name = config.run.matrix_product.value
    if choice is None:
        return f"matrix products: {name}"
    return str(choice) if choice.name == name else f"matrix products: {name}, as another host chose"


def product_shapes(config: TrainConfig, features: int, classes: int) -> list[tuple[int, int, int]]:
    """Returns (rows, columns, outputs) of the product of each layer, the layer next to the input
    first.

    The rows are those of a training minibatch in which no node is found twice.
    """
    model, fanout = config.model, config.sampling.fanout
    widths = pairwise([features, *[model.hidden] * (model.num_layers - 1), classes])
    # A fanout of all neighbours counts as twenty: the probe multiplies at most a few thousand rows.
    growth = [1 + (20 if k < 0 else k) for k in fanout]
    hops = range(model.num_layers - 1, -1, -1)
    return [
        (config.sampling.batch_size * prod(growth[:hop]), columns, outputs)
        for hop, (columns, outputs) in zip(hops, widths, strict=True)
    ]
