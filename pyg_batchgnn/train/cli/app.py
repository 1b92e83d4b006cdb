"""The program of all commands. It reports a user's mistake in one line, with exit status 2.

A command imports torch and the rooms that it needs when it runs, so that help appears at once.
"""

from __future__ import annotations

import sys
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from pyg_batchgnn import __version__
from pyg_batchgnn.train.cli.data_commands import datasets, generate, verify
from pyg_batchgnn.train.cli.doctor_command import doctor
from pyg_batchgnn.train.cli.evaluate_command import evaluate
from pyg_batchgnn.train.cli.messages import DEBUG_VARIABLE, INTERRUPTED, USER_MISTAKE, complain
from pyg_batchgnn.train.cli.partition_command import partition
from pyg_batchgnn.train.cli.plan_command import plan_command
from pyg_batchgnn.train.cli.predict_command import predict
from pyg_batchgnn.train.cli.train_command import train


class _Commands(TyperGroup):
    """The commands. Ctrl-C prints one line, even while a command imports torch."""

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt:
            print("batchgnn: interrupted", file=sys.stderr)
            raise typer.Exit(INTERRUPTED) from None


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
for command in (train, predict, evaluate, datasets, generate, partition, verify, doctor):
    app.command()(command)
app.command("plan")(plan_command)


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


def main(arguments: list[str] | None = None) -> None:
    """Runs the command line and exits.

    Args:
        arguments: of the command line; None takes them from `sys.argv`.
    """
    try:
        status = app(arguments, standalone_mode=False)
    except _UsageError as error:
        if type(error).__name__ == "NoArgsIsHelpError":
            error.show()
            sys.exit(USER_MISTAKE)
        status = complain(error.format_message(), USER_MISTAKE)
    except Exception as error:
        from pyg_batchgnn.train.cli.failures import report

        status = report(error, next(iter(sys.argv[1:] if arguments is None else arguments), ""))
    sys.exit(status if isinstance(status, int) else 0)
