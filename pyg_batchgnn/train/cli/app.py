"""Puts the commands together and turns a user's mistakes into one line and exit status 2."""

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
#: What torch says, in a RuntimeError, where a tensor does not fit.
_NO_MEMORY = "DefaultCPUAllocator"

app = typer.Typer(
    name="batchgnn",
    help="Train graph neural networks on large graphs, on CPUs.\n\n"
    "Start with [bold]batchgnn train[/bold]: it picks a data set, trains GraphSAGE, prints a table and "
    "leaves a run folder. [bold]batchgnn COMMAND --help[/bold] explains a command with examples.\n\n"
    "Several ranks train together where torchrun starts them: "
    "[bold]torchrun --nproc-per-node=4 -m pyg_batchgnn train[/bold].\n\n"
    "A mistake gives one line and exit status 2, a failed rank gives status 3 on the others; set "
    f"{DEBUG_VARIABLE}=1 to see where it was noticed.",
    rich_markup_mode="rich",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
for command in (train, predict, datasets, generate, partition, verify, doctor):
    app.command()(command)
app.command("plan")(plan_command)

# typer brings click along under another name in some versions; the base class is the same
# everywhere.
_UsageError: Any = next(base for base in typer.BadParameter.__mro__ if base.__name__ == "ClickException")


def main(arguments: list[str] | None = None) -> None:
    """Run the command line (`sys.argv` where no arguments are given) and exit."""
    try:
        status = app(arguments, standalone_mode=False)
    except (TrainError, DatasetError) as error:
        status = _mistake(str(error))
    except FirstRankError:
        status = USER_MISTAKE
    except AgreementError as error:  # the same on all ranks
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
        status = _mistake(f"not enough memory: {error}; a smaller batch, fanout or hidden size needs less")
    except (KeyboardInterrupt, typer.Abort):
        print("batchgnn: interrupted", file=sys.stderr)
        status = 130
    sys.exit(status if isinstance(status, int) else 0)


def _mistake(message: str) -> int:
    return _complain(message, USER_MISTAKE)


def _complain(message: str, status: int) -> int:
    """One line on the standard error; with the debug variable set, the error being handled goes
    on."""
    if os.environ.get(DEBUG_VARIABLE):
        raise
    who = f"rank {_rank()}: " if _rank() else ""
    print(f"batchgnn: {who}{' '.join(message.split())}", file=sys.stderr)
    return status


def _rank() -> str:
    """This process's rank where a launcher started several, else nothing."""
    return os.environ.get("RANK", "") if os.environ.get("WORLD_SIZE", "1") != "1" else ""
