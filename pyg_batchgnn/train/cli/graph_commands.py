"""The commands of graphs: datasets, generate, convert, quantize, verify and partition."""

from __future__ import annotations

import contextlib
import dataclasses
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console

from pyg_batchgnn.train.cli.options import OF_TABLE, assignments, opt, parse_size, with_options
from pyg_batchgnn.train.config.choices import POLICIES
from pyg_batchgnn.train.errors import TrainError, as_train_error

if TYPE_CHECKING:
    from rich.progress import TaskID
    from rich.table import Table
    from torch import Tensor

    from pyg_batchgnn.data import ConvertedFolder
    from pyg_batchgnn.partition import PolicyLike


_COMPARED = 1 << 26  # the most edges whose directions are compared, in some seconds


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
    from pyg_batchgnn.data import FEATURES, SPLITS, available_datasets, is_symmetric, load_dataset

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
        typer.echo(f"features   {dataset.num_features:,}{_storage(dataset.nodes.tables.get(FEATURES))}")
        typer.echo(f"classes    {dataset.num_classes}")
        typer.echo(f"training   {len(dataset.split('train')):,} nodes")
        typer.echo(f"validation {len(dataset.split('val')):,} nodes")
        typer.echo(f"test       {len(dataset.split('test')):,} nodes")
        return
    for nodes in dataset.node_sets:
        sizes = "/".join(f"{len(dataset.split(name, nodes.name)):,}" for name in SPLITS)
        attributes = ", ".join(
            f"{name} {list(table.shape[1:])}{_storage(table)}" for name, table in nodes.tables.items()
        )
        typer.echo(
            f"{nodes.name}: {nodes.num_nodes:,} nodes, {nodes.num_classes} classes, {sizes} train/val/test "
            f"nodes, attributes: {attributes or 'none'}"
        )
    for edges in dataset.edge_sets:
        typer.echo(f"{'-'.join(edges.relation)}: {edges.num_edges:,} edges")


def _storage(table: Tensor | None) -> str:
    from pyg_batchgnn.ops import QuantizedTensor

    return " as int8 codes" if isinstance(table, QuantizedTensor) else ""


def generate(
    ctx: typer.Context,
    folder: Annotated[Path, typer.Argument(help="New folder for the graph.")],
    nodes: Annotated[int, opt("Number of nodes.")] = 100_000,
    seed: Annotated[int, opt("Seed; the same seed gives the same graph.")] = 0,
    degree: Annotated[float, opt("Mean number of neighbours per node.")] = 16.0,
    classes: Annotated[int, opt("Number of classes.")] = 16,
    features: Annotated[int, opt("Number of features per node.")] = 64,
    signal: Annotated[float, opt("How well features tell the class: 0 not at all; higher is easier.")] = 1.5,
    label_noise: Annotated[float, opt("Share of nodes with a wrong label, from 0 to 1.")] = 0.05,
    half: Annotated[bool, opt("Store features as float16, in half the space.", "--half")] = False,
    typed: Annotated[
        bool, opt("Make authors, fields and institutions too; --nodes is the number of papers.", "--typed")
    ] = False,
    papers_like: Annotated[
        bool,
        opt(
            "Make a graph in the shape of papers100M instead, written by destination. Defaults are then "
            "111,059,956 nodes, 14.5 in-edges each, 172 classes and 128 features in bfloat16: 36 GB.",
            "--papers-like",
        ),
    ] = False,
) -> None:
    """Makes a power-law graph with communities, features and labels.

    It is written in pieces and mapped when it is read, so it may be larger
    than memory. The laws of --papers-like are those of PapersSpec.

    [bold]Examples[/bold]

      batchgnn generate graphs/small --nodes 10000

      batchgnn generate graphs/large --nodes 100000000 --features 128 --half

      batchgnn generate graphs/papers --typed --nodes 10000

      batchgnn generate graphs/hundredth --papers-like --nodes 1110600

      batchgnn train graphs/small
    """
    from pyg_batchgnn.data import (
        GeneratorSpec,
        PapersSpec,
        TypedGeneratorSpec,
        generate_folder,
        generate_papers_folder,
        generate_typed_folder,
    )

    values: dict[str, Any] = {"nodes": nodes, "seed": seed, "degree": degree, "classes": classes}
    values |= {"features": features, "signal": signal}
    if papers_like:
        if typed or half or label_noise != 0.05:
            raise TrainError("--typed, --half and --label-noise do not go with --papers-like; leave them out")
        sources = {name: getattr(ctx.get_parameter_source(name), "name", "DEFAULT") for name in values}
        given = {name: values[name] for name, of in sources.items() if not of.startswith("DEFAULT")}
        generate_papers_folder(PapersSpec(**given), folder)
    elif typed:
        if (signal, label_noise, half) != (1.5, 0.05, False):
            raise TrainError("--signal, --label-noise and --half do not go with --typed; leave them out")
        generate_typed_folder(TypedGeneratorSpec(nodes, seed, degree, classes, features), folder)
        typer.echo(f"wrote {folder}; cut it into parts with: batchgnn partition {folder} --out PARTS")
        return
    else:
        generate_folder(GeneratorSpec(**values, label_noise=label_noise, half=int(half)), folder)
    typer.echo(f"wrote {folder}; train on it with: batchgnn train {quote(str(folder))}")


