"""Iterating in this process, with or without preparing macrobatches ahead on a thread."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, TypeVar

import torch

from pyg_batchgnn.loader.order import WorkItem

T = TypeVar("T")

#: The batches of a macrobatch, made one by one when they are asked for.
Make = Callable[[WorkItem], Iterator[Any]]


def iterate(make: Make, items: Iterator[WorkItem], prefetch: int) -> Iterator[Any]:
    """Batches of all work items in order, before the user's transform.

    With prefetching a thread makes up to ``prefetch`` macrobatches beside what the user does with the current
    one.
    """
    if prefetch == 0:
        for item in items:
            yield from make(item)
    else:

        def make_all(item: WorkItem, wants_grad: bool) -> list[Any]:
            # A thread has a setting of its own, which begins as "enabled".
            with torch.set_grad_enabled(wants_grad):
                return list(make(item))

        for batches in _ahead(items, make_all, prefetch):
            batches.reverse()
            while batches:
                yield batches.pop()


def _ahead(items: Iterator[WorkItem], make: Callable[[WorkItem, bool], T], depth: int) -> Iterator[T]:
    """``make`` of every item, computed in order on one thread, ``depth`` of them ahead of the consumer.

    Closing the iterator lets what has started run to its end and starts nothing more. It waits for that end,
    unless it is the garbage collector that closes it on another thread, which may be the one to wait for.
    """
    pending: deque[Future[T]] = deque()
    consumer = threading.current_thread()
    thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="macrobatch")
    try:
        for item in items:
            pending.append(thread.submit(make, item, torch.is_grad_enabled()))
            if len(pending) > depth:
                yield pending.popleft().result()
        while pending:
            yield pending.popleft().result()
    finally:
        thread.shutdown(wait=threading.current_thread() is consumer, cancel_futures=True)
