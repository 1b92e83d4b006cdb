"""Turns of processes that share memory: each announces its own, and waits for those of others."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from pyg_batchgnn.ops.checks import check_vector
from pyg_batchgnn.ops.library import kernels


def announce_turn(word: Tensor, turn: int) -> None:
    """Announces a turn of this process. Whoever sees it also sees all that was written before.

    Args:
        word: [1] int32, in memory that the other processes map as well. Only this process writes
            it.
        turn: any number that ascends. The word holds its lowest 32 bits.
    """
    _check_word(word)
    kernels.announce_turn_(word, turn)


def wait_for_turns(words: Sequence[Tensor], turn: int, seconds: float) -> bool:
    """Waits until every process has announced a turn or a later one.

    The wait takes no processor time, lets other threads run, and ends early if a signal comes.

    Args:
        words: [1] int32 each, the words of the processes.
        turn: as in `announce_turn`. No process may be 2^31 turns from it.
        seconds: the longest wait.

    Returns:
        Whether all have announced it.
    """
    for word in words:
        _check_word(word)
    return bool(kernels.wait_for_turns(list(words), turn, seconds))


def _check_word(word: Tensor) -> None:
    check_vector("word", word, (torch.int32,))
    if len(word) != 1 or word.data_ptr() % word.itemsize:
        raise ValueError(f"word must be one aligned int32, not {len(word)} numbers at {word.data_ptr():#x}")
