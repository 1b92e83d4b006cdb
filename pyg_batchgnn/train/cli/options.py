"""The options that commands share: from the table of options, and of saved runs."""

from __future__ import annotations

import functools
import inspect
import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer

from pyg_batchgnn.train.config.table import OPTIONS
from pyg_batchgnn.train.errors import as_train_error

if TYPE_CHECKING:
    from pyg_batchgnn.train.restored import RestoreRequest

T = TypeVar("T")


def opt(text: str, *flags: str, **more: Any) -> Any:
    return typer.Option(*flags, help=text, **more)


def option(name: str) -> Any:
    row = OPTIONS[name]
    return typer.Option(*row.flags, help=row.help, rich_help_panel=row.panel.value)


def with_options(added: Mapping[str, Any]) -> Callable[[Callable[..., T]], Callable[..., T]]:
    """Gives a command more options, behind its own parameters; it takes them as keywords.
    ``added``: annotation by option name. An option that the user did not give is None."""

    def decorated(command: Callable[..., T]) -> Callable[..., T]:
        own = inspect.signature(command, eval_str=True)
        parameters = [one for one in own.parameters.values() if one.kind is not inspect.Parameter.VAR_KEYWORD]
        for name, hint in added.items():
            parameters.append(inspect.Parameter(name, parameters[0].kind, default=None, annotation=hint))
        signature = own.replace(parameters=parameters)

        @functools.wraps(command)
        def with_all(*arguments: Any, **options: Any) -> T:
            return command(**signature.bind(*arguments, **options).arguments)

        with_all.__signature__ = signature  # type: ignore[attr-defined]
        with_all.__annotations__ = {one.name: one.annotation for one in parameters} | {
            "return": own.return_annotation
        }
        return with_all

    return decorated


def assignments(given: Mapping[str, Any]) -> list[str]:
    """Returns the fields that options set, as texts for `assign`. ``given``: option values by name,
    None if not given. A fanout sets the number of layers too, unless that is given. Raises
    `TrainError` if a size is no number of bytes."""
    texts = []
    if given.get("fanout") is not None and given.get("num_layers") is None:
        texts.append(f"model.num_layers={len(str(given['fanout']).split(','))}")
    for name, value in given.items():
        if value is None:
            continue
        shown = parse_size(value) if OPTIONS[name].option.is_size else value
        texts.append(f"{OPTIONS[name].path}={json.dumps(shown) if isinstance(shown, bool) else shown}")
    return texts


def parse_size(text: str) -> int:
    """Returns the bytes of a text such as 2GiB, 500MB, 100B or 0. Raises `TrainError` if the text
    is no number of bytes with a unit."""
    from pyg_batchgnn.ops import parse_bytes

    with as_train_error(ValueError):
        return parse_bytes(text)


_annotated: Any = Annotated
OF_TABLE: Mapping[str, Any] = {
    name: _annotated[row.command_line_type | None, option(name)] for name, row in OPTIONS.items()
}
Run = Annotated[Path, typer.Argument(help="Run folder with a checkpoint, as train writes it.")]
#: The options of commands of a saved run.
OF_SAVED_RUN: Mapping[str, Any] = {
    "exact": Annotated[
        bool | None,
        opt(
            "Compute every node from all its neighbours, layer by layer and with native layers, or sample "
            "neighbours as the run does. Default: as the run evaluates.",
            "--exact/--sampled",
        ),
    ],
    "dataset": Annotated[
        str | None,
        opt(
            "Name or folder of the data set, if it has moved since the run; or a folder of new tables, as "
            "tables apply writes it.",
            "--dataset",
        ),
    ],
    **{name: OF_TABLE[name] for name in ("freeze", "threads", "partition", "backend", "timeout")},
    "memory_budget": Annotated[
        str | None,
        opt(
            "Memory that a rank may use beside the topology, the model and labels, as in 2GiB. "
            "Features of files are held if they fit half of it. In one process, rows of all nodes lie in "
            "files if they do not fit. Default: that of the run.",
            "--memory-budget",
        ),
    ],
}


def restore_request(run: Path, given: Mapping[str, Any]) -> RestoreRequest:
    from pyg_batchgnn.train.config.choices import EvaluationKind
    from pyg_batchgnn.train.restored import RestoreRequest

    exact, budget = given.get("exact"), given.get("memory_budget")
    kinds = {True: EvaluationKind.EXACT, False: EvaluationKind.SAMPLED}
    ranks = assignments({name: given.get(name) for name in ("partition", "backend", "timeout")})
    return RestoreRequest(
        run,
        given.get("dataset"),
        given.get("threads"),
        None if exact is None else kinds[exact],
        tuple(ranks),
        None if budget is None else parse_size(budget),
        given.get("freeze"),
    )
