"""The options of data sets: texts behind a name, and arguments."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pyg_batchgnn import ops
from pyg_batchgnn.data.errors import DatasetError
from pyg_batchgnn.data.groups import RowKind
from pyg_batchgnn.data.layout import group_of_folder
from pyg_batchgnn.data.schema import Relation

HOLD_OUT = ("hold_out", "links", "reverse")
Options = Mapping[str, Any]


def take_hold_out(options: dict[str, Any]) -> dict[str, Any] | None:
    """Takes the arguments of `hold_out_links` from the options; None without."""
    share, links, reverse = (options.pop(name, None) for name in HOLD_OUT)
    if share is None:
        if links is not None or reverse is not None:
            raise DatasetError("options links and reverse go with hold_out; give a share, such as 0.1")
        return None
    relations = {"relation": links, "reverse": reverse}
    return {
        "share": to_number(float, "hold_out", share),
        **{name: None if one is None else to_relation(name, one) for name, one in relations.items()},
    }


def to_relation(name: str, value: Any) -> Relation:
    """Returns a relation, given itself or as the name of its folder."""
    group = group_of_folder(RowKind.EDGE, value) if isinstance(value, str) else None
    if group is not None and not isinstance(group.name, str):
        return group.name
    if isinstance(value, tuple) and len(value) == 3:
        return value
    raise DatasetError(f"option {name} is {value!r}; give SOURCE__RELATION__TARGET")


def split_name(name_or_path: str | Path, options: Options) -> tuple[str, dict[str, Any]]:
    """Splits "name:key=value,key=value" and adds the options; an existing path is never split."""
    remedy = "give a name such as 'cora', or the path of a folder"
    ops.check_type("name_or_path", name_or_path, (str, os.PathLike), remedy)
    text = os.fspath(name_or_path)
    merged = dict(options)
    head, colon, tail = text.partition(":")
    if not colon or Path(text).expanduser().exists():
        return text, merged
    for part in filter(None, tail.split(",")):
        key, equals, value = part.partition("=")
        if not equals:
            raise DatasetError(f"{text}: option {part!r} has no value; write name:key=value,key=value")
        if key in merged:
            raise DatasetError(f"{text}: option {key!r} is given twice; give it once")
        merged[key.strip()] = value.strip()
    return head, merged


def to_number(kind: type[int] | type[float], name: str, value: Any) -> Any:
    """Returns a number from text, or the value unchanged; the receiver checks its range."""
    if not isinstance(value, str):
        return value
    try:
        return kind(value)
    except ValueError as error:
        word = "whole number" if kind is int else "number"
        raise DatasetError(f"option {name} is {value!r}; give a {word}") from error


def to_member(kind: Any, name: str, value: Any) -> Any:
    """Returns an enum member, given itself or its value."""
    try:
        return kind(value)
    except ValueError as error:
        names = ", ".join(member.value for member in kind)
        raise DatasetError(f"option {name} is {value!r}; choose among {names}") from error
