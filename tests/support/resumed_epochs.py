"""Epochs of loaders that are stopped, and go on in another loader."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

Check = Callable[[Any, Any], object]


class Resumed(NamedTuple):
    """A loader that went on, and the state that it went on from."""

    loader: Any
    state: dict[str, Any]


def resumed_at(
    loader: Any, make: Callable[[], Any], epoch: int, stops: Sequence[int] | None, check: Check
) -> Iterator[Resumed]:
    """Stops an epoch at some minibatches, and goes on in another loader; collective over ranks.

    The state passes through JSON. After the last minibatch the next epoch begins.

    Args:
        loader: the loader that is stopped.
        make: makes the one that goes on.
        epoch: the epoch.
        stops: the numbers of minibatches that are taken before; None: all but that of all.
        check: called with each batch that is left and the one of an epoch that was not stopped.
    """
    loader.set_epoch(epoch)
    whole = list(loader)
    for stop in range(len(whole)) if stops is None else stops:
        loader.set_epoch(epoch)
        batches = iter(loader)
        for _ in range(stop):
            next(batches)
        state = json.loads(json.dumps(loader.state_dict()))
        del batches
        other = make()
        other.load_state_dict(state)
        left = list(other)
        if stop == len(whole):
            assert other.epoch == epoch + 1
        else:
            for batch, right in zip(left, whole[stop:], strict=True):
                check(batch, right)
        yield Resumed(other, state)
