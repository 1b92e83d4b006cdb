"""Graphs hold as long as arguments and attributes are as they were; whatever calls them."""

from __future__ import annotations

import copy
import gc
import warnings
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import repeat
from pathlib import Path
from typing import Any, ClassVar

import pytest
import torch
import torch._dynamo  # DistributedDataParallel imports it: once here, not in every rank
import torch_geometric.nn as pyg
from torch import Tensor
from torch.nn.parallel import DistributedDataParallel
from torch.nn.utils import parametrizations
from torch.utils.checkpoint import checkpoint
from torch_geometric.data import Data

from pyg_batchgnn import MacrobatchNeighborLoader
from pyg_batchgnn.comm import Communicator, Header, MessageKind, gradient_hook
from pyg_batchgnn.port import accelerate, traced
from tests.support.ported_models import FEATURES, GRAPH
from tests.support.ranks import run_ranks
from tests.support.recorded_models import (
    HIDDEN,
    Net,
    Options,
    Written,
    as_data,
    assert_as_plain,
    assert_close,
    assert_recorded,
    assert_trimmed,
    batches,
    compare,
    compare_plain_calls,
    found_in,
    gradients,
    pair,
)
from tests.support.tiers import each, in_all

#: Products of options are in `make test-all`.
pytestmark = each


def test_arguments_that_are_none_or_numbers() -> None:
    ours, plain = pair(Options())
    compare(ours, plain)
    compare(ours, plain, call=lambda model, batch: model(batch.x, batch.edge_index, power=2), power=2)
    for batch in batches():
        weight = batch.edge_weight
        weighted = lambda model, one: model(one.x, one.edge_index, one.edge_weight)  # noqa: E731
        compare(ours, plain, [batch], weighted, edge_weight=weight)
    compare(ours, plain)
    compare_plain_calls(ours, plain)
    assert_recorded(ours, 3)
    for batch in batches():
        options = {"edge_weight": batch.edge_weight, "power": 3}
        found, wanted = (model(batch.x, batch.edge_index, **options) for model in (ours, plain))
        assert_close(found, wanted)


def _parametrized(model: Any) -> None:
    parametrizations.weight_norm(model.convs[0].lin)
    with torch.no_grad():
        model.convs[0].lin.parametrizations.weight.original0.mul_(2.0)


#: TorchDynamo guards most of what changes; these are seen here.
CHANGES: dict[str, Callable[[Any], Any]] = {
    "forward of instance": lambda model: setattr(model.norms[0], "forward", lambda x: x * 3),
    "hook of model": lambda model: model.register_forward_hook(lambda *given: given[-1] * 3),
    "parametrized": _parametrized,
}


@pytest.mark.parametrize("change", CHANGES)
def test_a_change_between_calls_acts_as_on_the_plain_model(change: str) -> None:
    ours, plain = pair(Options())
    compare(ours, plain)
    assert_recorded(ours)
    before = ours(batches()[0])
    for model in (ours, plain):
        torch.manual_seed(9)
        CHANGES[change](model)
    compare(ours, plain)
    compare_plain_calls(ours, plain)
    changed = ours(batches()[0])
    assert changed.shape != before.shape or not torch.allclose(changed, before)


def test_options_of_parts_that_make_them_look_at_all_rows_are_seen() -> None:
    inner = torch.nn.Sequential(torch.nn.Linear(HIDDEN, HIDDEN), torch.nn.LayerNorm(HIDDEN), torch.nn.Tanh())
    model = Written(
        lambda model, x, edges: model.gin(model.soft(model.norm(model.conv(x, edges))), edges).relu(),
        conv=pyg.GraphConv(FEATURES, HIDDEN),
        norm=pyg.LayerNorm(HIDDEN, mode="node"),
        soft=torch.nn.Softmax(dim=1),
        gin=pyg.GINConv(inner),
    )
    ours, plain = pair(model)
    compare(ours, plain)
    assert_trimmed(ours, [1, 0])
    for model in (ours, plain):
        model.soft.dim, model.norm.mode = 0, "graph"
    compare(ours, plain)
    for model in (ours, plain):
        model.conv.flow = "target_to_source"
    compare(ours, plain)
    for model in (ours, plain):
        model.conv.flow = "source_to_target"
        model.gin.nn[1] = pyg.PairNorm()
    compare(ours, plain)
    assert_recorded(ours, 4)


