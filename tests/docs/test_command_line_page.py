"""The page of the command line names every command and every option."""

from __future__ import annotations

from typing import Any

import pytest
import typer

from build_tools.docs_hooks import command_line
from pyg_batchgnn.train.cli import app

GROUP: Any = typer.main.get_command(app)


@pytest.mark.parametrize("name", sorted(GROUP.commands))
def test_a_command_has_a_section_with_its_options(name: str) -> None:
    page = command_line()
    assert f"## batchgnn {name}\n" in page
    section = page.split(f"## batchgnn {name}\n")[1].split("\n## ")[0]
    options = [one for one in GROUP.commands[name].params if one.param_type_name == "option"]
    missing = [spelling for one in options for spelling in one.opts if f"`{spelling}`" not in section]
    assert not missing


def test_markup_of_the_terminal_is_gone() -> None:
    page = command_line()
    assert "[bold]" not in page and "\b" not in page
    assert page.count("```") % 2 == 0
