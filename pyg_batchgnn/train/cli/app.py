"""The program of all commands. It reports a user's mistake in one line, with exit status 2.

A command imports torch and the rooms that it needs when it runs, so that help appears at once.
"""

from __future__ import annotations

import json
import os
import re
import sys
from functools import cache
from typing import Annotated, Any

import typer
from rich.console import Console
from typer.core import TyperGroup

from pyg_batchgnn import __version__
from pyg_batchgnn.train.cli.graph_commands import convert, datasets, generate, partition, quantize, verify
from pyg_batchgnn.train.cli.plan_command import plan_command
from pyg_batchgnn.train.cli.saved_run_commands import evaluate, predict
from pyg_batchgnn.train.cli.tables_commands import tables_app
from pyg_batchgnn.train.cli.train_command import INTERRUPTED, train
from pyg_batchgnn.train.config.table import OPTIONS
from pyg_batchgnn.train.errors import FirstRankError, TrainError

USER_MISTAKE, PEER_FAILED = 2, 3
DEBUG_VARIABLE = "PYG_BATCHGNN_DEBUG"
_NO_MEMORY = "DefaultCPUAllocator"  # torch's word for a tensor that does not fit into memory
_NO_DEVICE = 'No such option: --device: commands train on CPUs; a loader in a script takes device="cuda"'


class _Commands(TyperGroup):
    """The commands. Ctrl-C prints one line, even while a command imports torch."""

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt:
            print("batchgnn: interrupted", file=sys.stderr)
            raise typer.Exit(INTERRUPTED) from None


def doctor(
    as_json_text: Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")] = False,
) -> int:
    """Shows what is installed and works here, and what to do about the rest.

    Checks torch, PyG and optional packages, the processor, huge pages and
    shared memory, and lets two processes exchange data over each backend of
    torch.distributed. Installs and changes nothing. The exit status is 1 if
    something that is needed does not work, else 0.

    [bold]Examples[/bold]

      batchgnn doctor

      batchgnn doctor --json
    """
    from pyg_batchgnn.doctor import as_json, as_table, examine, is_healthy

    findings = examine()
    if as_json_text:
        print(json.dumps(as_json(findings), indent=1))
    else:
        Console().print(as_table(findings))
    return 0 if is_healthy(findings) else 1


app = typer.Typer(
    name="batchgnn",
    cls=_Commands,
    help="Trains graph neural networks on large graphs, on CPUs.\n\n"
    "Start with [bold]batchgnn train[/bold]. It chooses a data set, trains GraphSAGE, prints a table "
    "and writes a run folder. [bold]batchgnn COMMAND --help[/bold] explains a command, with examples.\n\n"
    "Several ranks train together under torchrun: "
    "[bold]torchrun --nproc-per-node=4 -m pyg_batchgnn train[/bold].\n\n"
    "A mistake in the arguments ends with one line and exit status 2. If a rank fails, the others end "
    f"with exit status 3. Set {DEBUG_VARIABLE}=1 to see the traceback.",
    rich_markup_mode="rich",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
for command in (train, predict, evaluate, datasets, generate, convert, quantize, partition, verify, doctor):
    app.command()(command)
app.command("plan")(plan_command)
app.add_typer(tables_app, name="tables")


def _print_version(is_wanted: bool) -> None:
    if is_wanted:
        print(f"batchgnn {__version__}")
        raise typer.Exit


@app.callback()
def options(
    version: Annotated[
        bool, typer.Option("--version", help="Show the version.", callback=_print_version, is_eager=True)
    ] = False,
) -> None:
    """Takes the options that stand before a command. `_print_version` has handled them."""


# Some versions of typer have a copy of click under another name. The base class has one name.
_UsageError: Any = next(base for base in typer.BadParameter.__mro__ if base.__name__ == "ClickException")


@cache
def _program() -> Any:
    return typer.main.get_command(app)


def main(arguments: list[str] | None = None) -> None:
    """Runs the command line and exits.

    Args:
        arguments: of the command line; None takes them from `sys.argv`.
    """
    try:
        status = _program()(arguments, standalone_mode=False)
    except _UsageError as error:
        if type(error).__name__ == "NoArgsIsHelpError":
            error.show()
            sys.exit(USER_MISTAKE)
        said = error.format_message()
        status = _complain(_NO_DEVICE if "No such option: --device" in said else said, USER_MISTAKE)
    except Exception as error:
        status = _report(error, sys.argv[1:] if arguments is None else arguments)
    sys.exit(status if isinstance(status, int) else 0)


def _report(error: Exception, arguments: list[str]) -> int:
    command = next(iter(arguments), "")
    if isinstance(error, ImportError):  # a package is missing, or the operators do not load
        return _complain(str(error), USER_MISTAKE)
    import torch.distributed as dist

    from pyg_batchgnn.comm import AgreementError, CommError
    from pyg_batchgnn.data import DatasetError
    from pyg_batchgnn.data.files import system_message

    if isinstance(error, FirstRankError):
        return USER_MISTAKE
    if isinstance(error, AgreementError):  # all ranks have the same error
        return _complain(str(error), USER_MISTAKE) if _rank() in ("", "0") else USER_MISTAKE
    if isinstance(error, (CommError, dist.DistError)):
        return _complain(str(error), PEER_FAILED)
    if isinstance(error, (TrainError, DatasetError)):
        return _complain(_as_typed(str(error), arguments), USER_MISTAKE)
    if isinstance(error, OSError):
        return _complain(system_message(error), USER_MISTAKE)
    if isinstance(error, MemoryError) or (isinstance(error, RuntimeError) and _NO_MEMORY in str(error)):
        advice = "use a smaller batch, fanout or hidden size"
        if command not in ("train", "predict", "evaluate", "plan"):  # memory goes to the graph
            advice = "the graph does not fit; use a machine with more memory, or ranks on several machines"
        return _complain(f"not enough memory: {error}; {advice}", USER_MISTAKE)
    if "can't start new thread" in str(error):
        return _complain(f"{error}: raise ulimit -u, or take fewer --threads", USER_MISTAKE)
    raise error


def _as_typed(message: str, arguments: list[str]) -> str:
    """Replaces, in a message, each field that the user set by a flag with that flag."""
    typed = {argument.partition("=")[0] for argument in arguments}
    for row in OPTIONS.values():
        if flag := next((one for one in row.flags if one in typed), None):
            message = re.sub(rf"(?<![\w./]){re.escape(row.path)}(?![\w.])", flag, message)
    return message


def _complain(message: str, status: int) -> int:
    """Prints one line to the standard error, and returns `status`; raises where debugging."""
    if os.environ.get(DEBUG_VARIABLE):
        raise
    who = f"rank {_rank()}: " if _rank() else ""
    print(f"batchgnn: {who}{' '.join(message.split())}", file=sys.stderr)
    return status


def _rank() -> str:
    return os.environ.get("RANK", "") if os.environ.get("WORLD_SIZE", "1") != "1" else ""
