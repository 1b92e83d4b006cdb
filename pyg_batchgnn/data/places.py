"""The folders in which data sets are looked for."""

from __future__ import annotations

import os
from pathlib import Path

DATA_VARIABLE = "PYG_BATCHGNN_DATA"


def data_folders(root: str | Path | None) -> list[Path]:
    """Returns the folders to search, best first: only `root` if it is given. Else the folder in the
    environment variable PYG_BATCHGNN_DATA, or `../shared/data` beside the checkout that this
    package was imported from, or that is the working directory."""
    if root is not None:
        return [Path(root).expanduser()]
    named = os.environ.get(DATA_VARIABLE)
    if named:
        return [Path(named).expanduser()]
    found = []
    for project in (Path(__file__).resolve().parents[2], Path.cwd()):
        shared = project.parent / "shared" / "data"
        if (project / "pyproject.toml").is_file() and shared.is_dir() and shared not in found:
            found.append(shared)
    return found


def say_where(folders: list[Path]) -> str:
    if not folders:
        return f"no data folder was found; set the environment variable {DATA_VARIABLE} to one"
    return "looked in " + ", ".join(map(str, folders))
