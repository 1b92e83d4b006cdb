"""Damaged arrays, and a process of its own in which callables meet them."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, TypeAlias

import torch
from torch import Tensor

from tests.support.programs import run_text

REFUSALS = (TypeError, ValueError, IndexError, RuntimeError)
#: The nodes and the edges of the graph that sound arrays describe.
N, E = 6, 12

#: Callables by name, each with arguments that it takes.
Calls: TypeAlias = Mapping[str, tuple[Callable[..., Any], Mapping[str, Any]]]


def indptr() -> Tensor:
    return torch.arange(0, E + 1, 2)


def indices() -> Tensor:
    return torch.arange(E, dtype=torch.int32) % N


def damaged(values: Tensor) -> Iterator[tuple[str, Tensor]]:
    """Yields damaged copies of a vector of integers, each with the kind of its damage."""
    yield "floats", values.double()
    yield "two dimensions", values.view(1, -1)
    yield "not contiguous", torch.stack([values, values], 1)[:, 0]
    yield "sparse", values.to_sparse()
    yield "no storage", values.to("meta")
    yield "too short", values[:1]
    for name, change in {"negative": -7, "far": 2**31 - 5}.items():
        changed = values.clone()
        changed[len(values) // 2] = change
        yield name, changed


def print_accepted(
    calls: Calls, is_harmless: Callable[[str, str, str], bool], misfits: Iterable[Callable[[], Any]] = ()
) -> None:
    """Damages every vector of integers, prints what was not refused, and then "ended"."""
    for name, (call, good) in calls.items():
        call(**good)
        vectors = [
            key for key, value in good.items() if isinstance(value, Tensor) and not value.is_floating_point()
        ]
        for key in vectors:
            for kind, bad in damaged(good[key]):
                given = {**good, key: bad}
                if not is_harmless(name, key, kind) and not _refuses(functools.partial(call, **given)):
                    print(f"{name}: {key}: {kind}")
    for number, misfit in enumerate(misfits):
        if not _refuses(misfit):
            print(f"misfit {number}")
    print("ended")


def _refuses(call: Callable[[], Any]) -> bool:
    try:
        call()
    except REFUSALS:
        return True
    return False


def assert_all_refused(module: str) -> None:
    """Asserts that ``run_all`` of a module, in a process of its own, prints nothing but "ended"."""
    done = run_text(f"from {module} import run_all; run_all()")
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == ["ended"], done.stdout
