"""Reads the code blocks of a Markdown page and runs them in order, in one temporary folder.

A comment before a fence says that its block is run in another way than the ordinary one:

    <!-- not run: REASON -->     the block is left out, for a reason that is given
    <!-- file: NAME -->          the block is the contents of a file, which later blocks use
    <!-- on two hosts -->        the block runs on both hosts of `tests.support.two_hosts`

Python blocks of a page share one namespace. A `text` block holds what the block before it printed.
`...` stands for anything in a line or, alone in a line, for any number of lines. A number with a
decimal point may differ by 0.02, or by one part in fifty: another processor rounds differently.
"""

from __future__ import annotations

import contextlib
import io
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType

import torch

from tests.support.programs import quick_programs, real_programs
from tests.support.tiers import ALL
from tests.support.two_hosts import TwoHosts

ROOT = Path(__file__).parents[2]
RUNNABLE = {"python", "sh", "bash", "console"}
OUTPUT = "text"
#: The pages that a reader tries first. In `make test-all` their commands start as his do, which
#: takes some seconds each. Others are forks of one process.
FIRST_PAGES = {"README.md", "docs/get-started.md"}
#: A command may take this long on a busy machine.
SECONDS = 400

_FENCE = re.compile(
    r"(?:^<!-- (?P<note>[^\n]*?) -->\n\n?)?"
    r"^(?P<fence>`{3,})(?P<language>\w*)[^\n]*\n(?P<code>.*?)^(?P=fence)$",
    re.MULTILINE | re.DOTALL,
)
_NUMBER = re.compile(r"\d+\.\d+")


@dataclass(frozen=True)
class Block:
    language: str  # the word behind the fence
    code: str
    line: int  # the number of the fence's line in the page
    note: str  # the comment before the fence, or ""
    output: str | None  # the `text` block that follows

    @property
    def reason(self) -> str | None:
        return self.note.removeprefix("not run:").strip() if self.note.startswith("not run") else None


def blocks_of(page: str) -> list[Block]:
    found = list(_FENCE.finditer(page))
    blocks = []
    for at, match in enumerate(found):
        if match["language"] not in RUNNABLE:
            continue
        output = None
        if at + 1 < len(found) and found[at + 1]["language"] == OUTPUT:
            between = page[match.end() : found[at + 1].start()]
            output = found[at + 1]["code"] if not between.strip() else None
        line = page.count("\n", 0, match.start("fence")) + 1
        blocks.append(Block(match["language"], match["code"], line, match["note"] or "", output))
    return blocks


class Page:
    def __init__(self, name: str, folder: Path) -> None:
        self._name = name
        self._folder = folder
        self._script = ModuleType("__main__")

    def run(self, block: Block) -> None:
        if block.reason is not None:
            return
        if block.note.startswith("file: "):
            (self._folder / block.note.removeprefix("file: ")).write_text(block.code)
            return
        where = f"{self._name}:{block.line}"
        if block.note == "on two hosts":
            printed = self._on_two_hosts(block.code, where)
        elif block.language == "python":
            printed = self._python(block.code, where)
        else:
            printed = self._shell(block.code, where)
        if block.output is not None:
            assert is_shown(printed, block.output), (
                f"{where} prints\n{printed}\nand the page shows\n{block.output}"
            )

    def _python(self, code: str, where: str) -> str:
        threads, before = torch.get_num_threads(), sys.modules["__main__"]
        torch.set_num_threads(1)  # threads of torch's that spin would slow down a busy machine
        try:
            with contextlib.redirect_stdout(io.StringIO()) as printed, _inside(self._folder):
                sys.modules["__main__"] = self._script
                exec(compile(code, where, "exec"), vars(self._script))
        finally:
            sys.modules["__main__"] = before
            torch.set_num_threads(threads)
        return printed.getvalue()

    def _shell(self, code: str, where: str) -> str:
        ran = subprocess.run(
            ["bash", "-euo", "pipefail", "-c", code],
            cwd=self._folder,
            env=environment(quick=not ALL or self._name not in FIRST_PAGES),
            capture_output=True,
            text=True,
            timeout=SECONDS,
            check=False,
        )
        assert ran.returncode == 0, f"{where} ended with {ran.returncode}\n{ran.stdout}\n{ran.stderr}"
        return ran.stdout

    def _on_two_hosts(self, code: str, where: str) -> str:
        with TwoHosts() as hosts:
            ran = hosts.run(["bash", "-euo", "pipefail", "-c", code], self._folder, environment(), SECONDS)
        assert all(one.code == 0 for one in ran), f"{where}\n" + "\n".join(
            f"--- host {host} ended with {one.code}\n{one.stdout}\n{one.stderr}"
            for host, one in enumerate(ran)
        )
        return ran[0].stdout


def environment(*, quick: bool = False) -> dict[str, str]:
    """Returns the environment of commands: this interpreter's programs, or forks (`quick`)."""
    programs = quick_programs() if quick else real_programs()
    return {**os.environ, **programs, "COLUMNS": "100", "NO_COLOR": "1"}


def is_shown(printed: str, shown: str) -> bool:
    pattern = []
    for line in shown.rstrip("\n").split("\n"):
        if line.strip() == "...":
            pattern.append(r"(?:[^\n]*\n)*?")
            continue
        words = (r"[^\n]*".join(map(re.escape, part.split("..."))) for part in _NUMBER.split(line.rstrip()))
        pattern.append(r"(\d+\.\d+)".join(words) + r"[ ]*\n")
    found = re.fullmatch("".join(pattern), printed.rstrip("\n") + "\n")
    if found is None:
        return False
    numbers = [text for line in shown.split("\n") for text in _NUMBER.findall(line)]
    pairs = [(float(one), float(other)) for one, other in zip(found.groups(), numbers, strict=True)]
    return all(abs(one - other) <= max(0.02, abs(other) / 50) for one, other in pairs)


@contextlib.contextmanager
def _inside(folder: Path) -> Iterator[None]:
    before = Path.cwd()
    os.chdir(folder)
    try:
        yield
    finally:
        os.chdir(before)