def convert(
    source: Annotated[Path, typer.Argument(help="Data folder with lists of edges.")],
    folder: Annotated[Path, typer.Argument(help="New data folder.")],
    memory_budget: Annotated[
        str | None,
        opt(
            "Memory for sorting, as in 4GiB, beside the 400 MB of the program itself. Default: a "
            "quarter of what is free."
        ),
    ] = None,
    edge_ids: Annotated[
        bool,
        opt(
            "Keep the ids of edges also where edges have no attributes; 4 bytes per edge. Positions "
            "become ids otherwise.",
            "--edge-ids",
        ),
    ] = False,
    copy: Annotated[
        bool, opt("Copy files that stay as they are. Default: hard links where possible.", "--copy")
    ] = False,
) -> None:
    """Writes a data folder whose edges lie by destination, from one with lists of edges.

    Training then reads the edges as they lie: without sorting them, without a
    second copy, in 4 bytes per edge. Edges are sorted on disk, so a graph may
    be larger than memory. Attributes, splits and keys stay as they are.

    A conversion that was killed, or met a full disk, goes on when it is
    started again.

    [bold]Examples[/bold]

      batchgnn convert graphs/large graphs/large-csc

      batchgnn convert graphs/large graphs/large-csc --memory-budget 4GiB

      batchgnn train graphs/large-csc
    """
    from pyg_batchgnn.data import convert_folder

    begun, console = time.perf_counter(), Console(stderr=True)
    budget = None if memory_budget is None else parse_size(memory_budget)
    with _bars(console) as progress:
        made = convert_folder(
            source, folder, memory_budget=budget, edge_ids=edge_ids, links=not copy, progress=progress
        )
    console.print(_conversion_table(made))
    seconds = time.perf_counter() - begun
    typer.echo(f"wrote {folder} in {seconds:.1f} s; train on it with: batchgnn train {quote(str(folder))}")


@contextlib.contextmanager
def _bars(console: Console) -> Iterator[Callable[[str, int, int], None] | None]:
    if not console.is_terminal:
        yield None
        return
    from rich.progress import Progress

    with Progress(console=console) as bars:
        tasks: dict[str, TaskID] = {}

        def show(phase: str, done: int, total: int) -> None:
            if phase not in tasks:
                tasks[phase] = bars.add_task(phase, total=total)
            bars.update(tasks[phase], completed=done, total=total)

        yield show


def _conversion_table(made: ConvertedFolder) -> Table:
    from rich.table import Table

    table = Table(title="Conversion", title_justify="left")
    table.add_column("what")
    table.add_column("count", justify="right")
    for name, edges in made.edges.items():
        table.add_row("edges" if name == "edges" else f"edges of {name}", f"{edges.edges:,}")
        table.add_row("  buckets", f"{edges.buckets:,}" if edges.buckets else "none: they were sorted")
    table.add_row("bytes of other files, linked", f"{made.linked:,}")
    table.add_row("bytes of other files, copied", f"{made.copied:,}")
    table.add_section()
    for phase, seconds in made.seconds.items():
        table.add_row(phase, f"{seconds:.1f} s")
    return table


