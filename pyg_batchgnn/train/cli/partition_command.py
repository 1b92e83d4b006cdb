"""The command ``batchgnn partition``."""

from __future__ import annotations

import contextlib
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console

from pyg_batchgnn.train.cli.choices import PolicyName

if TYPE_CHECKING:
    from pyg_batchgnn.partition import PolicyLike

#: The most parts. Their folders are numbered with five digits.
_MOST = 100_000


def _checked_policy(policy: str) -> str:
    """Returns a policy's name, or the file of owners.

    Raises:
        BadParameter: it is neither.
    """
    names = [name.value for name in PolicyName]
    if policy not in names and not policy.endswith(".npy"):
        raise typer.BadParameter(f"{policy!r} is not one of {', '.join(names)}, and no .npy file of owners")
    return policy


def _for_hosts(policy: str, hosts: int | None, parts: int) -> PolicyLike:
    """Returns a policy that cuts for some hosts first, where it can.

    Raises:
        BadParameter: the parts cannot be spread evenly.
    """
    from pyg_batchgnn.partition import Metis, Multilevel

    if hosts is None:
        return policy
    if parts % hosts:
        raise typer.BadParameter(f"{parts} parts cannot be spread evenly over {hosts} hosts")
    made = {PolicyName.MULTILEVEL.value: Multilevel, PolicyName.METIS.value: Metis}.get(policy)
    return policy if made is None else made(hosts=hosts)


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
    ] = PolicyName.RANDOM.value,
    hosts: Annotated[
        int | None,
        typer.Option(
            help="Number of hosts that will train, with as many parts each. Default: those of this "
            "command's ranks, if there is a part per rank.",
            min=1,
        ),
    ] = None,
    seed: Annotated[int, typer.Option(help="Seed of the policy's random choices.")] = 0,
    reverse: Annotated[
        bool, typer.Option("--reverse", help="Add the reverse of every relation, for train --reverse.")
    ] = False,
    plot: Annotated[
        Path | None, typer.Option(help="Picture of balance, cut and halo to write (.png, .svg, .pdf).")
    ] = None,
) -> None:
    """Cuts a graph into parts, one for each rank that will train, and writes them to a folder.

    A part has its nodes, their attributes and all their in-edges. Training
    with one rank per part maps the files of the parts. Training with another
    number of ranks cuts the parts again.

    Policies: [bold]random[/bold] spreads nodes by a hash. [bold]contiguous[/bold] takes ranges of
    ids with equal sums of nodes and edges: good if neighbours have near ids. [bold]ldg[/bold] and
    [bold]fennel[/bold] put a node where most of its in-neighbours are, with nodes, edges and
    training nodes balanced. They take longer, but fewer edges join parts, so training sends less.
    [bold]multilevel[/bold] cuts the fewest edges: it joins nodes into clusters, cuts the graph of
    clusters, and refines the cut. [bold]metis[/bold] is the METIS library, where it is installed;
    rank 0 holds the whole graph. A [bold].npy[/bold] file has the part of every node.

    [bold]multilevel[/bold] and [bold]metis[/bold] cut the graph for the hosts first, then for the
    ranks of each, so that few edges join hosts: --hosts, or the hosts that torchrun knows.

    The table at the end has one line per part: its nodes, in-edges and
    training nodes, the in-edges from other parts (cut) and the distinct nodes
    that these come from (halo).

    Run it alone, or under torchrun: then several ranks read, cut and write together, to one file
    system.

    [bold]Examples[/bold]

      batchgnn partition cora --parts 2 --policy ldg --out cora-2

      torchrun --nproc-per-node=4 -m pyg_batchgnn partition graphs/large --policy fennel --out
      large-4

      batchgnn verify cora-2

      torchrun --nproc-per-node=2 -m pyg_batchgnn train cora --partition cora-2
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
    from pyg_batchgnn.train.graph import fingerprint_dataset

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
            found = partition_parts(
                graph,
                _for_hosts(policy, hosts, count),
                count,
                comm=comm,
                seed=seed,
                progress=shown.update if shown is not None else None,
            )
            origin = {
                "dataset": dataset,
                "fingerprint": fingerprint_dataset(graph).to_dict(),
                "policy": policy,
                "seed": seed,
                "ranks": comm.size,
            }
            save_partition(found, out, comm, origin)
            report = report_partition(found, comm, hosts)
        console.print(report.table())
        if plot is not None and comm.rank == 0:
            plot_partition(report, plot)
        console.print(f"wrote {out} in {time.perf_counter() - begun:.1f} s")
