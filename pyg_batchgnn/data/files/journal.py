"""The complete steps of a conversion, so that a killed one goes on from there."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from pyg_batchgnn.data.errors import DatasetError
from pyg_batchgnn.data.files.durable import (
    file_sha256,
    read_json,
    refuse_existing_path,
    rename_whole,
    sync_file,
    sync_folder,
    write_json,
    writing,
)
from pyg_batchgnn.data.files.npy import META_FILE, ArrayPromise, promise_of

#: What a step returns: facts, as JSON, and the files that it wrote.
Made = tuple[dict[str, Any], list[Path]]
#: the system's numbers of errors for a disk that is full or fails
_OF_THE_DISK = (errno.ENOSPC, errno.EDQUOT, errno.EIO)
_NAME, _WORK, _LOCK = "journal.json", "work", "lock"


class Journal:
    """A folder that is made step by step, under the temporary name ``folder``. ``work``: a folder
    in it for files that are not part of the result."""

    def __init__(self, path: Path, made_of: Any) -> None:
        """Begins the folder, or goes on with one of the same ``made_of`` (JSON). Raises
        `DatasetError` if `path` exists, or another process is making it."""
        refuse_existing_path(path)
        self.path, self.folder = path, path.with_name(f".{path.name}.converting")
        self.work = self.folder / _WORK
        with writing(path):
            self.folder.mkdir(parents=True, exist_ok=True)
        self._lock = _locked(self.folder / _LOCK, path)
        self._steps: dict[str, Any] = {}
        self.promises: dict[str, ArrayPromise] = {}
        made_of = json.loads(json.dumps(made_of))
        known: dict[str, Any] = {}
        if (self.folder / _NAME).is_file():
            with contextlib.suppress(DatasetError):
                known = read_json(self.folder / _NAME)
        if known.get("made_of") == made_of:
            self._steps = known["steps"]
        else:
            for one in self.folder.iterdir():
                if one.is_dir():
                    shutil.rmtree(one)
                elif one.name != _LOCK:
                    one.unlink()
        self._made_of = made_of
        with writing(path):
            self.work.mkdir(exist_ok=True)

    def step(self, name: str, make: Callable[[], Made]) -> dict[str, Any]:
        """Runs ``make`` unless the step is complete and its files have their checksums. Returns its
        facts. ``promises`` then has its arrays."""
        done: Any = self._steps.get(name)
        whole = done is not None and all(
            (self.folder / file).is_file() and file_sha256(self.folder / file) == said["sha256"]
            for file, said in done["files"].items()
        )
        if not whole:
            facts, files = make()
            promised = {}
            for file in files:
                sync_file(file)
                sync_folder(file.parent)
                said = promise_of(file).to_json() if file.suffix == ".npy" else {"sha256": file_sha256(file)}
                promised[file.relative_to(self.folder).as_posix()] = said
            done = {"facts": json.loads(json.dumps(facts)), "files": promised}
            self._steps[name] = done
            self._write()
        for file, said in done["files"].items():
            if file.endswith(".npy") and not file.startswith(_WORK):
                self.promises[file.removesuffix(".npy")] = ArrayPromise.from_json(said)
        return dict(done["facts"])

    def _write(self) -> None:
        temporary = self.folder / f"{_NAME}.partial"
        write_json(temporary, {"made_of": self._made_of, "steps": self._steps})
        sync_file(temporary)
        temporary.rename(self.folder / _NAME)
        sync_folder(self.folder)

    def finish(self) -> None:
        """Gives the folder its name, after removing ``work`` and the journal itself."""
        shutil.rmtree(self.work)
        for name in (_NAME, f"{_NAME}.partial", _LOCK):
            (self.folder / name).unlink(missing_ok=True)
        assert (self.folder / META_FILE).is_file()
        for file in self.folder.glob("*.json"):
            sync_file(file)
        rename_whole(self.folder, self.path)
        self.close()

    def close(self) -> None:
        """Releases the lock by which other processes are kept out."""
        if self._lock >= 0:
            os.close(self._lock)
            self._lock = -1


def _locked(file: Path, path: Path) -> int:
    import fcntl

    with writing(path):
        handle = os.open(file, os.O_RDWR | os.O_CREAT)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        os.close(handle)
        raise DatasetError(f"{path}: another process is making it; wait for it") from error
    return handle


@contextlib.contextmanager
def making(path: Path, made_of: Any) -> Iterator[Journal]:
    """Makes a folder step by step: ``with making(path, made_of) as journal``. A `DatasetError` in
    the block removes the unfinished folder. After a crash, a signal, or a disk that is full or
    fails, it stays, and the next call with the same ``made_of`` (JSON) goes on."""
    journal = Journal(path, made_of)
    try:
        yield journal
    except DatasetError as error:
        if isinstance(error.__cause__, OSError) and error.__cause__.errno in _OF_THE_DISK:
            raise DatasetError(
                f"{error}; what is complete stays in {journal.folder}: the same call goes on from there, or "
                f"remove that folder"
            ) from error
        shutil.rmtree(journal.folder, ignore_errors=True)
        raise
    finally:
        journal.close()
