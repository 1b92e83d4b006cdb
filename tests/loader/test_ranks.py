"""The loader over ranks: the bits of one process, in the rounds of the formulas."""

from __future__ import annotations

import gc
import itertools
import threading
import warnings
from collections.abc import Callable, Mapping
from typing import Any

import pytest
import torch
from torch_geometric.sampler import NegativeSampling

from pyg_batchgnn import MacrobatchLinkNeighborLoader, MacrobatchNeighborLoader
from pyg_batchgnn.comm import AgreementError, BrokenCommunicatorError, CommError, Communicator
from pyg_batchgnn.device import tensors_of
from tests.support.partitioned_graphs import CASES, whole
from tests.support.rank_epochs import BATCH, assert_same, one_process, stores
from tests.support.rank_graphs import GRAPHS, stores_of
from tests.support.ranks import run_ranks
from tests.support.thread_ranks import run_threads
from tests.support.tiers import ALL


def automatic_sizes(comm: Communicator) -> None:
    for case in CASES[2:4]:
        loader = MacrobatchNeighborLoader(
            stores(comm, case), [3, 2], whole(case).train_mask, batch_size=4, seed=1
        )
        assert loader.sizes.macrobatch == loader.sizes.fetch == len(loader) > 1


def bfloat16(comm: Communicator) -> None:
    """Features on request in sixteen bits, on the wire and in the block; edge features too."""
    data = whole(CASES[0])
    half = data.clone()
    half.x, half.edge_attr = half.x.bfloat16(), half.edge_attr.bfloat16()
    both = stores(comm, CASES[0], floats=torch.bfloat16)
    arguments: dict[str, Any] = {"num_neighbors": [3, 2], "input_nodes": data.train_mask, "seed": 2}
    loader = MacrobatchNeighborLoader(both, **arguments, batch_size=BATCH)
    reference = one_process(CASES[0], data=half, **arguments)
    where = {node: at for at, node in enumerate(data.train_mask.nonzero().view(-1).tolist())}
    for batch in loader:
        assert batch.x.dtype == torch.bfloat16
        assert_same(batch, reference([where[node] for node in batch.input_id.tolist()]))


def first_steps(comm: Communicator, steps: int, state: Any = None, drop_last: bool = False) -> dict[str, Any]:
    both, seeds_of_all = stores(comm, CASES[0], edges=False), whole(CASES[0]).train_mask
    options: dict[str, Any] = {"shuffle": True, "seed": 9, "schedule": "global", "drop_last": drop_last}
    loader = MacrobatchNeighborLoader(both, [2], seeds_of_all, batch_size=BATCH, **options)
    if state is not None:
        loader.load_state_dict(state)
    batches = iter(loader)
    seeds = [batch.input_id.tolist() for batch in itertools.islice(batches, steps)]
    return {"seeds": seeds, "state": loader.state_dict()}


def stopping(comm: Communicator) -> None:
    data = whole(CASES[0])
    both = stores(comm, CASES[0])
    large = {"device": "cpu", "macrobatch_size": 9, "fetch_size": 9}
    ways: list[dict[str, Any]] = [{}, {"prefetch": 3}, large, {**large, "memory_budget": 500}]
    for at, way in enumerate(ways):
        options = {"batch_size": 4, "shuffle": True, "macrobatch_size": 2, "fetch_size": 1, **way}
        loader = MacrobatchNeighborLoader(both, [3, 2], data.train_mask, seed=1, **options)
        sizes = [sum(one.untyped_storage().nbytes() for one in tensors_of(batch)) for batch in loader]
        if (held := loader.stats().device) is not None:  # the other minibatches wait on the host
            assert 0 < held.batches_peak <= 4 * max(sizes) < sum(sizes)
            assert (held.block_peak > 0) == ("memory_budget" not in way)
        other = MacrobatchNeighborLoader(both, [2], data.train_mask, batch_size=4, seed=2, prefetch=1)
        for stop in (0, 1, 2, 3) if ALL else (0, 3)[at % 2 :]:
            for number, _ in enumerate(loader):
                if number == stop:
                    break
            kept = iter(loader)  # not closed, and another one begun
            next(kept)
            assert sum(1 for _ in other) == len(other)
            with pytest.raises(ZeroDivisionError):
                for number, _ in enumerate(loader):
                    assert number < stop or number / 0
        both[0].get_tensor(None, "x", index=torch.arange(3))
        loader.set_epoch(7)
        arguments = {"num_neighbors": [3, 2], "input_nodes": data.train_mask, "batch_size": 4}
        reference = one_process(CASES[0], **arguments, seed=1)
        reference.set_epoch(7)
        where = {node: at for at, node in enumerate(data.train_mask.nonzero().view(-1).tolist())}
        for batch in loader:
            position = [where[node] for node in batch.input_id.tolist()]
            assert_same(batch, reference(position))


