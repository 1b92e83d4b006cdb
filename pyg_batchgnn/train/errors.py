"""The errors of the main job that a user can mend."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator


class TrainError(ValueError):
    """A configuration, run folder, checkpoint or request that cannot be used. The message is one
    line that names the remedy."""


class FirstRankError(Exception):
    """An error that the first rank has met and reports. The other ranks end without a message."""


@contextlib.contextmanager
def as_train_error(*kinds: type[Exception], where: str = "") -> Iterator[None]:
    """Turns errors of these kinds inside the block into `TrainError`. The message becomes one line,
    with ``where`` in front."""
    try:
        yield
    except kinds as error:
        raise TrainError(where + " ".join(str(error).split())) from error
