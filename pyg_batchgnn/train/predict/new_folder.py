"""A folder that all ranks write, which appears when it is complete."""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Iterator
from pathlib import Path

from pyg_batchgnn.data.files import rename_whole, sync_tree, writing
from pyg_batchgnn.train.errors import TrainError
from pyg_batchgnn.train.ranks import Ranks


@contextlib.contextmanager
def appearing_whole(out: Path, ranks: Ranks) -> Iterator[Path]:
    """Gives a temporary folder, which becomes ``out`` if the block ends without an error.

    Collective. The first rank makes the folder, and all ranks see it. What they wrote is on disk
    before the folder gets its name.

    Raises:
        TrainError: ``out`` exists.
    """
    temporary = out.with_name(f".{out.name}.partial")

    def begin() -> None:
        refuse_existing(out)
        shutil.rmtree(temporary, ignore_errors=True)  # of a process that was killed
        with writing(out):
            temporary.mkdir(parents=True)

    def end() -> None:
        sync_tree(temporary)
        rename_whole(temporary, out)

    try:
        ranks.from_first(begin)
        if not temporary.is_dir():
            raise TrainError(
                f"{temporary}: the folder that the first rank made is not here; give --out a folder that "
                f"all ranks see"
            )
        yield temporary
        ranks.from_first(end)
    finally:
        if ranks.is_first:
            shutil.rmtree(temporary, ignore_errors=True)


def refuse_existing(out: Path) -> None:
    """Raises TrainError if a path exists."""
    if out.exists():
        raise TrainError(f"{out} exists; give a new folder with --out")
