"""Numbers of bytes in the form in which people write them."""

from __future__ import annotations

import re

_UNITS = {"": 1, "k": 10**3, "m": 10**6, "g": 10**9, "t": 10**12}
_BINARY_UNITS = {"ki": 2**10, "mi": 2**20, "gi": 2**30, "ti": 2**40}


def parse_bytes(text: str) -> int:
    """Returns the bytes that a text like 2GiB, 500MB or 1000000 stands for.

    Raises:
        ValueError: the text is no number of bytes.
    """
    match = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([kmgt]i?)?b?\s*", text.lower())
    if match is None:
        raise ValueError(f"{text!r} is not a number of bytes; write it like 2GiB, 500MB or 1000000")
    unit = match[2] or ""
    return int(float(match[1]) * {**_UNITS, **_BINARY_UNITS}[unit])