def dropped() -> None:
    with Communicator.create("loader", timeout=30) as comm:
        both, data = stores(comm, CASES[0]), whole(CASES[0])
        loader = MacrobatchNeighborLoader(
            both, [3, 2], data.train_mask, batch_size=2, seed=1, prefetch=2, macrobatch_size=2
        )
        begun, let_go = threading.Event(), threading.Event()
        sample = loader._setup.pipeline.sample

        def collects(item: Any) -> Any:
            if item.number == 1:
                begun.set()
                assert let_go.wait(20)
                gc.collect()
            return sample(item)

        loader._setup.pipeline.sample = collects
        batches: list[Any] = [iter(loader)]
        next(batches[0])
        assert begun.wait(20)
        batches.append(batches)  # a cycle
        del batches
        let_go.set()
        loader._setup.pipeline.sample = sample
        assert sum(1 for _ in loader) == len(loader)
        kept = iter(loader)
        next(kept)
        comm.run_job(lambda: None)
    next(kept)
    with pytest.raises(BrokenCommunicatorError):
        list(kept)


def raising_ahead() -> str:
    try:
        with Communicator.create("loader", timeout=30) as comm:
            both, seeds = stores(comm, CASES[0]), whole(CASES[0]).train_mask
            options: dict[str, Any] = {"batch_size": 4, "seed": 1, "prefetch": 1, "macrobatch_size": 1}
            loader = MacrobatchNeighborLoader(both, [3, 2], seeds, **options)
            fetch = loader._setup.pipeline.fetcher.fetch

            def fails(group: Any) -> Any:
                if comm.rank == 1 and group.macrobatch == 2:
                    raise ArithmeticError("the third macrobatch")
                return fetch(group)

            loader._setup.pipeline.fetcher.fetch = fails
            list(loader)
    except (CommError, ArithmeticError) as error:
        return f"{type(error).__name__}: {error}"
    return ""


