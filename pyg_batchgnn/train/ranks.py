"""The ranks of a run: what the trainer knows of the processes that train with it."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

import torch
from torch import Tensor

from pyg_batchgnn.comm import Communicator, check_backend
from pyg_batchgnn.train.config import RanksConfig
from pyg_batchgnn.train.errors import ToldElsewhereError, TrainError

T = TypeVar("T")


class Ranks(contextlib.ExitStack):
    """The processes that a launcher started for this run, or the one process that it is without a launcher.

    Enter it: when the block ends with an error, the other ranks are told which.

    Attributes:
        rank, size: of this process, and how many there are.
        sampling: for partitioning and the loaders, whose thread may work beside training.
        training: for gradients and for all that the trainer agrees on, on the main thread.
    """

    def __init__(self, sampling: Communicator, training: Communicator) -> None:
        super().__init__()
        self.sampling, self.training = sampling, training
        self.rank, self.size = training.rank, training.size
        self.enter_context(sampling)
        self.enter_context(training)

    @classmethod
    def join(cls, config: RanksConfig) -> Ranks:
        """Meets the other ranks; on the main thread.

        Raises:
            TrainError: the backend cannot be had here, or the launcher's environment is not whole.
            CommError: they did not come in time, or run something else.
        """
        try:
            check_backend(config.backend)
        except ValueError as error:
            raise TrainError(f"ranks.{error}") from error
        made = {"timeout": config.timeout, "backend": config.backend}
        try:
            sampling = Communicator.create("sampling", **made)  # type: ignore[arg-type]
        except ValueError as error:
            raise TrainError(str(error)) from error
        return cls(sampling, Communicator.create("training", **made))  # type: ignore[arg-type]

    @property
    def is_first(self) -> bool:
        """Whether this rank reports and writes."""
        return self.rank == 0

    @property
    def is_alone(self) -> bool:
        """Whether there is no other rank."""
        return self.size == 1

    @property
    def is_first_of_host(self) -> bool:
        """Whether this rank does what one rank of a host does for all."""
        return self.training.ranks_of_host[0] == self.rank

    def threads(self) -> int:
        """Threads for each rank of this host so that all its cores are used; alone, as torch has it."""
        if self.is_alone:
            return torch.get_num_threads()
        return max(1, len(os.sched_getaffinity(0)) // len(self.training.ranks_of_host))

    def agree(self, arguments: Mapping[str, Any]) -> None:
        """Makes sure that every rank was given these.

        Raises:
            AgreementError: on every rank, with names and values.
        """
        self.training.check_agreement(arguments)

    def table(self, row: Sequence[float]) -> Tensor:
        """[R, n] float64: the numbers of every rank."""
        mine = torch.tensor([row], dtype=torch.float64)
        return mine if self.is_alone else self.training.all_gather(mine).rows

    def values(self, value: Any) -> list[Any]:
        """The JSON value of every rank."""
        return [value] if self.is_alone else self.training.all_gather_json(value)

    def any(self, flag: bool) -> bool:
        """Whether any rank says so."""
        return bool(self.table([flag]).any())

    def of_first(self, make: Callable[[], T]) -> T:
        """What `make` gives on the first rank, on every rank. It is a JSON value.

        Raises:
            Exception: on the first rank, as `make` did.
            ToldElsewhereError: on the others, where `make` refused something with a ValueError or OSError.
        """
        value, error = None, None
        if self.is_first:
            try:
                value = make()
            except (ValueError, OSError) as refusal:
                error = refusal
        if self.is_alone:
            result: Any = value
        else:
            result, failed = self.training.all_gather_json([value, error is not None])[0]
            if failed and error is None:
                raise ToldElsewhereError
        if error is not None:
            raise error
        return result

    def bytes_of_first(self, data: bytes) -> bytes:
        """The first rank's bytes; those of the others count nothing."""
        length = self.of_first(lambda: len(data))
        if self.is_alone or length == 0:
            return data
        buffer = torch.zeros(length, dtype=torch.uint8)
        if self.is_first:
            buffer = torch.frombuffer(bytearray(data), dtype=torch.uint8)
        return self.training.broadcast(buffer).numpy().tobytes()
