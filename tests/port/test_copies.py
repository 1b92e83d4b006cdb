"""Copies of a node in a batch are encoded once, with the rows and gradients of the plain model."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
import torch_geometric.nn as pyg
from torch import Tensor
from torch_geometric.data import Data, HeteroData

from pyg_batchgnn import MacrobatchLinkNeighborLoader, MacrobatchNeighborLoader
from pyg_batchgnn.port import encode_once, encoded_rows, execution
from pyg_batchgnn.port.structure import Copies, KnownNodes
from tests.support.ported_models import GRAPH
from tests.support.random_models import FEATURES, WIDTH
from tests.support.random_typed_models import TYPED
from tests.support.recorded_models import assert_as_plain, assert_close, found_in, pair
from tests.support.tiers import in_all

SEEDS = torch.arange(25).remainder(7)
DOUBLE = torch.float64


OPTIONS: dict[str, Any] = {"batch_size": 15, "seed": 3, "disjoint": True}


def typed_batches(export: str = "pyg", copies: int = 1) -> list[Any]:
    data = TYPED.clone()
    for name in data.node_types:
        data[name].day = torch.arange(data[name].num_nodes).view(-1, 1).repeat(1, 6).view(-1, 2, 3) % 5
        data[name].mean = torch.full((data[name].num_nodes, 1), float("nan"), dtype=DOUBLE)
    given = {**OPTIONS, "batch_size": 15 * copies, "export": export}
    return list(MacrobatchNeighborLoader(data, [4, 3], ("a", SEEDS.repeat(copies)), **given))


def plain_data() -> Data:
    return Data(x=GRAPH.x.to(DOUBLE), edge_index=GRAPH.edge_index)


def plain_batches(export: str = "pyg") -> list[Any]:
    return list(MacrobatchNeighborLoader(plain_data(), [4, 3], SEEDS, **OPTIONS, export=export))


def distinct(batch: Any) -> dict[Any, tuple[int, int]]:
    stores = {None: batch} if isinstance(batch, Data) else {one._key: one for one in batch.node_stores}
    return {name: (one.num_nodes, one.n_id.unique().numel()) for name, one in stores.items()}


class Encoder(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.own = torch.nn.Embedding(200, WIDTH)
        self.days = torch.nn.Embedding(9, WIDTH)
        self.first = torch.nn.Linear(FEATURES + 1, WIDTH)
        self.second, self.norm = pyg.MLP([WIDTH, WIDTH, WIDTH], norm=None), torch.nn.LayerNorm(WIDTH)
        self.weight = torch.nn.Parameter(torch.randn(2, 3, WIDTH, WIDTH))

    def forward(self, x: Tensor, n_id: Tensor, day: Tensor, mean: Tensor) -> Tensor:
        day = day.clone()
        for column, least in enumerate((2, 3)):
            of_column = day[:, column]
            of_column[(of_column < least).any(dim=-1)] = torch.tensor([8, 7, 6])
        day[..., 0] += 0
        x = torch.cat([x, torch.nan_to_num(mean, nan=0.5)], dim=1)
        h = F.relu(self.norm(self.first(x)))
        h = h + self.second(h) * self.own(n_id).sigmoid()
        h[h < -1] = -1
        return h + torch.einsum("nijk,ijkl->nl", self.days(day), self.weight)


class Typed(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.encoders = torch.nn.ModuleDict({name: Encoder() for name in TYPED.node_types})
        self.time, columns = torch.nn.Linear(1, WIDTH), (WIDTH, WIDTH)
        layers = [{one: pyg.SAGEConv(columns, WIDTH) for one in TYPED.edge_types} for _ in range(2)]
        self.convs = torch.nn.ModuleList(map(pyg.HeteroConv, layers))

    def forward(
        self,
        x_dict: Any,
        edge_index_dict: Any,
        n_id_dict: Any,
        day_dict: Any,
        mean_dict: Any,
        extra: Any = None,
    ) -> Any:
        values = n_id_dict, day_dict, mean_dict
        h = {name: self.encoders[name](x, *(one[name] for one in values)) for name, x in x_dict.items()}
        if extra is not None:
            h = {name: one + self.time(extra[name]) for name, one in h.items()}
        for conv in self.convs:
            h = {name: F.relu(one) for name, one in conv(h, edge_index_dict).items()}
        return h["a"]

    def of(self, batch: HeteroData, **more: Any) -> Tensor:
        given = (batch.x_dict, batch.edge_index_dict, batch.n_id_dict, batch.day_dict, batch.mean_dict)
        rows: Tensor = self(*given, **more)[: batch["a"].batch_size]
        return rows


@pytest.mark.parametrize("export", [*in_all("pyg"), "native"])
def test_rows_and_gradients_of_typed_batches(export: str) -> None:
    ours, plain = pair(Typed())
    for batch, other in zip(typed_batches(), typed_batches(export), strict=True):
        ids = {} if export == "pyg" else {"n_id_dict": batch.n_id_dict}
        assert_as_plain(ours, plain, ours(other, **ids), plain.of(batch))
        assert encoded_rows(ours) == distinct(batch)
        with torch.no_grad():
            assert_close(ours(other, **ids), plain.of(batch))
        # What differs between the copies is joined to their rows.
        extra = {name: torch.rand(len(x), 1, dtype=DOUBLE) for name, x in batch.x_dict.items()}
        assert_as_plain(ours, plain, ours(other, extra=extra, **ids), plain.of(batch, extra=extra))
        assert encoded_rows(ours) == distinct(batch)
        for more in (0, torch.rand(batch["a"].num_nodes, 1, dtype=DOUBLE)):  # plain calls
            batch["a"].x = batch["a"].x + more
            assert_as_plain(ours, plain, ours.of(batch), plain.of(batch))
            assert encoded_rows(ours).items() >= ({} if isinstance(more, Tensor) else distinct(batch)).items()
    assert found_in(ours).reasons == [] and found_in(ours).notes == []


def test_few_sources_are_multiplied_before_their_messages(monkeypatch: pytest.MonkeyPatch) -> None:
    ours, plain = (one.eval() for one in pair(Typed()))
    of_few, found = execution._few_sources, list[int]()

    def noted(*given: Any) -> Any:
        made = of_few(*given)
        return found.append(len(made)) or made

    monkeypatch.setattr(execution, "_few_sources", noted)
    with torch.no_grad():
        for batch in typed_batches(copies=6):
            assert_close(ours(batch), plain.of(batch), 1e-12)
    assert any(found) and not all(found) and found_in(ours).reasons == []


class Plain(torch.nn.Module):
    def __init__(self, encode: Callable[[Tensor], Tensor] = torch.tanh, norm: Any = None) -> None:
        super().__init__()
        self.encode, self.norm = encode, norm or torch.nn.Identity()
        self.lin = torch.nn.Linear(FEATURES, WIDTH)
        self.convs = torch.nn.ModuleList(pyg.GATConv(WIDTH, WIDTH, add_self_loops=False) for _ in range(2))

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        h = F.relu(self.norm(self.lin(self.encode(x))))
        for conv in self.convs:
            h = conv(h, edge_index)
        return h


def test_links() -> None:
    ours, plain = pair(Plain())
    links = GRAPH.edge_index[:, :30]
    for batch in MacrobatchLinkNeighborLoader(plain_data(), [4, 3], links, neg_sampling="binary", **OPTIONS):
        rows = batch.edge_label_index
        assert_as_plain(ours, plain, ours(batch)[rows], plain(batch.x, batch.edge_index)[rows])
        assert encoded_rows(ours) == distinct(batch)


def test_rows_that_differ_between_copies() -> None:
    """A script changed an attribute of one copy, or takes a gradient of them."""
    ours, plain = pair(Plain())
    for batch in plain_batches():
        with torch.no_grad():
            batch.x.numpy()[-1, -1] += 1
        assert_as_plain(ours, plain, ours(batch), plain(batch.x, batch.edge_index)[: batch.batch_size])
        assert encoded_rows(ours) == {}
        batch.x.numpy()[-1, -1] -= 1
        batch.x.requires_grad_()
        outputs = [one[: batch.batch_size] for one in (ours(batch), plain(batch.x, batch.edge_index))]
        assert_close(*(torch.autograd.grad(one.square().sum(), batch.x) for one in outputs))
        assert encoded_rows(ours) == {}


@pytest.mark.parametrize(
    ("encode", "shares"),
    [
        (lambda x: x / x.size(0), False),
        (lambda x: x - x.mean(dim=0), True),
        (lambda x: x.view(x.size(0), -1, 1).flatten(1), True),
        (lambda x: x[torch.arange(x.size(0)).flip(0)], False),
        (lambda x: x.cumsum(dim=0), False),
    ],
)
def test_functions_that_look_at_other_rows(encode: Any, shares: bool) -> None:
    ours, plain = pair(Plain(encode))
    for batch in plain_batches():
        assert_as_plain(ours, plain, ours(batch), plain(batch.x, batch.edge_index)[: batch.batch_size])
        assert encoded_rows(ours) == (distinct(batch) if shares else {})


def test_batch_norms_see_all_copies() -> None:
    ours, plain = pair(Plain(norm=torch.nn.BatchNorm1d(WIDTH)))
    for batch in plain_batches():
        given = batch.x, batch.edge_index
        assert_as_plain(ours, plain, ours(*given), plain(*given))
    assert_close(dict(ours.named_buffers()), dict(plain.named_buffers()))
    assert encoded_rows(ours) == distinct(batch)  # of the linear layer before it
    ours.eval()
    assert_close(ours(batch), plain.eval()(*given)[: batch.batch_size])


@pytest.mark.parametrize("share", [False, True])
def test_dropout(share: bool) -> None:
    """Copies drop elements of their own, or the same ones if that is asked for."""

    class Rows(Plain):
        def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
            h = self.lin(x)
            return F.dropout(h, 0.5, self.training) + 0 * super().forward(x, edge_index)

    ours, plain = pair(Rows(), share_dropout=share)
    for batch, other in zip(plain_batches(), plain_batches("native"), strict=True):
        found, whole = ours(other).detach(), plain.lin(batch.x)[: batch.batch_size].detach()
        kept = found.ne(0)
        assert_close(torch.where(kept, found, whole), torch.where(kept, 2 * whole, whole))
        assert 0.3 < float(kept.double().mean()) < 0.7
        seeds = batch.n_id[: batch.batch_size]
        order = seeds.argsort(stable=True)
        twin = seeds[order].diff() == 0
        assert twin.any() and torch.equal(kept[order[1:][twin]], kept[order[:-1][twin]]) == share
        assert encoded_rows(ours) == distinct(batch)
    ours.eval()
    assert_close(ours(batch), plain.eval()(batch.x, batch.edge_index)[: batch.batch_size])


@pytest.mark.parametrize("export", ["pyg", "native"])
@pytest.mark.parametrize(("model", "make"), [(Typed, typed_batches), (Plain, plain_batches)])
def test_each_node_is_encoded_once(model: Any, make: Any, export: str) -> None:
    ours, plain = (one.eval() for one in pair(model()))
    seen: dict[Any, set[int]] = {}
    every = list(zip(make(), make(export), strict=True))
    for budget in (None, 1):  # in memory, and in files
        with torch.no_grad(), encode_once(ours, budget) as encoded:
            for batch, other in (*every, *every[:1]):
                typed = isinstance(batch, HeteroData)
                ids = {"n_id_dict": batch.n_id_dict} if typed and export == "native" else {}
                wanted = plain.of(batch) if typed else plain(batch.x, batch.edge_index)[: batch.batch_size]
                assert_close(ours(other, **ids), wanted, 1e-12)
                for store in batch.node_stores:
                    seen.setdefault(store._key, set()).update(store.n_id.tolist())
        assert encoded == {name: len(ids) for name, ids in seen.items()}
    with encode_once(ours) as encoded:  # gradients are enabled
        ours(other, **ids)
    assert encoded == {} and found_in(ours).reasons == []


class Scaled(Plain):
    """Divides by what differs between batches, by a number and by a tensor that is no parameter."""

    number, tensor, by_batch, by_count = 1.0, torch.ones(1, dtype=DOUBLE), False, False

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        x = x / x.mean(dim=0) if self.by_batch else x
        x = x / (x.size(0) * 2) if self.by_count else x
        return super().forward(x * self.number * self.tensor, edge_index)


def replace_parameters(model: Any, _: Any) -> None:
    values = torch.nn.utils.parameters_to_vector(model.parameters()) * 2
    torch.nn.utils.vector_to_parameters(values, model.parameters())


@pytest.mark.parametrize(
    ("change", "again"),
    [
        (lambda *_: None, False),
        (lambda _, batch: batch.x.numpy().__setitem__(batch.n_id == batch.n_id[0], 7.0), True),
        (lambda model, _: model.lin.weight.mul_(2), True),
        (replace_parameters, True),
        (lambda model, _: setattr(model, "number", 3.0), True),
        (lambda model, _: setattr(model, "number", model.number + 3.0), True),
        (lambda model, _: setattr(model, "tensor", model.tensor * 2), True),
        (lambda model, _: model.tensor.mul_(2), True),
        (lambda model, _: setattr(model, "by_batch", True), True),
        (lambda model, _: setattr(model, "by_count", True), True),
    ],
)
def test_what_changes_is_encoded_again(change: Any, again: bool) -> None:
    ours, plain = (one.eval() for one in pair(Scaled()))
    with torch.no_grad(), encode_once(ours) as encoded:
        for _ in range(3):
            for batch in plain_batches():
                before = dict(encoded)
                ours(batch)
                for model in (ours, plain):
                    change(model, batch)
                assert_close(ours(batch), plain(batch.x, batch.edge_index)[: batch.batch_size], 1e-12)
        assert again or encoded == before
    assert found_in(ours).reasons == []


class Since(Plain):
    """Adds what differs between copies: encodings of the days since each node."""

    def __init__(self, since: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.since, self.code, self.days = since, pyg.PositionalEncoding(WIDTH), torch.nn.Embedding(9, WIDTH)

    def forward(self, x: Tensor, edge_index: Tensor, batch: Tensor, time: Tensor, seed_time: Tensor) -> Any:
        since = self.since(torch.stack([time, seed_time[batch] - time], dim=1)[:, 1])  # strided
        code = self.lin(self.code(since / 7)[:, :FEATURES]) * self.days((since % 9).abs().long())
        return self.convs[1](self.convs[0](F.relu(self.lin(x)) + code, edge_index), edge_index)


@pytest.mark.parametrize("grads", [True, False])
@pytest.mark.parametrize(
    ("since", "shares"),
    [
        (lambda days: days * 86_400 - 10**9, True),
        (lambda days: days.double() + 0.5, True),  # which is a function of the days, too
        (lambda days: F.dropout(days.double(), 0.0), False),
        (lambda days: days * 100 + torch.arange(len(days)), False),
        (lambda days: days.cumsum(0), False),
    ],
)
def test_few_numbers_are_encoded_once(
    since: Any, shares: bool, grads: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    data, found, of_values = plain_data(), list[tuple[int, int]](), Copies.of_values
    data.time = torch.arange(data.num_nodes) % 5
    given = {"input_time": SEEDS % 3 + 5, "time_attr": "time", "batch_size": 15, "seed": 3}
    ours, plain = pair(Since(since))

    def noted(copies: Any, name: Any, value: Tensor) -> Any:
        made = of_values(copies, name, value)
        found.extend([(len(made.first), value.unique().numel())] if made and copies._least else [])
        return made

    monkeypatch.setattr(Copies, "of_values", noted)
    for batch in MacrobatchNeighborLoader(data, [4, 3], SEEDS, **given):
        with torch.set_grad_enabled(grads):
            rows = plain(batch.x, batch.edge_index, batch.batch, batch.time, batch.seed_time)
            if grads:
                assert_as_plain(ours, plain, ours(batch), rows[: batch.batch_size])
            assert_close(ours(batch), rows[: batch.batch_size])
    assert bool(found) == shares and all(one == other for one, other in found)
    assert found_in(ours).reasons == []


def test_masks_of_dropout_are_drawn_for_each_batch() -> None:
    ours, _ = pair(Plain(lambda x: F.dropout(x + 1, 0.5)), share_dropout=True)
    batch = plain_batches()[0]
    with torch.no_grad(), encode_once(ours):
        assert not torch.equal(ours(batch), ours(batch))


def test_what_fails_is_forgotten_or_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    ours, plain = (one.eval() for one in pair(Plain()))
    first, second, *_ = plain_batches()
    with torch.no_grad(), encode_once(ours) as encoded:
        ours(first)
        with monkeypatch.context() as patch, pytest.raises(SystemExit):
            patch.setattr(KnownNodes, "keep", lambda *_: sys.exit())
            ours(second)
        before = dict(encoded)
        assert_close(ours(second), plain(second.x, second.edge_index)[: second.batch_size], 1e-12)
        assert encoded[None] == before[None] + second.n_id.unique().numel()
    for model, budget, error in ((plain, None, TypeError), (ours, 0, ValueError)):
        with pytest.raises(error), encode_once(model, budget):
            pass