def refusals(comm: Communicator) -> None:
    both, data = stores(comm, CASES[0]), whole(CASES[0])
    for text, arguments in (
        ("keyed permutation", {"shuffle": True, "generator": torch.Generator()}),
        ("'in_place' is for one process", {"export": "native", "features": "in_place"}),
        ("'local', 'balanced' or 'global', got 'other'", {"schedule": "other"}),
        ("no split 'nothing'", {"input_nodes": "nothing"}),
        ("no node attribute 'z'", {"export": "native", "attributes": ["z"]}),
        ("use transform", {"transform_sampler_output": lambda out: out}),
    ):
        with pytest.raises(ValueError, match=text):
            MacrobatchNeighborLoader(both, [2], **{"input_nodes": data.train_mask, **arguments})
    with pytest.raises(ValueError, match="spread over ranks"):
        MacrobatchNeighborLoader(data, [2], schedule="local")
    with pytest.raises(TypeError, match="DistFeatureStore, DistGraphStore"):
        MacrobatchNeighborLoader((data, both[1]), [2])
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        loader = MacrobatchNeighborLoader(both, [2], data.train_mask, num_workers=2, prefetch=1)
    assert any("num_workers=2" in str(warning.message) for warning in caught)
    with pytest.raises(RuntimeError, match="there is none yet"):
        _ = loader.loss_weight
    assert sum(1 for _ in loader) == len(loader)
    same_split = MacrobatchNeighborLoader(both, [2], "train", batch_size=4, seed=1)
    assert torch.equal(same_split.input_data.node, data.train_mask.nonzero().view(-1))
    every = MacrobatchNeighborLoader(both, [2], None, batch_size=50, seed=1)
    assert comm.sum(sum(batch.batch_size for batch in every)) == CASES[0].nodes
    torch.manual_seed(comm.rank)
    drawn = MacrobatchNeighborLoader(both, [2], data.train_mask)
    assert len(set(comm.all_gather_json(drawn.seed))) == 1
    loader.load_state_dict(loader.state_dict())
    loader.set_epoch(comm.rank)
    with pytest.raises(AgreementError, match="epoch"):
        iter(loader)


@pytest.mark.parametrize("job", [bfloat16, automatic_sizes])
def test_three_ranks(job: Callable[..., Any]) -> None:
    run_ranks(job, 3, hosts=[0, 1, 1])


def test_impossible_arguments_are_refused() -> None:
    run_ranks(refusals, 3, hosts=[0, 1, 1])


@pytest.mark.parametrize("job", [stopping, dropped])
def test_epochs_are_stopped_and_dropped(job: Callable[..., Any]) -> None:
    run_ranks(job, 3, hosts=[0, 1, 1])


def test_an_error_in_what_is_prepared_ahead_is_told_to_the_others() -> None:
    first, second, third = (one.value for one in run_ranks(raising_ahead, 3))
    assert second == "ArithmeticError: the third macrobatch"
    for text in (first, third):
        assert "rank 1 (host 0) raised ArithmeticError: the third macrobatch" in text


@pytest.mark.parametrize("drop_last", [False, True])
def test_a_global_schedule_goes_on_at_another_number_of_ranks(drop_last: bool) -> None:
    def dealt(ranks: int, steps: int, state: object) -> tuple[list[list[int]], object]:
        arguments = {"steps": steps, "state": state, "drop_last": drop_last}
        results = run_ranks(first_steps, ranks, arguments)
        assert all(result.value["state"] == results[0].value["state"] for result in results)
        steps_of = [result.value["seeds"] for result in results]
        return [one for step in zip(*steps_of, strict=True) for one in step], results[0].value["state"]

    alone, _ = dealt(1, 100, None)
    begun, state = dealt(2, 1, None)
    more, state = ([], state) if drop_last else dealt(3, 1, state)  # 3 ranks have no whole step left
    end, _ = dealt(1, 100, state)
    together = [*begun, *more, *end]
    assert list(itertools.takewhile(bool, together)) == alone


MASK = GRAPHS["plain"].train_mask
#: By name, the arguments of the first rank and of the second one.
SAMPLING: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "seed": ({"seed": 3}, {"seed": 4}),
    "fanouts": ({"num_neighbors": [2]}, {"num_neighbors": [3]}),
    "macrobatch_size": ({"macrobatch_size": 2}, {"macrobatch_size": "auto"}),
    "schedule": ({"schedule": "local"}, {"schedule": "global"}),
    "seeds_digest": ({"input_nodes": MASK}, {"input_nodes": ~MASK}),
    "batch_size": ({"batch_size": 4}, {"batch_size": 5}),
    "is_sorted": ({"time_attr": "time", "is_sorted": True}, {"time_attr": "time"}),
    "time_attr": ({"time_attr": "time"}, {"time_attr": "stamp"}),
    "weight_attr": ({"weight_attr": "weight"}, {}),
    "labor": ({"labor": "hop"}, {"labor": "layers"}),
    "freeze": ({"time_attr": "time", "freeze": 3}, {"time_attr": "time"}),
}
EDGES = GRAPHS["plain"].edge_index
LABELS = torch.arange(EDGES.size(1))
BINARY = {"edge_label_index": EDGES, "neg_sampling": "binary"}
TIMED = {"edge_label_index": EDGES, "edge_label_time": LABELS % 9 + 3, "time_attr": "time"}


