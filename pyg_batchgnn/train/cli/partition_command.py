"""The command ``batchgnn partition``."""

from __future__ import annotations

import contextlib
import dataclasses
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console

from pyg_batchgnn.train.config import POLICIES
from pyg_batchgnn.train.errors import TrainError, as_train_error

if TYPE_CHECKING:
    from pyg_batchgnn.partition import PolicyLike

#: The most parts. Their folders are numbered with five digits.
_MOST = 100_000
#: A part gets at most this many times the mean of a load, where the user gives no number.
_SLACK = 1.05


def _checked_policy(policy: str) -> str:
    """Returns a policy's name, or the file of owners.

    Raises:
        BadParameter: it is neither.
    """
    if policy not in POLICIES and not policy.endswith(".npy"):
        raise typer.BadParameter(
            f"{policy!r} is not one of {', '.join(POLICIES)}, and no .npy file of owners"
        )
    return policy


def _chosen(policy: str, loads: Sequence[str], hosts: int | None, parts: int) -> PolicyLike:
    """Returns a policy that balances some loads, and cuts for some hosts first, where it can.

    Raises:
        BadParameter: the parts cannot be spread evenly.
        TrainError: the policy balances nothing, or a load is written in another form.
    """
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
    with as_train_error(ValueError):
        return dataclasses.replace(chosen, balance=dict(map(_load_and_slack, loads)))


def _load_and_slack(text: str) -> tuple[str, float]:
    name, equals, slack = text.partition("=")
    try:
        return name, float(slack) if equals else _SLACK
    except ValueError:
        raise TrainError(f"--balance is {text!r}; write a load and a number, as in train=1.1") from None


def partition(
    dataset: Annotated[str, typer.Argument(help="Name or folder of a data set, as for train.")],
    out: Annotated[Path, typer.Option("--out", help="New folder for the partition.")],
    parts: Annotated[
        int | None,
        typer.Option(help="Number of parts. Default: one per rank of this command.", min=1, max=_MOST),
    ] = None,
    policy: Annotated[
        str,
        typer.Option(help="Decides which part gets which node; see above.", callback=_checked_policy),
    ] = POLICIES[0],
    hosts: Annotated[
        int | None,
        typer.Option(
            help="Number of hosts that will train, with as many parts each. Default: those of this "
            "command's ranks, if there is a part per rank.",
            min=1,
        ),
    ] = None,
    balance: Annotated[
        list[str] | None,
        typer.Option(
            help="Load that ldg, fennel, multilevel or metis balance, as in train or train=1.1: nodes, "
            "edges, train, val, test, or a node attribute with one weight per node, and how many times the "
            "mean a part may have. May be repeated. Default: nodes, edges and train, 1.05 each."
        ),
    ] = None,
    seed: Annotated[int, typer.Option(help="Seed of the policy's random choices.")] = 0,
    reverse: Annotated[
        bool,
        typer.Option(
            "--reverse",
            help="Add the reverse of every relation, for train --reverse. Every process copies all edges; "
            "write the folder of a large graph with its reverse relations instead.",
        ),
    ] = False,
    plot: Annotated[
        Path | None, typer.Option(help="Picture of balance, cut and halo to write (.png, .svg, .pdf).")
    ] = None,
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
    says how even each load is, and what was allowed. Below is advice: another
    policy or schedule where edges or loads call for one.

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
        MetisLibrary,
        advise,
        partition_parts,
        plot_partition,
        refuse_existing,
        report_partition,
        save_partition,
    )
    from pyg_batchgnn.train.graph import fingerprint_dataset

    if plot is not None and not plot.absolute().parent.is_dir():
        raise TrainError(f"--plot {plot}: there is no folder {plot.parent}; make it, or give another file")
    with Communicator.create("partition") as comm:
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
            origin = {
                "dataset": dataset,
                "fingerprint": fingerprint_dataset(graph).to_dict(),
                "policy": policy,
                "balance": balance,
                "seed": seed,
                "ranks": comm.size,
            }
            save_partition(found, out, comm, origin)
            report = report_partition(found, comm, hosts, chosen)
        console.print(report.table())
        console.print(report.balance_table())
        if comm.rank == 0:
            for sentence in advise(report, chosen, MetisLibrary.here()):
                console.print(sentence, highlight=False, markup=False, soft_wrap=True)
            if plot is not None:
                plot_partition(report, plot)
        console.print(f"wrote {out} in {time.perf_counter() - begun:.1f} s")
