"""Sizes, rates and fanouts as users write them."""

from __future__ import annotations

import re

from pyg_batchgnn.train.errors import TrainError, as_train_error


def parse_size(text: str) -> int:
    """Returns the bytes of a text like 2GiB, 500MB or 100B. Only 0 needs no unit.

    Raises:
        TrainError: the text is not a number of bytes, or has no unit.
    """
    from pyg_batchgnn.cache import parse_bytes

    with as_train_error(ValueError):
        return parse_bytes(text)


def parse_rate(text: str) -> float:
    """Returns the bytes per second of a text like 1gbit, 100mbit or 12.5GB.

    Raises:
        TrainError: the text is not a rate with a unit, or the rate is not positive.
    """
    from pyg_batchgnn.cache import parse_bytes

    match = re.fullmatch(r"\s*(.*?)(bit)?(/s)?\s*", text.lower())
    assert match is not None
    if re.fullmatch(r"[\d.]+", match[1]) and not match[2]:
        raise TrainError(f"{text!r} is a rate without a unit; write it like 10gbit, 100mbit or 1.25GB")
    try:
        rate = parse_bytes(f"{match[1]}b") / 8 if match[2] else parse_bytes(match[1])
    except ValueError:
        rate = 0.0
    if not rate > 0:
        raise TrainError(f"{text!r} is not a rate; write it like 10gbit, 100mbit or 1.25GB")
    return rate


def parse_fanout(text: str) -> tuple[int, ...]:
    """Returns the numbers of a text like 15,10,5.

    Raises:
        TrainError: the text is no list of numbers, or one of them is below -1.
    """
    try:
        numbers = tuple(int(word) for word in text.split(","))
    except ValueError:
        raise TrainError(f"--fanout is {text!r}; write numbers like 15,10,5") from None
    if any(number < -1 for number in numbers):
        raise TrainError(f"--fanout is {text!r}; numbers must be 0 or more, or -1 for all neighbours")
    return numbers


def parse_macrobatch(text: str) -> int:
    """Returns the number of minibatches of a text like 8, and 0 for all.

    Raises:
        TrainError: the text is neither.
    """
    if text == "all":
        return 0
    if not text.isdecimal():
        raise TrainError(f"--macrobatch is {text!r}; write a number like 8, or all")
    return int(text)
