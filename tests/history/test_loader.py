"""Historical embeddings: the loader, and the cache of a layer."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import hypothesis.strategies as st
import pytest
import torch
from hypothesis import given
from torch import Tensor
from torch_geometric.data import Data

from pyg_batchgnn import MacrobatchNeighborLoader
from pyg_batchgnn.comm import Communicator, MessageKind
from pyg_batchgnn.data import NODES
from pyg_batchgnn.fetch import FetchGroup
from pyg_batchgnn.history import (
    EmbeddingCache,
    HaloSampler,
    HistoricalCaches,
    HistoricalMinibatch,
    HistoricalSettings,
    OwnRowFetcher,
    PushedRows,
    decode,
    encode,
)
from pyg_batchgnn.nn import GAT, GCN, GIN, SAGE, HaloPass
from pyg_batchgnn.nn.models import LayerEdges, NativeModel
from pyg_batchgnn.sample import Layout, MacrobatchSampler, MacrobatchSeeds, Minibatch, SamplingPlan
from pyg_batchgnn.store import DistFeatureStore, DistGraphStore, graph_from_pyg, replicate_topology
from tests.support.partitioned_graphs import CASES, Case, owners, part_of, whole
from tests.support.rank_graphs import GRAPHS, stores_of
from tests.support.ranks import run_ranks
from tests.support.tiers import examples, in_all

UNBOUNDED = HistoricalSettings(lines=None, life_span=None, push=None, delay=1)


@dataclass
class Rank:
    case: Case
    plan: SamplingPlan
    comm: Communicator  # of the graph
    pushes: Communicator  # of the caches
    settings: HistoricalSettings = UNBOUNDED
    steps: int = 4  # in an epoch

    def __post_init__(self) -> None:
        part = part_of(self.case, self.comm.size, self.comm.rank, edge_attributes=False)
        features, graph = DistFeatureStore(part, self.comm), DistGraphStore(part, self.comm)
        self.part, self.data = part, whole(self.case)
        self.caches = HistoricalCaches(graph, self.pushes, self.settings)
        self._sampler = HaloSampler(part, self.caches.halo, self.plan, seed=3)
        self._fetcher = OwnRowFetcher(features, list(features.fields[NODES]), self.caches)

    def epoch(self, epoch: int) -> Iterator[HistoricalMinibatch]:
        order = torch.randperm(self.part.num_nodes, generator=torch.Generator().manual_seed(epoch))
        for step, rows in enumerate(order.tensor_split(self.steps)):
            yield self.step(epoch, step, rows)
        self.caches.end_epoch()

    def step(self, epoch: int, step: int, rows: Tensor) -> HistoricalMinibatch:
        made = self.minibatch(rows, epoch)
        self.caches.begin_step(epoch, step, made.key)
        return made

    def minibatch(self, rows: Tensor, epoch: int) -> HistoricalMinibatch:
        seeds = MacrobatchSeeds(epoch, 0, [self.part.node[rows]], [rows + self.part.first])
        (made,) = self._fetcher.fetch(FetchGroup(self._sampler.sample_macrobatch(seeds))).minibatches
        assert isinstance(made, HistoricalMinibatch)
        return made

    def exact(self, minibatch: Minibatch) -> Minibatch:
        return exact_minibatch(self.data, self.plan, minibatch)


def exact_minibatch(data: Data, plan: SamplingPlan, like: Minibatch) -> Minibatch:
    sampler = MacrobatchSampler(graph_from_pyg(data), plan, like.seed, layout=Layout.CSC)
    (sampled,) = sampler.sample([like.node[: like.batch_size]], like.epoch)
    return Minibatch.in_place(sampled, {"x": data.x, "y": data.y})


MODELS: dict[str, Callable[[int], NativeModel]] = {
    "SAGE": lambda layers: SAGE(5, 8, layers, 7),
    "SAGE of sums": lambda layers: SAGE(5, 8, layers, 7, aggr="sum", jk="cat"),
    "GIN": lambda layers: GIN(5, 8, layers, 7, norm="batch_norm"),
    "GAT": lambda layers: GAT(5, 8, layers, 7, heads=2),
}


def model_of(name: str, layers: int) -> NativeModel:
    torch.manual_seed(5)
    return MODELS[name](layers).double().eval()


def full_caches(comm: Communicator, pushes: Communicator, graphs: int) -> list[str]:
    checked = []
    known = ((3, CASES[1]), (2, CASES[3]), (2, CASES[0]), (2, CASES[2]), (1, CASES[0]))
    for layers, case in known[:graphs]:
        for name in MODELS:
            checked.append(_full_caches(name, layers, case, comm, pushes))
    return checked


def _full_caches(name: str, layers: int, case: Case, comm: Communicator, pushes: Communicator) -> str:
    model, plan = model_of(name, layers), SamplingPlan((-1,) * layers, edge_ids=False)
    delay = 1 + layers % 2
    rank = Rank(case, plan, comm, pushes, HistoricalSettings(None, None, None, delay))
    with torch.no_grad():
        for epoch in range(layers):
            for minibatch in rank.epoch(epoch):
                model(minibatch)
    before = [(one.searched - one.found, one.edges_left_out) for one in rank.caches.stats().layers]
    mine = owners(case, comm.size) == comm.rank
    worst = 0.0
    for minibatch in rank.epoch(layers):
        logits, gradients = _passed(model, minibatch)
        exact, detached = _passed(_Detaching.of(model, mine), rank.exact(minibatch))
        pairs = zip([logits, *gradients], [exact, *detached], strict=True)
        worst = max([worst, *(_difference(*pair) for pair in pairs)])
    assert worst < 1e-10, (name, layers, case.name, worst)
    after = [(one.searched - one.found, one.edges_left_out) for one in rank.caches.stats().layers]
    assert after == before, "nothing is missing in the last epoch"
    alone = comm.size == 1 or rank.caches.halo.num_halo == 0
    assert alone or layers == 1 or any(missing for missing, _ in before)
    assert before[0] == (0, 0), "features are there from the beginning"
    return f"{name} {layers}"


def _difference(one: Tensor, other: Tensor) -> float:
    assert one.shape == other.shape
    return float((one - other).abs().max()) if one.numel() else 0.0


def _passed(model: NativeModel, minibatch: Any) -> tuple[Tensor, list[Tensor]]:
    model.zero_grad()
    logits = model(minibatch)
    (logits**2).sum().backward()
    none = [torch.zeros_like(one) for one in model.parameters()]
    found = [one.grad for one in model.parameters()]
    return logits.detach(), [a if b is None else b.clone() for a, b in zip(none, found, strict=True)]


class _Detaching:
    """Gives a model whose layers take the rows of some nodes without their gradient."""

    @staticmethod
    def of(model: NativeModel, keep: Tensor) -> NativeModel:
        """Returns a model with the same weights. ``keep``: [N] bool, the nodes with gradients."""
        kind = type(model)

        class Detached(kind):  # type: ignore[misc, valid-type]
            def outputs(self, source: Any, *arguments: Any, **named: Any) -> Any:
                self.kept = keep[source.node]
                return super().outputs(source, *arguments, **named)

            def compute(self, index: int, x: Any, edges: LayerEdges) -> Tensor:
                if isinstance(x, Tensor):
                    x = torch.where(self.kept[: len(x), None], x, x.detach())
                result: Tensor = super().compute(index, x, edges)
                return result

        other = object.__new__(Detached)
        other.__dict__ = model.__dict__
        return other


def traffic(comm: Communicator, pushes: Communicator, most: int, delay: int) -> dict[str, Any]:
    model, plan = model_of("SAGE", 2), SamplingPlan((3, 2), edge_ids=False)
    rank = Rank(CASES[0], plan, comm, pushes, HistoricalSettings(20, 3, most, delay))
    before, topology = pushes.counters.snapshot(), comm.counters.snapshot()
    for epoch in range(2):
        for minibatch in rank.epoch(epoch):
            model(minibatch)
    sent = (pushes.counters.snapshot() - before)[MessageKind.PUSH]
    stats = rank.caches.stats()
    assert sent.rounds == 2 * rank.steps == stats.steps
    assert sent.rows_sent == sum(one.pushed for one in stats.layers)
    assert all(one.pushed <= stats.steps * most * (comm.size - 1) for one in stats.layers)
    assert all(one.pushed <= one.candidates for one in stats.layers)
    assert (comm.counters.snapshot() - topology).total.rounds == 0
    features = comm.counters.snapshot()[MessageKind.FEATURES]
    assert features.rounds == 2 and 0 < stats.features_fetched <= 20
    every = [comm.all_gather_json(one) for one in (features.rows_received, stats.features_fetched)]
    assert sum(every[0]) == 2 * sum(every[1]), "each row is asked for once and comes once"
    assert not stats.layers[0].candidates and stats.layers[1].pushed, "features are not pushed"
    state = rank.caches.state_dict()
    assert all(len(one) <= 20 for name, one in state.items() if name.startswith("cache"))
    return {"rates": [one.hit_rate for one in stats.layers], "left": stats.layers[1].edges_left_out}


def repeated(comm: Communicator, pushes: Communicator, stop: int) -> None:
    settings = HistoricalSettings(30, 3, 5, 2)
    plan = SamplingPlan((3, 2), edge_ids=False)

    def rank() -> Rank:
        return Rank(CASES[0], plan, comm, pushes, settings)

    first = _logits(rank())
    second = _logits(rank())
    begun = rank()
    before = _logits(begun, stop=stop)
    state = begun.caches.state_dict()
    resumed = rank()
    resumed.caches.load_state_dict(state)
    after = _logits(resumed, skip=stop)
    for made in (second, [*before, *after]):
        assert len(made) == len(first)
        assert all(torch.equal(*pair) for pair in zip(first, made, strict=True))


def _logits(rank: Rank, skip: int = 0, stop: int = 1000) -> list[Tensor]:
    model = model_of("SAGE", 2)
    found: list[Tensor] = []
    for epoch in range(2):
        order = torch.randperm(rank.part.num_nodes, generator=torch.Generator().manual_seed(epoch))
        for step, rows in enumerate(order.tensor_split(rank.steps)):
            number = epoch * rank.steps + step
            if not skip <= number < stop:
                continue
            found.append(model(rank.step(epoch, step, rows)).detach())
        if skip < (epoch + 1) * rank.steps <= stop:
            rank.caches.end_epoch()
    return found


def alone(comm: Communicator, pushes: Communicator) -> None:
    part = part_of(CASES[0], 1, 0, edge_attributes=False)
    stores = DistFeatureStore(part, comm), DistGraphStore(part, comm)
    for kind, prefetch in ((SAGE, 0), (GAT, 1), (GIN, 0)):
        caches = HistoricalCaches(stores[1], pushes, HistoricalSettings(push=3))
        exact, historical = (
            _trained(kind, stores, history=history, prefetch=prefetch) for history in (None, caches)
        )
        assert len(exact[1]) == len(historical[1])
        assert all(torch.equal(*pair) for pair in zip(exact[1], historical[1], strict=True))
        for name, weight in exact[0].items():
            assert torch.equal(weight, historical[0][name]), name
        assert not any(one.searched or one.edges_left_out for one in caches.stats().layers)


def _trained(kind: Any, stores: Any, **arguments: Any) -> tuple[dict[str, Tensor], list[Tensor]]:
    torch.manual_seed(1)
    options = {"norm": "batch_norm"} if kind is GIN else {"dropout": 0.3}
    model = kind(5, 8, 2, 7, **options)
    optimiser = torch.optim.Adam(model.parameters(), lr=0.01)
    loader = MacrobatchNeighborLoader(
        stores, [3, 2], "train", batch_size=16, shuffle=True, seed=4, export="native", **arguments
    )
    seen = []
    for _ in range(2):
        for minibatch in loader:
            logits = model(minibatch)
            loss = torch.nn.functional.cross_entropy(logits, minibatch.y[: minibatch.batch_size])
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
            seen += [minibatch.node[: minibatch.batch_size], logits.detach()]
    return model.state_dict(), seen


def loaded(comm: Communicator, pushes: Communicator) -> None:
    case = CASES[4]  # most ranks have no training nodes
    part, data = part_of(case, comm.size, comm.rank, edge_attributes=False), whole(case)
    stores = DistFeatureStore(part, comm), DistGraphStore(part, comm)
    caches = HistoricalCaches(stores[1], pushes, HistoricalSettings(push=3, delay=2))
    arguments = {"input_nodes": "train", "batch_size": 2, "seed": 4, "prefetch": 1}
    loader = MacrobatchNeighborLoader(stores, [3, 2], export="native", history=caches, **arguments)
    model = model_of("SAGE", 2).float()
    for epoch in range(2):
        for minibatch in loader:
            assert torch.equal(minibatch.attribute("x"), data.x[minibatch.node])
            assert torch.equal(minibatch.y, data.y[minibatch.node])
            assert torch.equal(part.node[minibatch.own], minibatch.node)
            if minibatch.batch_size:
                model(minibatch)
            if epoch:
                model(minibatch)  # once more pushes nothing
        assert caches.stats().steps == (epoch + 1) * len(loader)
    assert pushes.counters.snapshot()[MessageKind.PUSH].rounds == 2 * len(loader)
    again = loader(torch.zeros(0, dtype=torch.int64))
    assert again.batch_size == 0


def refusals(comm: Communicator, pushes: Communicator) -> list[str]:
    texts = []
    case = CASES[0]
    part = part_of(case, comm.size, comm.rank)
    stores = DistFeatureStore(part, comm), DistGraphStore(part, comm)
    caches = HistoricalCaches(stores[1], pushes)
    other = DistGraphStore(part_of(case, comm.size, comm.rank), comm)
    native: dict[str, Any] = {"export": "native", "attributes": ["x", "y"]}
    for data, arguments in (
        (stores, {"export": "pyg"}),
        (stores, {**native, "schedule": "global"}),
        (stores, {**native, "feature_cache": 100}),
        (stores, {"export": "native"}),
        (stores, {**native, "disjoint": True}),
        ((stores[0], other), native),
        (whole(case), native),
    ):
        with pytest.raises(ValueError, match="history") as error:
            MacrobatchNeighborLoader(
                data, [2], "train" if data is stores else None, history=caches, **arguments
            )
        texts.append(str(error.value))
    whole_topology = DistGraphStore(part, comm, replicate_topology(part, comm))
    typed = stores_of(comm, GRAPHS["typed"], "random")[1]
    for graph, own in ((stores[1], comm), (whole_topology, pushes), (typed, pushes)):
        with pytest.raises((ValueError, NotImplementedError)) as failure:
            HistoricalCaches(graph, own)
        texts.append(str(failure.value))
    loader = MacrobatchNeighborLoader(stores, [2], "train", batch_size=2, history=caches, **native)
    minibatch = next(iter(loader))
    with pytest.raises(ValueError, match="from another feature store"):
        second = DistFeatureStore(part, comm), stores[1]
        MacrobatchNeighborLoader(second, [2], "train", history=caches, **native)
    for layer in (
        lambda: model_of("SAGE", 1).convs[0].float()(minibatch.x, minibatch, 1),
        lambda: HaloPass(7),
        lambda: model_of("SAGE", 1).float()(minibatch, x=minibatch.x + 1),
        lambda: GCN(5, 8, 1, 7)(minibatch),
    ):
        with pytest.raises((ValueError, TypeError)) as failure:
            layer()
        texts.append(str(failure.value))
    with pytest.raises(ValueError, match="not a state of these caches"):
        caches.load_state_dict({"cache 0 node": torch.zeros(1)})
    return texts


REFUSED = [
    "use export='native'",
    "use schedule='local'",
    "leave feature_cache out",
    "edge attributes are not carried",
    "uniformly within a part",
    "caches are of another graph",
    "one process owns all of them",
    "make another one with Communicator.create",
    "holds the whole topology",
    "homogeneous graphs",
    "HaloPass(minibatch)",
    "has no halo nodes",
    "was fetched from there",
    "GCNConv does not support historical embeddings",
]


def test_one_rank_trains_as_in_the_exact_mode() -> None:
    run_ranks(alone, 1)


@pytest.mark.parametrize("ranks", [*in_all(2), 3])
def test_minibatches_have_the_attributes_of_own_nodes(ranks: int) -> None:
    run_ranks(loaded, ranks)


def test_what_is_not_possible_is_refused() -> None:
    for result in run_ranks(refusals, 2):
        for found, wanted in zip(result.value, REFUSED, strict=True):
            assert wanted in found


@pytest.mark.parametrize(
    ("graphs", "hosts"), [*in_all((1, [0]), (5, [0, 1]), (2, [0, 1, 1])), (2, [0, 1])], ids=str
)
def test_full_caches_are_the_exact_mode(graphs: int, hosts: Sequence[int]) -> None:
    run_ranks(full_caches, len(hosts), {"graphs": graphs}, hosts=hosts)


def test_pushes_are_bounded_and_counted() -> None:
    for result in run_ranks(traffic, 3, {"most": 4, "delay": 2}, hosts=[0, 1, 2]):
        assert 0 < result.value["rates"][0] < 1 and result.value["left"] > 0


@pytest.mark.parametrize("stop", [*in_all(3, 6), 4])
def test_runs_repeat_and_resume(stop: int) -> None:
    run_ranks(repeated, 2, {"stop": stop})


def ids(*node: int) -> Tensor:
    return torch.tensor(node, dtype=torch.int64)


def rows(*values: float) -> Tensor:
    return torch.tensor(values).view(-1, 1)


def read(cache: EmbeddingCache, step: int, *node: int) -> dict[int, float]:
    found = cache.search(ids(*node), step)
    if not found.found:
        return {}
    loaded = cache.load(found).flatten().tolist()
    return {one: loaded[at] for one, at in zip(node, found.place.tolist(), strict=True) if at >= 0}


def test_an_empty_cache_finds_nothing() -> None:
    cache = EmbeddingCache(0, life_span=None)
    cache.store(ids(1), rows(1), step=0)
    assert read(cache, 0, 1) == {} and len(cache) == 0
    with pytest.raises(ValueError, match="no rows yet"):
        EmbeddingCache(1, None).load(EmbeddingCache(1, None).search(ids(1), 0))


@examples(40, deadline=None)
@given(st.lists(st.lists(st.integers(0, 9), max_size=9), max_size=6), st.integers(1, 6))
def test_a_state_goes_on(steps: list[list[int]], lines: int) -> None:
    caches = [EmbeddingCache(lines, 3), EmbeddingCache(lines, 3)]
    for step, nodes in enumerate(steps):
        for cache in caches:
            cache.store(ids(*nodes), torch.arange(2.0 * len(nodes)).view(-1, 2) + step, step)
        caches[1].load_state_dict(caches[0].state_dict())
        for node in range(10):
            found = [cache.search(ids(node), step) for cache in caches]
            assert found[0].found == found[1].found
            if found[0].found:
                assert torch.equal(*(cache.load(one) for cache, one in zip(caches, found, strict=True)))
    assert caches[0].nbytes > 0


@pytest.mark.parametrize(
    ("changed", "error", "text"),
    [
        ({"lines": 0}, ValueError, "lines must be at least 1, got 0; None"),
        ({"life_span": -1}, ValueError, "life_span must be at least 1"),
        ({"push": 1.5}, TypeError, "push must be an integer or None, got 1.5"),
        ({"delay": None}, TypeError, "delay must be an integer, got None"),
        ({"delay": True}, TypeError, "delay"),
    ],
)
def test_settings_that_cannot_be(changed: dict[str, Any], error: type[Exception], text: str) -> None:
    with pytest.raises(error, match=text):
        HistoricalSettings(**changed)


TYPES = [torch.float32, torch.float64, torch.float16, torch.bfloat16]


@st.composite
def pushes(draw: st.DrawFn) -> list[PushedRows]:
    random = torch.Generator().manual_seed(draw(st.integers(0, 2**32 - 1)))
    layers = []
    for _ in range(draw(st.integers(0, 4))):
        count, columns = draw(st.integers(0, 5)), draw(st.integers(0, 7))
        node = torch.randint(1 << 40, (count,), generator=random)
        rows = torch.randn(count, columns, generator=random).to(draw(st.sampled_from(TYPES)))
        layers.append(PushedRows(node, rows))
    return layers


@examples(100, deadline=None)
@given(pushes())
def test_rows_come_back_as_they_were(layers: list[PushedRows]) -> None:
    message = encode(layers)
    assert message.numel() % 8 == 0
    found = decode(message)
    if not any(one.node.numel() for one in layers):
        assert not message.numel() and not found
        return
    for one, other in zip(layers, found, strict=True):
        assert torch.equal(one.node, other.node) and one.rows.dtype == other.rows.dtype
        assert torch.equal(one.rows, other.rows)


@examples(60, deadline=None)
@given(pushes(), st.integers(1, 40))
def test_truncated_messages_are_refused(layers: list[PushedRows], cut: int) -> None:
    message = encode(layers)
    if message.numel() <= 8 * cut:
        return
    with pytest.raises(ValueError, match=r"promised|cannot hold|cannot be"):
        decode(message[: -8 * cut])


@pytest.mark.parametrize(
    ("words", "text"),
    [([0], "of 0 layers"), ([1, 1, 1, 9], "type 9"), ([1, -1, 1, 0], "-1 rows"), ([1 << 62], "cannot hold")],
)
def test_other_bytes_are_refused(words: list[int], text: str) -> None:
    with pytest.raises(ValueError, match=text):
        decode(torch.tensor(words).view(torch.uint8))