def test_functions_that_change_in_every_call_end_as_plain_calls(monkeypatch: pytest.MonkeyPatch) -> None:
    """A warning says so. Effects happen once in each call, whoever makes it."""
    monkeypatch.setattr(traced, "_MOST_GRAPHS", 3)
    ours, plain = pair(Net(lambda _, __, h: h))
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for power in range(1, 8):
            for model in (ours, plain):
                model.middle = lambda m, _, h, power=power: (m.seen.append(power), h.tanh() ** power)[1]
            batch = batches()[power % 3]
            found, wanted = ours(batch), plain(batch.x, batch.edge_index)
            said = [str(one.message) for one in caught]
            assert len(found) == batch.batch_size or "model(batch) returns all of them" in said[0]
            assert_close(found, wanted[: len(found)])
            assert_close(gradients(ours, found), gradients(plain, wanted[: len(found)]))
            assert ours.seen == plain.seen == list(range(1, power + 1))
    assert len(said) == 1 and "captured 3 times" in said[0]


# Jobs of ranks ####################################################################################


def gradients_are_means() -> None:
    """The hook of a communicator has each seed of all ranks weigh the same."""
    torch.manual_seed(0)
    plain = Options().double()
    ours = accelerate(copy.deepcopy(plain))
    given = batches()
    with Communicator.create("gradients", timeout=60) as comm:
        with comm.guard(MessageKind.CONTROL):
            parallel = DistributedDataParallel(ours, process_group=comm.group, broadcast_buffers=False)
        state = {"weight": 0.0, "step": 0}
        header = lambda: Header(MessageKind.GRADIENTS, 0, int(state["step"]))  # noqa: E731
        parallel.register_comm_hook(None, gradient_hook(comm, lambda: state["weight"], header))
        for step in range(2):
            batch = given[step + comm.rank]
            state.update(weight=batch.batch_size, step=step)
            ours.zero_grad()
            parallel(batch).square().mean().backward()
            rows = [plain(one.x, one.edge_index)[: one.batch_size] for one in given[step : step + comm.size]]
            wanted = torch.autograd.grad(torch.cat(rows).square().mean(), list(plain.parameters()))
            for parameter, grad in zip(ours.parameters(), wanted, strict=True):
                assert parameter.grad is not None and torch.allclose(parameter.grad, grad, atol=1e-12)
    assert_trimmed(ours, [1, 0])


# Batches ##########################################################################################


#: An unusual width, by which rows are found.
WIDTH = 1013


class Watching(pyg.SumAggregation):
    def forward(self, x: Tensor, *args: Any, **kwargs: Any) -> Tensor:
        found = [one for one in gc.get_objects() if type(one) is Tensor and one.shape[-1:] == (WIDTH,)]
        SEEN.append(len({one.untyped_storage().data_ptr() for one in found}))
        return super().forward(x, *args, **kwargs)


def many_steps(model: Any, x: Tensor, edge_index: Tensor) -> Tensor:
    h = model.first(x, edge_index)
    for step in range(10):
        h = torch.stack([h, h.roll(1, 0)], dim=2).sum(dim=2) * step
    return model.second(h, edge_index)


SEEN: list[int] = []


def test_rows_that_nobody_reads_any_more_are_freed() -> None:
    """Rows of all hops of a large batch would not fit beside each other."""
    SEEN.clear()
    batch = batches()[0]
    layers = {"first": pyg.SAGEConv(FEATURES, WIDTH), "second": pyg.SAGEConv(WIDTH, 4, aggr=Watching())}
    ours = accelerate(Written(many_steps, **layers).double())
    for _ in range(2):
        gc.collect()  # what the capture left
        with torch.no_grad():
            ours(batch)
    assert SEEN and SEEN[-1] <= 8, SEEN  # of forty


def _batch(seeds: Sequence[int], fanouts: Sequence[int] = (4, 3), **options: Any) -> Any:
    given = list(fanouts), torch.tensor(seeds)
    (batch,) = MacrobatchNeighborLoader(GRAPH, *given, batch_size=100, seed=1, **options)
    return batch


