"""The rows that a step pushes to its peers, and those that are on their way (AEP in DistGNN-MB)."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from pyg_batchgnn.comm import CommError, Communicator, Header, MessageKind, Received
from pyg_batchgnn.history.message import PushedRows, decode, encode


@dataclass(frozen=True, eq=False)
class UnderWay:
    """The rows that ranks pushed to this one in a step.

    Attributes:
        step: the number of the step.
        wait: waits for the rows and returns the bytes of each rank.
    """

    step: int
    wait: Callable[[], list[Tensor]]

    @classmethod
    def arrived(cls, step: int, messages: list[Tensor]) -> UnderWay:
        """Returns rows that have arrived. ``messages``: the bytes of each rank."""
        return cls(step, lambda: messages)


class PushQueue:
    """The pushes of the latest steps, in the order of steps.

    Args:
        comm: a communicator that nothing else uses while pushes are under way.
    """

    def __init__(self, comm: Communicator) -> None:
        self._comm = comm
        self._queue: deque[UnderWay] = deque()

    def start(self, step: int, header: Header, rows: list[list[PushedRows]]) -> None:
        """Starts to push rows, by peer and layer. Collective, one round."""
        messages = [encode(layers) for layers in rows]
        items = [sum(one.node.numel() for one in layers) for layers in rows]
        handle = self._comm.start_exchange(messages, None, header, items=items)
        self._queue.append(UnderWay(step, lambda: _split(handle.wait())))

    def sent_until(self, step: int) -> list[list[PushedRows]]:
        """Waits for what was pushed up to a step. Returns it by push and layer, and forgets it."""
        found = []
        while self._queue and self._queue[0].step <= step:
            found.extend(self._decoded(self._queue.popleft()))
        return found

    def _decoded(self, push: UnderWay) -> list[list[PushedRows]]:
        layers = []
        for rank, message in enumerate(push.wait()):
            try:
                layers.append(decode(message))
            except ValueError as error:
                text = f"rank {rank} pushed rows that cannot be read: {error}; every rank must have the same"
                raise self._comm.fail(CommError(f"{text} release", [rank])) from error
        return layers

    def arrived(self) -> list[UnderWay]:
        """Waits for all that is under way. Returns it and keeps it."""
        self._queue = deque(UnderWay.arrived(push.step, push.wait()) for push in self._queue)
        return list(self._queue)

    def restore(self, pushes: list[UnderWay]) -> None:
        """Replaces what is under way."""
        self._queue = deque(pushes)


def header_of(epoch: int, step: int) -> Header:
    """Returns the header of the push of a step."""
    return Header(MessageKind.PUSH, epoch, step)


def _split(received: Received) -> list[Tensor]:
    return [message if message.numel() else torch.empty(0, dtype=torch.uint8) for message in received.split()]
