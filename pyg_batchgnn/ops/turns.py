"""Turns of processes that share memory: each announces its own, and waits for those of others."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from pyg_batchgnn.ops.checks import check_vector
from pyg_batchgnn.ops.library import kernels


class Turns:
    """The turns of this process and of others.

    Args:
        own: [1] int32, in memory that the other processes map as well. Only this process writes it.
        others: [1] int32 each, the words of the other processes.

    Raises:
        TypeError, ValueError: a word is something else.
    """

    def __init__(self, own: Tensor, others: Sequence[Tensor]) -> None:
        for word in (own, *others):
            _check_word(word)
        self._own, self._others = own, list(others)

    def announce(self, turn: int) -> None:
        """Announces a turn of this process. Whoever sees it also sees all that was written before.

        Args:
            turn: any number that ascends. The word holds its lowest 32 bits.
        """
        kernels.announce_turn_(self._own, turn)

    def wait(self, turn: int, seconds: float) -> bool:
        """Waits until every other process has announced a turn or a later one.

        The wait takes no processor time, lets other threads run, and ends early if a signal comes.

        Args:
            turn: as in `announce`. No process may be 2^31 turns from it.
            seconds: the longest wait.

        Returns:
            Whether all have announced it.
        """
        return bool(kernels.wait_for_turns(self._others, turn, seconds))


def _check_word(word: Tensor) -> None:
    check_vector("word", word, (torch.int32,))
    if len(word) != 1 or word.data_ptr() % word.itemsize:
        raise ValueError(f"word must be one aligned int32, not {len(word)} numbers at {word.data_ptr():#x}")
