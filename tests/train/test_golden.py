"""Help texts and saved configurations that must stay as they are.

`python -m tests.train.test_golden` writes the help texts anew, where a change of them is wanted.
The configurations were written by runs of an earlier version, and are never written again.
"""

from __future__ import annotations

import json
import types
import typing
from enum import Enum
from pathlib import Path
from typing import Any

import pytest
import typer

from pyg_batchgnn.train.cli import app
from pyg_batchgnn.train.config import TrainConfig, config_to_dict, read_config
from pyg_batchgnn.train.errors import TrainError

GOLDEN = Path(__file__).with_name("golden")
GROUP: Any = typer.main.get_command(app)
TABLES: Any = GROUP.commands["tables"]
COMMANDS: dict[str, Any] = {
    "batchgnn": GROUP,
    **GROUP.commands,
    **{f"tables-{name}": command for name, command in TABLES.commands.items()},
}


def described(command: Any, callback: Any) -> str:
    """Returns the help of a command: its text, and of each parameter what the help shows."""
    lines, hints = [*(command.help or "").splitlines(), ""], typing.get_type_hints(callback)
    for one in command.params:
        if one.name not in hints:  # the program's own --help
            continue
        names = "/".join([", ".join(one.opts), *one.secondary_opts])
        ends = [None if end is None else float(end) for end in (one.min, one.max)]
        many = ", may be repeated" if one.multiple else ""
        lines += [
            f"{one.param_type_name} {names}: {type_name(hints[one.name])}{many}",
            f"    panel {getattr(one, 'rich_help_panel', None)}, from {ends[0]} to {ends[1]}, "
            f"default {getattr(one.default, 'value', one.default)!r}, required {one.required}",
            f"    {one.help}",
        ]
    return "\n".join(lines) + "\n"


def type_name(hint: Any) -> str:
    """Returns the type of a parameter; of a choice its values."""
    if typing.get_origin(hint) in (types.UnionType, typing.Union):
        return " or ".join(type_name(one) for one in typing.get_args(hint) if one is not type(None))
    if isinstance(hint, type) and issubclass(hint, Enum):
        return "|".join(one.value for one in hint)
    return getattr(hint, "__name__", str(hint))


def shown(name: str) -> str:
    command = COMMANDS[name]
    return described(
        command, command.callback.__wrapped__ if command not in (GROUP, TABLES) else lambda: None
    )


def golden_help(name: str) -> Path:
    return GOLDEN / f"help-{name}.txt"


@pytest.mark.parametrize("name", COMMANDS)
def test_help_is_as_it_was(name: str) -> None:
    assert shown(name) == golden_help(name).read_text(encoding="utf-8")


@pytest.mark.parametrize("path", sorted((GOLDEN / "configs").iterdir()), ids=lambda path: path.stem)
def test_a_saved_configuration_is_read_and_written_as_it_was(path: Path) -> None:
    """But for fields that there are no more, which are left out where they had the usual value, and
    for new ones, which have their defaults."""
    saved = json.loads(path.read_text(encoding="utf-8"))
    layers = saved["model"].pop("layers")
    if layers == "native":
        written, usual = config_to_dict(read_config(path)), config_to_dict(TrainConfig())
        for section, fields in written.items():
            new = {name: fields.pop(name) for name in fields.keys() - saved[section].keys()}
            assert new == {name: usual[section][name] for name in new}
        assert written == saved
        return
    with pytest.raises(TrainError, match=f"{path}: model.layers is pyg: PyG's layers are no longer trained"):
        read_config(path)


if __name__ == "__main__":
    for one in COMMANDS:
        golden_help(one).write_text(shown(one), encoding="utf-8")
