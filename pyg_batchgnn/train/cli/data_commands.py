"""The commands ``batchgnn datasets``, ``generate`` and ``verify``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from pyg_batchgnn.train.errors import TrainError

#: The most edges whose directions are compared, which takes some seconds.
_COMPARED = 1 << 26


def datasets(
    name: Annotated[
        str | None, typer.Argument(help="Name or folder of a data set to describe. Default: list all names.")
    ] = None,
) -> None:
    """Lists the data sets that can be loaded here, or describes one.

    Real graphs are read from the folder that the environment variable
    PYG_BATCHGNN_DATA names.

    [bold]Examples[/bold]

      batchgnn datasets

      batchgnn datasets cora

      batchgnn datasets generated:nodes=5000,classes=4
    """
    from pyg_batchgnn.data import SPLITS, available_datasets, is_symmetric, load_dataset

    if name is None:
        for found in available_datasets():
            typer.echo(found)
        return
    dataset = load_dataset(name)
    typer.echo(f"{dataset.name}: {dataset.source}")
    if dataset.schema.is_plain:
        typer.echo(f"nodes      {dataset.num_nodes:,}")
        directed = ""
        if dataset.num_edges <= _COMPARED:
            both = is_symmetric(dataset.edge_index)
            directed = " (each is there the other way, too)" if both else " (directed)"
        typer.echo(f"edges      {dataset.num_edges:,}{directed}")
        typer.echo(f"features   {dataset.num_features:,}")
        typer.echo(f"classes    {dataset.num_classes}")
        typer.echo(f"training   {len(dataset.split('train')):,} nodes")
        typer.echo(f"validation {len(dataset.split('val')):,} nodes")
        typer.echo(f"test       {len(dataset.split('test')):,} nodes")
        return
    for nodes in dataset.node_sets:
        sizes = "/".join(f"{len(dataset.split(name, nodes.name)):,}" for name in SPLITS)
        attributes = ", ".join(f"{name} {list(table.shape[1:])}" for name, table in nodes.tables.items())
        typer.echo(
            f"{nodes.name}: {nodes.num_nodes:,} nodes, {nodes.num_classes} classes, {sizes} train/val/test "
            f"nodes, attributes: {attributes or 'none'}"
        )
    for edges in dataset.edge_sets:
        typer.echo(f"{'-'.join(edges.relation)}: {edges.num_edges:,} edges")


def generate(
    folder: Annotated[Path, typer.Argument(help="New folder for the graph.")],
    nodes: Annotated[int, typer.Option(help="Number of nodes.")] = 100_000,
    seed: Annotated[int, typer.Option(help="Seed; the same seed gives the same graph.")] = 0,
    degree: Annotated[float, typer.Option(help="Mean number of neighbours per node.")] = 16.0,
    classes: Annotated[int, typer.Option(help="Number of classes.")] = 16,
    features: Annotated[int, typer.Option(help="Number of features per node.")] = 64,
    signal: Annotated[
        float, typer.Option(help="How well features tell the class: 0 not at all; higher is easier.")
    ] = 1.5,
    label_noise: Annotated[
        float, typer.Option(help="Share of nodes with a wrong label, from 0 to 1.")
    ] = 0.05,
    half: Annotated[
        bool, typer.Option("--half", help="Store features as float16, in half the space.")
    ] = False,
    typed: Annotated[
        bool,
        typer.Option(
            "--typed", help="Make authors, fields and institutions too; --nodes is the number of papers."
        ),
    ] = False,
) -> None:
    """Makes a power-law graph with communities, features and labels.

    It is written in pieces and mapped when it is read, so it may be larger
    than memory.

    [bold]Examples[/bold]

      batchgnn generate graphs/small --nodes 10000

      batchgnn generate graphs/large --nodes 100000000 --features 128 --half

      batchgnn generate graphs/papers --typed --nodes 10000

      batchgnn train graphs/small
    """
    from pyg_batchgnn.data import GeneratorSpec, TypedGeneratorSpec, generate_folder, generate_typed_folder

    if typed:
        if (signal, label_noise, half) != (1.5, 0.05, False):
            raise TrainError("--signal, --label-noise and --half do not go with --typed; leave them out")
        generate_typed_folder(TypedGeneratorSpec(nodes, seed, degree, classes, features), folder)
        typer.echo(f"wrote {folder}; cut it into parts with: batchgnn partition {folder} --out PARTS")
        return
    spec = GeneratorSpec(
        nodes=nodes,
        seed=seed,
        degree=degree,
        classes=classes,
        features=features,
        signal=signal,
        label_noise=label_noise,
        half=int(half),
    )
    generate_folder(spec, folder)
    typer.echo(f"wrote {folder}; train on it with: batchgnn train {folder}")


def verify(folder: Annotated[Path, typer.Argument(help="Folder that this program wrote.")]) -> None:
    """Checks a data folder, a partition or an aggregation cache against its checksums.

    [bold]Example[/bold]

      batchgnn verify graphs/small
    """
    from pyg_batchgnn.cache import is_aggregation_cache, verify_aggregation_cache
    from pyg_batchgnn.data import verify_folder
    from pyg_batchgnn.partition import is_partition, verify_partition

    _refuse_what_has_no_checksums(folder)
    if is_partition(folder):
        verify_partition(folder)
    elif is_aggregation_cache(folder):
        verify_aggregation_cache(folder)
    else:
        verify_folder(folder)
    typer.echo(f"{folder}: all files are as they were written")


def _refuse_what_has_no_checksums(path: Path) -> None:
    """Raises TrainError for a file and for a run folder."""
    from pyg_batchgnn.train.run_folder import RunFolder

    known = "a data folder, a partition or an aggregation cache"
    if path.is_file():
        raise TrainError(f"{path} is a file; give the folder that it lies in: {known}")
    if RunFolder(path).config.is_file():
        raise TrainError(
            f"{path} is a run folder, and verify is for {known}; a run's checkpoint is checked when it is "
            f"read, as by batchgnn evaluate {path}"
        )
