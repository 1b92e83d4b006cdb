"""The commands of tables: ``batchgnn tables describe``, ``check``, ``convert`` and ``apply``."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console

from pyg_batchgnn.train.cli.options import opt, parse_size

if TYPE_CHECKING:
    from pyg_batchgnn.tables import Conversion

tables_app = typer.Typer(
    help="Turns tables with keys of any kind into data folders: Parquet and CSV files with string keys, "
    "times and missing values, larger than memory. It needs pip install 'pyg_batchgnn\\[tables]'.\n\n"
    "Start with [bold]batchgnn tables describe[/bold].",
    rich_markup_mode="rich",
    no_args_is_help=True,
    context_settings={"help_option_names": ["-h", "--help"]},
)

_Tables = Annotated[
    Path, typer.Argument(help="Description of the tables: a graph.toml, or the folder that it lies in.")
]
_Out = Annotated[Path, opt("New data folder.", "--out")]
_Memory = Annotated[
    str | None,
    opt(
        "Memory for the whole process, 1GiB or more, as in 8GiB. Default: 4GiB, or half of what is free.",
        "--memory-limit",
    ),
]
_Threads = Annotated[int | None, opt("Threads of the joins. Default: one per processor.", min=1)]


def describe(
    folder: Annotated[Path, typer.Argument(help="Folder with Parquet or CSV files.")],
    out: Annotated[Path | None, opt("File for the description. Default: graph.toml in the folder.")] = None,
    convert_to: Annotated[
        Path | None, opt("New data folder: convert the tables at once, by the draft as it is.", "--convert")
    ] = None,
) -> None:
    """Writes a first draft of a description of tables, for you to edit.

    Keys are columns without repeats. Foreign keys are guessed by name and
    checked by values. Files that differ in a number are the parts of one table,
    and so are the files of a subfolder.

    [bold]Examples[/bold]

      batchgnn tables describe shop

      batchgnn tables describe shop --out shop.toml

      batchgnn tables describe shop --convert shop-data
    """
    from pyg_batchgnn.tables import GraphDescription, write_draft
    from pyg_batchgnn.tables import convert as convert_tables

    if convert_to is not None:
        file = write_draft(folder, out)
        typer.echo(f"wrote {file}; read what was guessed")
        said = GraphDescription.read(file)
        with_status(lambda progress: convert_tables(said, convert_to, progress=progress))
        return
    file = write_draft(folder, out)
    typer.echo(f"wrote {file}; read it, correct it, then: batchgnn tables check {out or folder}")


def check(tables: _Tables, memory_limit: _Memory = None, threads: _Threads = None) -> None:
    """Reports what tables hold, before they are converted.

    Counts rows with missing, repeated and unknown keys and with values that
    cannot be read. Shows splits and the balance of labels, degrees, edges that
    no seed will ever see, and the bytes that training will map.

    It converts to a temporary folder, so it takes as long as convert. TMPDIR
    names another place for that folder.

    [bold]Example[/bold]

      batchgnn tables check shop
    """
    from pyg_batchgnn.tables import GraphDescription
    from pyg_batchgnn.tables import check as check_tables

    found = check_tables(GraphDescription.read(tables), memory_limit=_bytes(memory_limit), threads=threads)
    console = Console()
    for table in found.tables():
        console.print(table)
    for note in found.notes:
        typer.echo(f"note: {note}")
    typer.echo(f"arrays of the data folder: {found.nbytes / 2**20:,.1f} MiB")
    typer.echo(
        f"memory that training takes for them: {found.training_bytes / 2**20:,.1f} MiB, and a model's on top"
    )


def convert(tables: _Tables, out: _Out, memory_limit: _Memory = None, threads: _Threads = None) -> None:
    """Converts tables to a data folder, which train and partition read.

    Ids follow the order of files and rows. The same tables give the same bytes,
    with any memory and any number of threads. A conversion that was killed goes
    on when it is started again.

    [bold]Examples[/bold]

      batchgnn tables convert shop --out shop-data

      batchgnn tables convert shop --out shop-data --memory-limit 8GiB

      batchgnn train shop-data
    """
    from pyg_batchgnn.tables import GraphDescription
    from pyg_batchgnn.tables import convert as convert_tables

    limit = _bytes(memory_limit)
    with_status(
        lambda progress: convert_tables(
            GraphDescription.read(tables), out, memory_limit=limit, threads=threads, progress=progress
        )
    )


def apply(
    model: Annotated[Path, typer.Argument(help="Data folder that convert wrote.")],
    tables: Annotated[
        Path,
        typer.Argument(
            help="New tables: a graph.toml, or a folder with files of the same names as those of the model."
        ),
    ],
    out: _Out,
    memory_limit: _Memory = None,
    threads: _Threads = None,
) -> None:
    """Converts new tables as those of a model were: with its scales, categories and classes.

    So the payments of today are scored by the model of yesterday. Columns of
    labels and of splits may be missing. A category that the model does not know
    counts as "other".

    [bold]Example[/bold]

      batchgnn tables apply shop-data shop-today --out today
    """
    from pyg_batchgnn.tables import apply as apply_tables

    limit = _bytes(memory_limit)
    with_status(
        lambda progress: apply_tables(
            model, tables, out, memory_limit=limit, threads=threads, progress=progress
        ),
        f"score its rows with: batchgnn predict RUN --dataset {out} --out SCORES",
    )


def _bytes(memory_limit: str | None) -> int | None:
    return None if memory_limit is None else parse_size(memory_limit)


def with_status(make: Callable[[Callable[[str], None]], Conversion], use: str | None = None) -> None:
    """Runs a conversion with a line that shows its step, and prints what was made. ``use``: what
    the user can do with the folder; None: train on it."""
    console, begun = Console(), time.perf_counter()
    if console.is_terminal:
        with console.status("reading") as shown:
            made = make(lambda step: shown.update(step.replace("[", "\\[")))
    else:
        made = make(lambda _: None)
    for name, count in made.nodes.items():
        typer.echo(f"{name}: {count:,} nodes")
    for relation, edges in made.edges.items():
        typer.echo(f"{'-'.join(relation)}: {edges:,} edges")
    for name, reasons in made.bad.items():
        for reason, rows in reasons.items():
            what = f"with a {reason}" if reason.startswith("wrong") else f"with a value that {reason}"
            typer.echo(f"set aside of {name}: {rows:,} row{'s' if rows > 1 else ''} {what}")
    then = use or f"train on it with: batchgnn train {quote(str(made.folder))}{made.training}"
    typer.echo(f"wrote {made.folder} in {time.perf_counter() - begun:.1f} s; {then}")


for command in (describe, check, convert, apply):
    tables_app.command()(command)