def quantize(
    source: Annotated[Path, typer.Argument(help="Data folder, or folder of a partition.")],
    folder: Annotated[Path, typer.Argument(help="New folder.")],
    attributes: Annotated[
        list[str] | None,
        opt(
            "Attribute of nodes or edges to quantise, of every type that has it; may be repeated. Default: x."
        ),
    ] = None,
    percentile: Annotated[
        float | None,
        opt(
            "As 99.9: the range of a column leaves out at most 0.05 % of its values at either end, "
            "which are clamped. Default: from the least value to the largest."
        ),
    ] = None,
    bits: Annotated[int, opt("Bits of a code; 8.")] = 8,
    copy: Annotated[
        bool, opt("Copy files that stay as they are. Default: hard links where possible.", "--copy")
    ] = False,
) -> None:
    """Writes a folder whose features are int8 codes, in a quarter of float32's bytes.

    Each column has a scale and an offset of its own. A value within the range
    of its column is decoded to within half a scale of itself. The codes stay
    narrow on disk, in memory and between ranks, and are decoded where they
    are read. Tables are read in pieces, and may be larger than memory. The
    table at the end says what the codes cost.

    The columns of a partition have the same scales in all its parts.

    [bold]Examples[/bold]

      batchgnn quantize graphs/large graphs/large-int8

      batchgnn quantize graphs/large graphs/large-int8 --percentile 99.9
        --attributes x --attributes edge_attr

      batchgnn train graphs/large-int8
    """
    from pyg_batchgnn.data import quantize_folder
    from pyg_batchgnn.partition import is_partition, quantize_partition

    begun, console = time.perf_counter(), Console(stderr=True)
    work = quantize_partition if is_partition(source) else quantize_folder
    with _bars(console) as progress, as_train_error(ValueError):
        report = work(
            source,
            folder,
            bits,
            attributes=attributes or ["x"],
            percentile=percentile,
            links=not copy,
            progress=progress,
        )
    console.print(report.table())
    typer.echo(f"wrote {folder} in {time.perf_counter() - begun:.1f} s")


def verify(folder: Annotated[Path, typer.Argument(help="Folder that this program wrote.")]) -> None:
    """Checks a data folder, a partition or an aggregation cache against its checksums.

    [bold]Example[/bold]

      batchgnn verify graphs/small
    """
    from pyg_batchgnn.cache import is_aggregation_cache, verify_aggregation_cache
    from pyg_batchgnn.data import verify_folder
    from pyg_batchgnn.partition import is_partition, verify_partition
    from pyg_batchgnn.train.run_folder import RunFolder

    known = "a data folder, a partition or an aggregation cache"
    if folder.is_file():
        raise TrainError(f"{folder} is a file; give the folder that it lies in: {known}")
    if RunFolder(folder).config.is_file():
        raise TrainError(
            f"{folder} is a run folder, and verify is for {known}; a run's checkpoint is checked when it is "
            f"read, as by batchgnn evaluate {folder}"
        )
    if is_partition(folder):
        verify_partition(folder)
    elif is_aggregation_cache(folder):
        verify_aggregation_cache(folder)
    else:
        verify_folder(folder)
    typer.echo(f"{folder}: all files are as they were written")


_MOST = 100_000  # the most parts; their folders have five digits


def _checked_policy(policy: str) -> str:
    if policy not in POLICIES and not policy.endswith(".npy"):
        raise typer.BadParameter(
            f"{policy!r} is not one of {', '.join(POLICIES)}, and no .npy file of owners"
        )
    return policy


def _chosen(policy: str, loads: Sequence[str], hosts: int | None, parts: int) -> PolicyLike:
    """Returns the policy with its balance constraints; one with two levels cuts for hosts first.
    ``loads``: texts NAME or NAME=SLACK. Raises `TrainError` or a usage error if they do not fit."""
    from pyg_batchgnn.partition import Balanced, TwoLevel, as_policy

    chosen = as_policy(policy)
    if hosts is not None and parts % hosts:
        raise typer.BadParameter(f"{parts} parts cannot be spread evenly over {hosts} hosts")
    if hosts is not None and isinstance(chosen, TwoLevel):
        chosen = dataclasses.replace(chosen, hosts=hosts)
    if not loads:
        return chosen
    if not isinstance(chosen, Balanced):
        raise TrainError(
            f"--balance does not go with --policy {policy}, which balances no loads; choose ldg, fennel, "
            f"multilevel or metis"
        )
    balance = {}
    for name, equals, slack in (load.partition("=") for load in loads):
        try:
            balance[name] = float(slack) if equals else 1.05  # times the mean of the load
        except ValueError:
            raise TrainError(
                f"--balance is {f'{name}={slack}'!r}; write a load and a number, as in train=1.1"
            ) from None
    with as_train_error(ValueError):
        return dataclasses.replace(chosen, balance=balance)