ODD = {
    "isolated": lambda: _batch([190, 199, 185]),
    "duplicates": lambda: _batch([3, 3, 5, 3]),
    "all neighbours": lambda: _batch([1, 2], (-1, -1)),
    "many hops": lambda: _batch([1, 2], (2, 1, 1, 1)),
    "empty": lambda: as_data(GRAPH.x[:0], torch.empty(2, 0, dtype=torch.int64), [0, 0, 0], [0, 0]),
    "without counts": lambda: Data(x=GRAPH.x, edge_index=GRAPH.edge_index, batch_size=4),
    "wrong counts": lambda: as_data(GRAPH.x, GRAPH.edge_index, [4, 100, 96], [700, 870]),
    "induced": lambda: _batch(range(9), subgraph_type="induced"),
    "disjoint": lambda: _batch(range(9), disjoint=True),
}
OTHER_FANOUTS = "all neighbours", "many hops"


@pytest.mark.parametrize("name", [in_all(name)[0] if name in OTHER_FANOUTS else name for name in ODD])
@pytest.mark.parametrize("first", [True, False], ids=["first", "later"])
def test_odd_batches(name: str, first: bool) -> None:
    ours, plain = pair(Options())
    if not first:
        compare(ours, plain)
    batch = ODD[name]()
    compare(ours, plain, [batch])
    assert_as_plain(ours, plain, *(model(batch.x, batch.edge_index) for model in (ours, plain)))
    compare(ours, plain)
    assert found_in(ours).reasons == []


def test_a_call_that_fails_is_forgotten() -> None:
    ours, plain = pair(Options())
    wrong = batches()[0].clone()
    wrong.x = wrong.x[:, :2]
    with pytest.raises(ValueError, match="must be"):
        ours(wrong)
    compare(ours, plain)
    assert_recorded(ours)


