"""The folders of a run's learned rows, one for each checkpoint that needs them."""

from __future__ import annotations

import shutil
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from pyg_batchgnn.embed import Embedding
from pyg_batchgnn.train.ranks import Ranks


def place_name(epoch: int, step: int) -> str:
    """Returns the name of the rows as they are after a number of epochs and further steps."""
    return f"epoch-{epoch}-step-{step}" if step else f"epoch-{epoch}"


@dataclass(frozen=True)
class RowFolders:
    """The learned rows that a run has saved. All ranks must see them.

    A checkpoint names the folder of its rows and that of the best epoch. So a checkpoint that is
    cut off leaves the one before as it was, with its rows.

    Args:
        path: the folder of them all.
    """

    path: Path

    def save(self, embedding: Embedding, name: str, ranks: Ranks) -> None:
        """Writes the present rows, and what the optimizer keeps; collective.

        Raises:
            DatasetError: a rank cannot write.
        """

        def make_room() -> None:
            self.path.mkdir(exist_ok=True)
            shutil.rmtree(self.path / name, ignore_errors=True)  # of a run that was killed

        ranks.from_first(make_room)
        embedding.save(self.path / name)

    def load(self, embedding: Embedding, name: str) -> None:
        """Reads the rows of that name, which any number of ranks wrote; collective.

        Raises:
            DatasetError: a file is damaged or missing, or of other tables.
        """
        embedding.load(self.path / name)

    def keep(self, names: Iterable[str], ranks: Ranks) -> None:
        """Removes all rows but those of some names; collective."""
        kept = set(names)

        def remove() -> None:
            for other in self.path.iterdir():
                if other.name not in kept:
                    shutil.rmtree(other, ignore_errors=True)

        ranks.from_first(remove)
