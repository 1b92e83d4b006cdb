"""The check of an argument's type, for entry points that read attributes of it."""

from __future__ import annotations


def check_type(name: str, value: object, wanted: type | tuple[type, ...], remedy: str) -> None:
    """Raises TypeError unless ``value`` is of the type that is wanted, or of one of the types.

    Args:
        name: the argument, as the caller wrote it.
        value: the value that was given.
        wanted: a type, or several.
        remedy: what to do, the end of the message.
    """
    if isinstance(value, wanted):
        return
    types = wanted if isinstance(wanted, tuple) else (wanted,)
    names = " or ".join(f"a {one.__name__}" for one in types)
    raise TypeError(f"{name} must be {names}, got {type(value).__name__}; {remedy}")
