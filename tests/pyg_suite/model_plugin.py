"""A pytest plugin for PyG's tests of layers and models, which repeats their calls with accelerated
copies."""

from __future__ import annotations

import copy
import inspect
import json
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from torch_geometric.data import Data
from torch_geometric.nn import MessagePassing
from torch_geometric.nn.dense.linear import is_uninitialized_parameter

from pyg_batchgnn import MacrobatchNeighborLoader, accelerate
from tests.support.recorded_models import assert_close, gradients

TOLERANCE = 1e-8


class Repeater:
    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()
        self._is_inside = False

    def call(self, original: Callable[..., Any], module: torch.nn.Module, args: Any, kwargs: Any) -> Any:
        if self._is_inside or torch.jit.is_tracing():
            return original(module, *args, **kwargs)
        self._is_inside = True
        try:
            result = original(module, *args, **kwargs)
            if any(isinstance(one, MessagePassing) for one in module.modules()):
                with torch.random.fork_rng(), torch.enable_grad(), warnings.catch_warnings():
                    warnings.simplefilter("ignore")
                    self._repeat(module, args, kwargs)
        finally:
            self._is_inside = False
        return result

    def _repeat(self, module: torch.nn.Module, args: Any, kwargs: Any) -> None:
        if any(map(is_uninitialized_parameter, module.parameters())):
            self.counts["not repeated: lazy parameters"] += 1
            return
        try:
            plain = copy.deepcopy(module).double().eval()
            ours = accelerate(wrapped(copy.deepcopy(module).double().eval()))
            given = inspect.signature(module.forward).bind(*_as_double(args), **_as_double(kwargs)).arguments
            wanted = plain(**given)
        except Exception as error:  # PyG cannot do it again: jit, float32 constants
            self.counts[f"not repeated: {type(error).__name__}"] += 1
            return
        try:
            assert_close(plain(**given), wanted, TOLERANCE)
            tensor_gradients = gradients(plain, plain(**given))
        except (AssertionError, AttributeError, TypeError, RuntimeError) as error:
            what = "differ from call to call" if isinstance(error, AssertionError) else "have no gradient"
            self.counts[f"not repeated: PyG's results {what}"] += 1
            return
        found = ours(**given)
        assert_close(found, wanted, TOLERANCE)
        assert_close(list(gradients(ours, found).values()), list(tensor_gradients.values()), TOLERANCE)
        self.counts["as they are"] += 1
        self._repeat_with_batches(plain, accelerate(wrapped(copy.deepcopy(plain))), given)

    def _repeat_with_batches(self, plain: Any, ours: Any, given: dict[str, Any]) -> None:
        data, names, options = as_data(given)
        if data is None:
            self.counts["not with batches: no rows and edges of a graph"] += 1
            return
        nodes = torch.arange(min(data.num_nodes, 5))
        for batch in MacrobatchNeighborLoader(data, [2, 2, -1], nodes, batch_size=3, seed=1):
            values = {name: batch[stored] for name, stored in names.items()}
            try:
                wanted = plain(batch.x, batch.edge_index, **values, **options)
            except Exception as error:
                self.counts[f"not with batches: {type(error).__name__}"] += 1
                return
            if not isinstance(wanted, Tensor) or wanted.size(0) != batch.num_nodes:
                self.counts["not with batches: no rows of nodes"] += 1
                return
            wanted = wanted[: batch.batch_size]
            found = ours(batch, **values, **options)
            if found.size(0) == batch.num_nodes:  # it was not captured, as a warning says
                self.counts["with batches: all rows"] += 1
                found = found[: batch.batch_size]
            assert_close(found, wanted, TOLERANCE)
            pairs = ((ours, found), (plain, wanted))
            assert_close(*(list(gradients(*one).values()) for one in pairs), TOLERANCE)
        self.counts["with batches"] += 1


def wrapped(module: torch.nn.Module) -> torch.nn.Module:
    if not isinstance(module, MessagePassing):
        return module
    names = list(inspect.signature(module.forward).parameters.values())
    parameters = ", ".join(one.name if one.default is one.empty else f"{one.name}=None" for one in names)
    passed = ", ".join(f"{one.name}={one.name}" for one in names if one.default is one.empty)
    others = [one.name for one in names if one.default is not one.empty]
    space: dict[str, Any] = {}
    source = (
        f"def forward(self, {parameters}):\n    given = dict({passed})\n"
        + "".join(f"    if {one} is not None: given[{one!r}] = {one}\n" for one in others)
        + "    return self.layer(**given)\n"
    )
    exec(source, space)
    made = type("OneLayer", (torch.nn.Module,), {"forward": space["forward"]})()
    made.layer = module
    return made


def as_data(given: dict[str, Any]) -> tuple[Data | None, dict[str, str], dict[str, Any]]:
    """Returns a graph with the arguments of a call, the names that these have there, and the
    arguments that are no tensors."""
    x, edge_index = given.get("x"), given.get("edge_index")
    rows = isinstance(x, Tensor) and x.dim() == 2
    if not rows or type(edge_index) is not Tensor or edge_index.layout is not torch.strided:
        return None, {}, {}
    if edge_index.numel() and int(edge_index.max()) >= x.size(0):
        return None, {}, {}
    data, names, options = Data(x=x.detach(), edge_index=edge_index), {}, {}
    for name, one in given.items():
        of_edges = name.startswith("edge")
        if name in ("x", "edge_index") or one is None:
            continue
        if (
            isinstance(one, Tensor)
            and one.dim()
            and one.size(0) == (edge_index.size(1) if of_edges else len(x))
        ):
            names[name] = f"edge_{name}" if of_edges else f"node_{name}"
            data[names[name]] = one.detach()
        elif isinstance(one, Tensor) or name in _OF_WHOLE_GRAPHS:
            return None, {}, {}
        else:
            options[name] = one
    return data, names, options


_OF_WHOLE_GRAPHS = ("size", "num_nodes", "num_sampled_nodes_per_hop", "num_sampled_edges_per_hop")


def _as_double(tree: Any) -> Any:
    if isinstance(tree, Tensor):
        if tree.layout is torch.strided and tree.numel() and not tree.untyped_storage().nbytes():
            raise ValueError("the call let its input go")
        return tree.double() if tree.is_floating_point() else tree
    if isinstance(tree, dict):
        return {name: _as_double(one) for name, one in tree.items()}
    if isinstance(tree, (tuple, list)) and type(tree) in (tuple, list):
        return type(tree)(_as_double(one) for one in tree)
    return tree


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--every", type=int, default=1, help="run every so manieth test")
    parser.addoption("--counts", type=Path, required=True, help="a JSON file for the counts of calls")


def pytest_configure(config: pytest.Config) -> None:
    config.stash[_REPEATER] = Repeater()


_REPEATER = pytest.StashKey[Repeater]()


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leaves out cases of tests that have very many: those of PyG's models."""
    items[:] = [one for place, one in enumerate(items) if place % config.getoption("--every") == 0]


@pytest.fixture(autouse=True)
def _repeated_calls(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    repeater, original = request.config.stash[_REPEATER], torch.nn.Module.__call__

    def call(module: torch.nn.Module, *args: Any, **kwargs: Any) -> Any:
        return repeater.call(original, module, args, kwargs)

    monkeypatch.setattr(torch.nn.Module, "__call__", call)
    yield


def pytest_sessionfinish(session: pytest.Session) -> None:
    counts = dict(session.config.stash[_REPEATER].counts.most_common())
    session.config.getoption("--counts").write_text(json.dumps(counts), encoding="utf-8")