def test_rows_of_other_widths_and_types() -> None:
    class Wide(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.table, self.conv = torch.nn.Embedding(200, 4), pyg.SAGEConv(4, 3)

        def forward(self, n_id: Tensor, edge_index: Tensor) -> Tensor:
            return self.conv(self.table(n_id), edge_index)

    ours, plain = pair(Wide())
    compare(ours, plain, call=lambda model, batch: model(batch.n_id, batch.edge_index))
    assert_trimmed(ours, [0])
    for native, batch in zip(batches(export="native"), batches(), strict=True):
        assert_close(ours(native), plain(batch.n_id, batch.edge_index)[: batch.batch_size])


@pytest.mark.parametrize("on", ["parameter", "features", "kept"])
def test_hooks_on_gradients_run_once(on: str) -> None:
    found = []
    for model in pair(Options()):
        leaf = batches()[0].x.clone().requires_grad_()
        x = leaf * 1.0
        hooked = next(model.parameters()) if on == "parameter" else x
        x.retain_grad() if on == "kept" else hooked.register_hook(lambda grad: grad * 0.5)
        model(x, batches()[0].edge_index).sum().backward()
        grads = [one.grad for one in (*model.parameters(), leaf)] + [x.grad] * (on == "kept")
        found.append([one for one in grads if one is not None])
    assert_close(found[0], found[1])


# What surrounds a model ###########################################################################


class Registered(Options):
    known: ClassVar[dict[str, type]] = {}

    def __init_subclass__(cls, *, name: str) -> None:
        cls.known[name] = cls


class Child(Registered, name="child"):
    pass


def test_the_class_of_a_model_makes_others() -> None:
    ours, plain = pair(Child())
    compare(ours, plain)
    assert Registered.known == {"child": Child}
    other = type(ours)().double()
    for again in (other, accelerate(other)):
        again.load_state_dict(plain.state_dict())
        compare(again, plain)


def test_copies_and_files(tmp_path: Path) -> None:
    ours, plain = pair(Options())
    keys = list(plain.state_dict())
    for when in ("before the first call", "after it"):
        assert list(ours.state_dict()) == keys, when
        torch.save(ours, tmp_path / "model")
        others = [copy.deepcopy(ours), torch.load(tmp_path / "model", weights_only=False), copy.copy(ours)]
        fresh = accelerate(Options().double())
        fresh.load_state_dict(ours.state_dict())
        for other in (*others, fresh):
            assert isinstance(other, Options) and type(other) is type(ours)
            compare(other, plain)
            assert_trimmed(other)
        with torch.no_grad():
            others[0].norms[0].weight.zero_()
        compare(ours, plain)


def test_a_compiled_or_traced_model_runs_pygs_code() -> None:
    ours, plain = pair(Options())
    (first, *_) = batches()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        traced = torch.jit.trace(ours, (first.x, first.edge_index), check_trace=False)
    for batch in batches():
        assert_close(traced(batch.x, batch.edge_index), plain(batch.x, batch.edge_index))
    compiled = torch.compile(ours, backend="eager")
    assert_close(compiled(first.x, first.edge_index), plain(first.x, first.edge_index))
    symbolic = torch.fx.symbolic_trace(copy.deepcopy(ours), concrete_args={"edge_weight": None, "power": 1})
    assert_close(symbolic(first.x, first.edge_index), plain(first.x, first.edge_index))
    assert found_in(ours).graphs == []
    compare(ours, plain)


def test_a_part_of_another_model_is_captured_alone() -> None:
    """A module of Lightning, or one like it, calls the accelerated model."""

    class Task(torch.nn.Module):
        def __init__(self, model: torch.nn.Module) -> None:
            super().__init__()
            self.model = model

        def forward(self, *given: Any, **named: Any) -> Any:
            return self.model(*given, **named)

        def training_step(self, batch: Any) -> Tensor:
            return self(batch).square().mean()

    inner, plain = pair(Options())
    task = Task(inner)
    compare(task, plain)
    assert task.training_step(batches()[0]).requires_grad
    assert_trimmed(inner, [1, 0])
    whole = accelerate(Task(Options().double()))
    whole.model.load_state_dict(plain.state_dict())
    for batch in batches():
        found = whole(batch.x, batch.edge_index)
        assert_close(found, plain(batch.x, batch.edge_index))


@pytest.mark.parametrize("export", ["pyg", "native"])
def test_autocast_in_bfloat16(export: str) -> None:
    ours, plain = pair(Options(), torch.float32)
    for batch, given in zip(
        batches(dtype=torch.float32), batches(dtype=torch.float32, export=export), strict=True
    ):
        exact = plain(batch.x, batch.edge_index)[: batch.batch_size]
        with torch.autocast("cpu", torch.bfloat16):
            found, wanted = ours(given), plain(batch.x, batch.edge_index)[: batch.batch_size]
        assert_close(found.float(), wanted.float(), 5e-2)
        rough = gradients(ours, found)
        assert all(
            map(torch.allclose, rough.values(), gradients(plain, exact).values(), repeat(0.2), repeat(1.0))
        )
        assert_close(ours(given), exact, 1e-4)
    assert_recorded(ours, 2 if export == "pyg" else len(found_in(ours).graphs))


def test_checkpoints_around_a_call() -> None:
    ours, plain = pair(Options())
    for batch in batches():
        found = checkpoint(ours, batch.x, batch.edge_index, use_reentrant=False)
        assert_close(gradients(ours, found), gradients(plain, plain(batch.x, batch.edge_index)))
        found = checkpoint(lambda given: ours(given), batch, use_reentrant=False)
        wanted = plain(batch.x, batch.edge_index)[: batch.batch_size]
        assert_close(gradients(ours, found), gradients(plain, wanted))


def test_threads_that_call_one_model() -> None:
    ours, plain = pair(Options())
    given = batches() * 4
    with ThreadPoolExecutor(3) as pool:
        found = list(pool.map(ours, given))
    for one, batch in zip(found, given, strict=True):
        assert_close(one, plain(batch.x, batch.edge_index)[: batch.batch_size])


def test_gradients_that_are_off_have_a_graph_of_their_own() -> None:
    ours, plain = pair(Options())
    for context in (torch.no_grad, torch.inference_mode, torch.enable_grad):
        for batch in batches():
            with context():
                found, wanted = ours(batch), plain(batch.x, batch.edge_index)[: batch.batch_size]
            assert_close(found, wanted)
            assert found.requires_grad == wanted.requires_grad
            if wanted.requires_grad:
                assert_close(gradients(ours, found), gradients(plain, wanted))


def test_data_parallel_ranks_with_the_hook_of_a_communicator() -> None:
    run_ranks(gradients_are_means, 2, timeout=120)
