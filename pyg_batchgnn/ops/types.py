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
    names = " or ".join(map(with_article, types))
    raise TypeError(f"{name} must be {names}, got {type(value).__name__}; {remedy}")


def with_article(kind: type) -> str:
    """Returns the name of a type with its article, as it is spoken: an InEdges, an HGTPlan."""
    name = kind.__name__
    is_spelled = name[:2].isupper()  # letter by letter
    return f"{'an' if name[0] in ('AEFHILMNORSX' if is_spelled else 'AEIOU') else 'a'} {name}"
