"""The folder that a run leaves behind, and the safe replacement of its files."""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pyg_batchgnn.data import DatasetError
from pyg_batchgnn.data.files import sync_file, sync_folder, writing
from pyg_batchgnn.train.errors import TrainError
from pyg_batchgnn.train.run_folder.row_folders import RowFolders


@dataclass(frozen=True)
class RunFolder:
    """A run folder, which has fixed file names."""

    path: Path

    @property
    def config(self) -> Path:
        """The configuration as JSON."""
        return self.path / "config.json"

    @property
    def metrics(self) -> Path:
        """The records of epochs: one JSON object per line and epoch."""
        return self.path / "metrics.jsonl"

    @property
    def result(self) -> Path:
        """The final figures as JSON. It exists once the run has finished."""
        return self.path / "result.json"

    @property
    def checkpoint(self) -> Path:
        """The state of the run, from which it can be resumed, and the best model."""
        return self.path / "checkpoint.safetensors"

    @property
    def rows(self) -> RowFolders:
        """The learned rows of the checkpoint and of the best model."""
        return RowFolders(self.path / "embeddings")

    @classmethod
    def create(cls, path: Path | None, name: str) -> RunFolder:
        """Makes a folder at `path`, or at ``runs/<name>-<n>`` with the first free n.

        Raises:
            TrainError: `path` exists and is not an empty folder.
            DatasetError: it cannot be made.
        """
        if path is not None:
            if path.exists() and (not path.is_dir() or any(path.iterdir())):
                raise TrainError(
                    f"{path} is not empty; give another folder with --run, "
                    f"or continue its run with --resume {path}"
                )
            with writing(path):
                path.mkdir(parents=True, exist_ok=True)
            return cls(path)
        safe = re.sub(r"[^\w.-]+", "_", name)
        number = 1
        with writing(Path("runs")):
            Path("runs").mkdir(exist_ok=True)
        while True:
            path = Path("runs") / f"{safe}-{number}"
            try:
                path.mkdir()
            except FileExistsError:
                number += 1
            else:
                return cls(path)

    @classmethod
    def open(cls, path: Path) -> RunFolder:
        """Opens a folder that a run has written.

        Raises:
            TrainError: it does not exist or has no configuration.
        """
        folder = cls(path)
        if not path.is_dir():
            raise TrainError(
                f"{path}: no such run folder; a run prints the path of its folder when it starts"
            )
        if not folder.config.is_file():
            raise TrainError(f"{path}: not a run folder, since it has no {folder.config.name}")
        return folder

    def clear(self) -> None:
        """Empties the folder of a run that was killed before its first checkpoint.

        Other folders, and those that do not exist, are left as they are.
        """
        leftovers = self._leftovers()
        begun = self.config.is_file() and not self.checkpoint.exists()
        if begun or (leftovers and set(leftovers) == set(self.path.iterdir())):
            self.remove_leftovers()
            shutil.rmtree(self.rows.path, ignore_errors=True)
            for path in (self.metrics, self.config):
                path.unlink(missing_ok=True)

    def remove_leftovers(self) -> None:
        """Removes the files that a process was writing when it was killed."""
        for path in self._leftovers():
            path.unlink(missing_ok=True)

    def _leftovers(self) -> list[Path]:
        """Returns the files with names that `replacing` gives."""
        return [path for path in self.path.glob(".*.tmp") if re.fullmatch(r"\..+\.\d+\.tmp", path.name)]


@contextlib.contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Gives a temporary path to write, which replaces `path` if the block ends without an error.

    The contents are on disk before `path` is replaced.

    Raises:
        DatasetError: `path` is a folder, or a device such as /dev/null, which a file must not
            replace; or writing failed, for instance on a full disk. It names `path`, which is left
            as it was.
    """
    if path.exists() and not path.is_file():
        raise DatasetError(f"{path}: is no ordinary file, and stays as it is; give another path")
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        with writing(path):
            yield temporary
            sync_file(temporary)
            temporary.replace(path)
        sync_folder(path.parent)
    finally:
        temporary.unlink(missing_ok=True)


def write_json(path: Path, value: Any) -> None:
    """Replaces `path` by `value` as indented JSON."""
    with replacing(path) as temporary:
        temporary.write_text(json.dumps(value, indent=2) + "\n", encoding="utf-8")