@with_options({"timeout": OF_TABLE["timeout"]})
def partition(
    dataset: Annotated[str, typer.Argument(help="Name or folder of a data set, as for train.")],
    out: Annotated[Path, opt("New folder for the partition.", "--out")],
    parts: Annotated[
        int | None, opt("Number of parts. Default: one per rank of this command.", min=1, max=_MOST)
    ] = None,
    policy: Annotated[
        str, opt("Decides which part gets which node; see above.", callback=_checked_policy)
    ] = POLICIES[0],
    hosts: Annotated[
        int | None,
        opt(
            "Number of hosts that will train, with as many parts each. Default: those of this "
            "command's ranks, if there is a part per rank.",
            min=1,
        ),
    ] = None,
    balance: Annotated[
        list[str] | None,
        opt(
            "Load that ldg, fennel, multilevel or metis balance, as in train or train=1.1: nodes, "
            "edges, train, val, test, or a node attribute with one weight per node, and how many times the "
            "mean a part may have. May be repeated. Default: nodes, edges and train, 1.05 each."
        ),
    ] = None,
    seed: Annotated[int, opt("Seed of the policy's random choices.")] = 0,
    reverse: Annotated[
        bool,
        opt(
            "Add the reverse of every relation, for train --reverse. Every process copies all edges; "
            "write the folder of a large graph with its reverse relations instead.",
            "--reverse",
        ),
    ] = False,
    plot: Annotated[Path | None, opt("Picture of balance, cut and halo to write (.png, .svg, .pdf).")] = None,
    **ranks: Any,
) -> None:
    """Cuts a graph into parts, one for each rank that will train, and writes them to a folder.

    A part has its nodes, their attributes and all their in-edges. Training
    with one rank per part maps the files of the parts. Training with another
    number of ranks cuts the parts again.

    Policies: [bold]random[/bold] spreads nodes by a hash. [bold]contiguous[/bold]
    takes ranges of ids with equal sums of nodes and edges: good if neighbours
    have near ids. [bold]ldg[/bold] and [bold]fennel[/bold] put a node where most of its
    in-neighbours are, with nodes, edges and training nodes balanced. They take
    longer, but fewer edges join parts, so training sends less.
    [bold]multilevel[/bold] cuts the fewest edges: it joins nodes into clusters, cuts
    the graph of clusters, and refines the cut. [bold]metis[/bold] is the METIS
    library, where it is installed; rank 0 holds the whole graph. A
    [bold].npy[/bold] file has the part of every node.

    [bold]multilevel[/bold] and [bold]metis[/bold] cut the graph for the hosts first, then
    for the ranks of each, so that few edges join hosts: --hosts, or the hosts
    that torchrun knows.

    The first table at the end has one line per part: its nodes, in-edges,
    training, validation and test nodes and weights, the in-edges from other
    parts (cut) and the distinct nodes that these come from (halo). The second
    says how even each load is, and what was allowed.

    Run it alone, or under torchrun: then several ranks read, cut and write
    together, to one file system.

    [bold]Examples[/bold]

      batchgnn partition cora --parts 2 --policy ldg --out cora-2

      torchrun --nproc-per-node=4 -m pyg_batchgnn partition graphs/large
        --policy fennel --out large-4

      batchgnn partition cora --parts 2 --policy multilevel
        --balance nodes --balance val=1.1 --out cora-2

      batchgnn verify cora-2

      torchrun --nproc-per-node=2 -m pyg_batchgnn train cora
        --partition cora-2
    """
    from pyg_batchgnn.comm import Communicator
    from pyg_batchgnn.data import load_dataset, open_folder, with_reverse_relations
    from pyg_batchgnn.partition import (
        partition_parts,
        plot_partition,
        refuse_existing,
        report_partition,
        save_partition,
    )
    from pyg_batchgnn.train.config.train_config import TrainConfig, assign
    from pyg_batchgnn.train.training_data import fingerprint_dataset

    timeout = assign(TrainConfig(), assignments(ranks)).ranks.timeout
    if plot is not None and not plot.absolute().parent.is_dir():
        raise TrainError(f"--plot {plot}: there is no folder {plot.parent}; make it, or give another file")
    with Communicator.create("partition", timeout=timeout) as comm:
        console = Console(quiet=comm.rank != 0)
        refuse_existing(out, comm)
        begun = time.perf_counter()
        status = console.status("reading") if console.is_terminal else contextlib.nullcontext()
        with status as shown:
            if reverse:
                graph = with_reverse_relations(load_dataset(dataset))
            else:
                graph = open_folder(dataset) if Path(dataset).is_dir() else load_dataset(dataset)
            count = parts or comm.size
            chosen = _chosen(policy, balance or (), hosts, count)
            progress = shown.update if shown is not None else None
            with as_train_error(ValueError):
                found = partition_parts(graph, chosen, count, comm=comm, seed=seed, progress=progress)
            origin: dict[str, Any] = {"dataset": dataset, "fingerprint": fingerprint_dataset(graph)}
            origin |= {"policy": policy, "balance": balance, "seed": seed, "ranks": comm.size}
            save_partition(found, out, comm, origin)
            report = report_partition(found, comm, hosts, chosen)
        console.print(report.table())
        console.print(report.balance_table())
        if comm.rank == 0 and plot is not None:
            plot_partition(report, plot)
        console.print(f"wrote {out} in {time.perf_counter() - begun:.1f} s")
