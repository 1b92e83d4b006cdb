"""Fixtures and settings of all tests: each finds the state that the one before it found."""

from __future__ import annotations

import faulthandler
import gc
import logging
import os
import random
import warnings
import zlib
from collections.abc import Generator, Iterator

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, settings

from pyg_batchgnn.ops import current_products, set_products
from tests.support.seconds import Seconds
from tests.support.tiers import ALL, FEW, MANY, MARKERS, chosen

# No test is about time: a busy machine is no reason to fail. `make test` tries the same examples in
# each run, so that a change fails by itself; `make test-all` draws new ones.
settings.register_profile(
    "tier",
    max_examples=MANY if ALL else FEW,
    deadline=None,
    derandomize=not ALL,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("tier")
# pytest listens to loggers that do not propagate, and to listeners of this one torch writes out all
# that it captures.
logging.getLogger("torch.__trace").propagate = True

_STDERR = pytest.StashKey[int]()


@pytest.fixture(autouse=True)
def global_state() -> Iterator[None]:
    """Restores threads, generators, dtype, gradients, determinism, warnings and the products."""
    threads, dtype, grad = torch.get_num_threads(), torch.get_default_dtype(), torch.is_grad_enabled()
    deterministic, products = torch.are_deterministic_algorithms_enabled(), current_products()
    rng, python_rng, numpy_rng = torch.get_rng_state(), random.getstate(), np.random.get_state()
    torch.manual_seed(0)  # so that no test depends on what ran before it
    with warnings.catch_warnings():
        yield
    torch.set_num_threads(threads)
    torch.set_default_dtype(dtype)
    torch.set_grad_enabled(grad)
    if torch.are_deterministic_algorithms_enabled() != deterministic:  # which imports a compiler
        torch.use_deterministic_algorithms(deterministic)
    set_products(products)
    torch.set_rng_state(rng)
    random.setstate(python_rng)
    np.random.set_state(numpy_rng)


def pytest_configure(config: pytest.Config) -> None:
    """Keeps standard error as it is before tests redirect it, and has tests measured."""
    for name, meaning in MARKERS.items():
        config.addinivalue_line("markers", f"{name}: {meaning}")
    config.stash[_STDERR] = os.dup(2)
    config.pluginmanager.register(Seconds())


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    """Keeps up the last resort between tests, where what they left is freed and nothing else ends a
    process that hangs."""
    ran = yield
    _end_later(item.config)
    return ran


@pytest.hookimpl(trylast=True)
def pytest_exception_interact(node: pytest.Item | pytest.Collector) -> None:
    """Keeps up the last resort in the teardown of a test that failed, for which pytest drops it."""
    _end_later(node.config)


def pytest_sessionfinish() -> None:
    faulthandler.cancel_dump_traceback_later()


def _end_later(config: pytest.Config) -> None:
    """Ends this process with its stacks after `faulthandler_timeout`, if no test begins before."""
    seconds = float(config.getini("faulthandler_timeout"))
    faulthandler.dump_traceback_later(seconds, exit=True, file=config.stash[_STDERR])


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leaves out what is not in this tier, and puts the tests that wait for compilers first: they
    take longest of the parallel files. PYG_BATCHGNN_TEST_TENTH leaves out nine tenths."""
    last_resort = float(config.getini("faulthandler_timeout"))
    for item in items:
        timeout = item.get_closest_marker("timeout")
        if timeout is not None and timeout.args[0] >= last_resort:
            raise pytest.UsageError(
                f"{item.nodeid} has a timeout of {timeout.args[0]} s, and faulthandler_timeout, which ends "
                f"the process of a test, is {last_resort:g} s; make it longer"
            )
    if os.environ.get("PYG_BATCHGNN_TEST_TENTH"):
        items[:] = [item for item in items if zlib.crc32(item.nodeid.encode()) % 10 == 0]
    kept = chosen(items)
    config.hook.pytest_deselected(items=list(set(items) - set(kept)))
    items[:] = kept
    items.sort(key=lambda item: "tests/sanitizers/" not in item.nodeid)


def pytest_collection_finish() -> None:
    """Keeps the garbage collector from looking at modules and tests, which stay to the end: a full
    collection took 0.3 s, and some tests ask for many."""
    gc.collect()
    gc.freeze()
