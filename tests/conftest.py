"""Fixtures and settings of all tests: each finds the state that the one before it found."""

from __future__ import annotations

import gc
import random
import warnings
from collections.abc import Iterator

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, settings

from pyg_batchgnn.ops import current_products, set_products

# No test is about time: a busy machine is no reason to fail.
settings.register_profile("no clock", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("no clock")


@pytest.fixture(autouse=True)
def global_state() -> Iterator[None]:
    """Restores threads, generators, dtype, gradients, determinism, warnings and the products."""
    threads, dtype, grad = torch.get_num_threads(), torch.get_default_dtype(), torch.is_grad_enabled()
    deterministic, products = torch.are_deterministic_algorithms_enabled(), current_products()
    rng, python_rng, numpy_rng = torch.get_rng_state(), random.getstate(), np.random.get_state()
    with warnings.catch_warnings():
        yield
    torch.set_num_threads(threads)
    torch.set_default_dtype(dtype)
    torch.set_grad_enabled(grad)
    torch.use_deterministic_algorithms(deterministic)
    set_products(products)
    torch.set_rng_state(rng)
    random.setstate(python_rng)
    np.random.set_state(numpy_rng)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Puts the tests that wait for compilers first: they take longest of the parallel files.

    Raises:
        pytest.UsageError: a test may take longer than what ends its process.
    """
    last_resort = float(config.getini("faulthandler_timeout"))
    for item in items:
        timeout = item.get_closest_marker("timeout")
        if timeout is not None and timeout.args[0] >= last_resort:
            raise pytest.UsageError(
                f"{item.nodeid} has a timeout of {timeout.args[0]} s, and faulthandler_timeout, which ends "
                f"the process of a test, is {last_resort:g} s; make it longer"
            )
    items.sort(key=lambda item: "tests/sanitizers/" not in item.nodeid)


def pytest_collection_finish() -> None:
    """Keeps the garbage collector from looking at modules and tests, which stay to the end: a full
    collection took 0.3 s, and some tests ask for many."""
    gc.collect()
    gc.freeze()
