"""The program of all commands. It reports a user's mistake in one line, with exit status 2."""

from __future__ import annotations

import os
import sys
from typing import Any

import torch.distributed as dist
import typer

from pyg_batchgnn.comm import AgreementError, CommError
from pyg_batchgnn.data import DatasetError
from pyg_batchgnn.train.cli.data_commands import datasets, generate, verify
from pyg_batchgnn.train.cli.doctor_command import doctor
from pyg_batchgnn.train.cli.partition_command import partition
from pyg_batchgnn.train.cli.plan_command import plan_command
from pyg_batchgnn.train.cli.predict_command import predict
from pyg_batchgnn.train.cli.train_command import train
from pyg_batchgnn.train.errors import FirstRankError, TrainError

USER_MISTAKE = 2
PEER_FAILED = 3
DEBUG_VARIABLE = "PYG_BATCHGNN_DEBUG"
#: Torch's word, in a RuntimeError, for a tensor that does not fit into memory.
_NO_MEMORY = "DefaultCPUAllocator"

app = typer.Typer(
    name="batchgnn",
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
)
for command in (train, predict, datasets, generate, partition, verify, doctor):
    app.command()(command)
app.command("plan")(plan_command)

# Some versions of typer have a copy of click under another name. The base class has one name.
_UsageError: Any = next(base for base in typer.BadParameter.__mro__ if base.__name__ == "ClickException")


def main(arguments: list[str] | None = None) -> None:
    """Runs the command line and exits.

    Args:
        arguments: of the command line; None takes them from `sys.argv`.
    """
    try:
        status = app(arguments, standalone_mode=False)
    except (TrainError, DatasetError) as error:
        status = _mistake(str(error))
    except FirstRankError:
        status = USER_MISTAKE
    except AgreementError as error:  # all ranks have the same error
        status = _complain(str(error), USER_MISTAKE) if _rank() in ("", "0") else USER_MISTAKE
    except (CommError, dist.DistError) as error:
        status = _complain(str(error), PEER_FAILED)
    except _UsageError as error:
        if type(error).__name__ == "NoArgsIsHelpError":
            error.show()
            sys.exit(USER_MISTAKE)
        status = _mistake(error.format_message())
    except OSError as error:
        status = _mistake(str(error))
    except (MemoryError, RuntimeError) as error:
        if not isinstance(error, MemoryError) and _NO_MEMORY not in str(error):
            raise
        status = _mistake(f"not enough memory: {error}; use a smaller batch, fanout or hidden size")
    except (KeyboardInterrupt, typer.Abort):
        print("batchgnn: interrupted", file=sys.stderr)
        status = 130
    sys.exit(status if isinstance(status, int) else 0)


def _mistake(message: str) -> int:
    return _complain(message, USER_MISTAKE)


def _complain(message: str, status: int) -> int:
    """Prints one line to the standard error. With the debug variable set, raises the error
    again."""
    if os.environ.get(DEBUG_VARIABLE):
        raise
    who = f"rank {_rank()}: " if _rank() else ""
    print(f"batchgnn: {who}{' '.join(message.split())}", file=sys.stderr)
    return status


def _rank() -> str:
    """Returns this process's rank if a launcher started several, else an empty text."""
    return os.environ.get("RANK", "") if os.environ.get("WORLD_SIZE", "1") != "1" else ""