def weighted(**weights: Any) -> dict[str, Any]:
    ones = torch.ones(GRAPHS["plain"].num_nodes)
    both = {"src_weight": ones, "dst_weight": ones, **weights}
    return {**TIMED, "neg_sampling": NegativeSampling("binary", 1, **both)}


#: The same of loaders of links. Some have a name twice.
LINKS: list[tuple[str, dict[str, Any], dict[str, Any]]] = [
    ("edge_label_index", {}, {"edge_label_index": EDGES}),
    ("edge_label_index", {"edge_label_index": EDGES}, {"edge_label_index": EDGES.flip(1)}),
    ("edge_label", {"edge_label": LABELS}, {}),
    ("edge_label", {"edge_label": LABELS}, {"edge_label": LABELS + 1}),
    ("edge_label", {"edge_label": LABELS}, {"edge_label": LABELS.float()}),
    ("edge_label", {"edge_label": LABELS}, {"edge_label": LABELS.view(-1, 1)}),
    ("edge_label_time", TIMED, {**TIMED, "edge_label_time": LABELS % 9 + 4}),
    ("neg_sampling", BINARY, {**BINARY, "neg_sampling": ("triplet", 1)}),
    ("exclude_existing", BINARY, {**BINARY, "exclude_existing": True}),
    ("late_negatives", BINARY, {**BINARY, "late_negatives": "raise"}),
    ("src_weight", weighted(), weighted(src_weight=None)),
    ("dst_weight", weighted(), weighted(dst_weight=torch.arange(GRAPHS["plain"].num_nodes) / 7)),
]


def refused(comm: Communicator, name: str, kind: type, arguments: Mapping[str, Any]) -> None:
    stores = stores_of(comm, GRAPHS["plain"], "random")
    with pytest.raises(AgreementError, match=name):
        kind(stores, **{"num_neighbors": [2], **arguments})


@pytest.mark.parametrize("name", SAMPLING)
def test_the_rules_of_sampling(name: str) -> None:
    run_threads(lambda comm: refused(comm, name, MacrobatchNeighborLoader, SAMPLING[name][comm.rank]), 2)


@pytest.mark.parametrize(("name", "first", "second"), LINKS, ids=[name for name, _, _ in LINKS])
def test_links(name: str, first: dict[str, Any], second: dict[str, Any]) -> None:
    run_threads(
        lambda comm: refused(comm, f"{name}: ", MacrobatchLinkNeighborLoader, (first, second)[comm.rank]), 2
    )


def test_the_digest_of_all_edges_is_that_of_one_process() -> None:
    graph = GRAPHS["plain"]
    wanted = digest_of(graph, {})

    def over_ranks(comm: Communicator) -> list[Any]:
        return [digest_of(stores_of(comm, graph, "random", hybrid), {}) for hybrid in (False, True)]

    assert run_threads(over_ranks, 3) == [[wanted, wanted]] * 3
    assert digest_of(graph, {"edge_label_index": EDGES}) == wanted
    others = graph.clone()
    others.edge_index = EDGES.clone()
    others.edge_index[0, 5] = (EDGES[0, 5] + 1) % graph.num_nodes
    assert run_threads(lambda comm: digest_of(stores_of(comm, others, "random"), {}), 2) != [wanted] * 2


def digest_of(data: Any, links: dict[str, Any]) -> Any:
    loader = MacrobatchLinkNeighborLoader(data, [2], **links, seed=1)
    return loader.state_dict()["settings"]["links_digest"]
