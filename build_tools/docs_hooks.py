"""Makes the page of the command line for the documentation site, from the parser itself, and links
of the paths that docstrings name."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import typer

if TYPE_CHECKING:
    from mkdocs.config.defaults import MkDocsConfig
    from mkdocs.structure.files import Files
    from mkdocs.structure.pages import Page

COMMAND_LINE = "reference/command-line.md"
_RICH = re.compile(r"\[/?bold\]")
#: A page in the text of a docstring, not in the address of a link.
_PATH = re.compile(r"(?<![\w./=\"])docs/([\w/-]+\.md)")


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Adds the page of the command line to the pages that were found in docs/."""
    from mkdocs.structure.files import File

    files.append(File.generated(config, COMMAND_LINE, content=command_line()))
    return files


def on_page_content(html: str, page: Page, config: MkDocsConfig, files: Files) -> str:  # noqa: ARG001
    """Returns the page with links in the place of paths such as docs/how-to/disk.md."""

    def link(found: re.Match[str]) -> str:
        target = files.get_file_from_path(found[1])
        if target is None:
            return found[0]
        return f'<a href="{target.url_relative_to(page.file)}">{target.name.replace("-", " ")}</a>'

    return _PATH.sub(link, html)


def command_line() -> str:
    """Returns the page about `batchgnn`, made from the parser itself and the table of options."""
    from pyg_batchgnn.train.cli import app

    group: Any = typer.main.get_command(app)
    pages = [_command(name, command) for name, command in group.commands.items()]
    inner = {
        f"{name} {own}": one
        for name, command in group.commands.items()
        for own, one in getattr(command, "commands", {}).items()
    }
    pages += [_command(name, command) for name, command in inner.items()]
    return (
        "\n\n".join(["# Command line", _text(group.help), *pages, _configuration()]).replace("\\[", "[")
        + "\n"
    )


def _configuration() -> str:
    """Returns the section about the fields of ``config.json``, which `--set` reaches."""
    from pyg_batchgnn.train.config.table import FIELDS, shown

    rows = [
        f"| `{path}` | {', '.join(f'`{flag}`' for flag in row.flags) or _cell(row.help)} | "
        f"`{shown(row.default)}` | {row.bounds} | {row.option.resuming.value} |"
        for path, row in FIELDS.items()
    ]
    return "\n".join(
        [
            "## The fields of a configuration",
            "",
            "`config.json` in a run folder has all of them, and `--set` reaches each.",
            "",
            "| field | option | default | bounds | in a resumed run |",
            "|---|---|---|---|---|",
            *rows,
        ]
    )


def _command(name: str, command: Any) -> str:
    """Returns the section of one command: its help text and one table for each panel of options."""
    arguments = [one for one in command.params if one.param_type_name == "argument"]
    own = ["COMMAND"] if hasattr(command, "commands") else []
    usage = " ".join([f"batchgnn {name}", *own, *(f"[{one.name.upper()}]" for one in arguments), "[OPTIONS]"])
    parts = [f"## batchgnn {name}", f"```text\n{usage}\n```", _text(command.help)]
    for panel, options in _panels(command).items():
        rows = "\n".join(f"| {_names(one)} | {_cell(one.help or '')} | {_default(one)} |" for one in options)
        parts.append(f"**{panel}**\n\n| | | default |\n|---|---|---|\n{rows}")
    return "\n\n".join(parts)


def _panels(command: Any) -> dict[str, list[Any]]:
    """Returns the parameters of a command by the panel that the help text shows them in."""
    panels: dict[str, list[Any]] = {}
    for one in command.params:
        if not getattr(one, "hidden", False):
            kind = "Arguments" if one.param_type_name == "argument" else "Options"
            panels.setdefault(getattr(one, "rich_help_panel", None) or kind, []).append(one)
    return panels


def _names(option: Any) -> str:
    """Returns an argument in capitals, or all spellings of an option."""
    if option.param_type_name == "argument":
        return f"`{option.name.upper()}`"
    return ", ".join(f"`{name}`" for name in [*option.opts, *option.secondary_opts])


def _default(option: Any) -> str:
    """Returns an option's default, or "" where there is none."""
    value = getattr(option.default, "value", option.default)  # an enumeration's member is given by its value
    return "" if value is None or callable(value) or value in ((), False, "") else f"`{value}`"


def _cell(text: str) -> str:
    """Returns a help text as one cell of a table."""
    return " ".join(_bold(text).split()).replace("|", "\\|").replace("<", "&lt;")


def _bold(text: str) -> str:
    """Returns a text with the bold words of rich as those of Markdown."""
    return _RICH.sub("**", text)


def _text(help_text: str | None) -> str:
    """Returns a help text as Markdown: examples, which are indented there, become code."""
    paragraphs = []
    for paragraph in (help_text or "").replace("\b", "").split("\n\n"):
        lines = paragraph.strip("\n").splitlines()
        if lines and all(line.startswith("  ") or not line.strip() for line in lines):
            code = "\n".join(line[2:] for line in lines).replace("\n  ", " \\\n    ")
            if paragraphs and paragraphs[-1].endswith("\n```"):
                paragraphs[-1] = paragraphs[-1].removesuffix("\n```") + f"\n{code}\n```"
            else:
                paragraphs.append(f"```sh\n{code}\n```")
        elif lines:
            paragraphs.append(_bold("\n".join(line.strip() for line in lines)))
    return "\n\n".join(paragraphs)
