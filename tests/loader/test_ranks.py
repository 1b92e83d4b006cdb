"""The loader over ranks: the bits of one process, in the rounds of the formulas."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pytest
import torch
from torch_geometric.sampler import NegativeSampling

from pyg_batchgnn import MacrobatchLinkNeighborLoader, MacrobatchNeighborLoader
from pyg_batchgnn.comm import AgreementError, Communicator
from tests.loader import job_rank_links, job_rank_options
from tests.support.backends import needs_ccl
from tests.support.rank_coverings import TIMEOUT, Covering, over_ranks, product, run_covering, settings_of
from tests.support.rank_graphs import GRAPHS, POLICIES, owners, stores_of
from tests.support.ranks import run_ranks
from tests.support.thread_ranks import run_threads
from tests.support.tiers import WORLDS, all_only, own_slices

# Ranks ############################################################################################

JOBS = "tests.loader.job_ranks"


@pytest.mark.parametrize("job", ["bfloat16", "automatic_sizes"])
def test_three_ranks(job: str) -> None:
    run_ranks(f"{JOBS}:{job}", 3, hosts=[0, 1, 1])


def test_impossible_arguments_are_refused() -> None:
    run_ranks("tests.loader.job_ranks:refusals", 3, hosts=[0, 1, 1])


# Rank stops #######################################################################################


@pytest.mark.parametrize("job", ["stopping", "dropped"])
def test_epochs_are_stopped_and_dropped(job: str) -> None:
    run_ranks(f"{JOBS}:{job}", 3, hosts=[0, 1, 1])


def test_an_error_in_what_is_prepared_ahead_is_told_to_the_others() -> None:
    first, second, third = (one.value for one in run_ranks(f"{JOBS}:raising_ahead", 3))
    assert second == "ArithmeticError: the third macrobatch"
    for text in (first, third):
        assert "rank 1 (host 0) raised ArithmeticError: the third macrobatch" in text


@pytest.mark.parametrize("drop_last", [False, True])
def test_a_global_schedule_goes_on_at_another_number_of_ranks(drop_last: bool) -> None:
    def dealt(ranks: int, steps: int, state: object) -> tuple[list[list[int]], object]:
        arguments = {"steps": steps, "state": state, "drop_last": drop_last}
        results = run_ranks(f"{JOBS}:first_steps", ranks, arguments)
        assert all(result.value["state"] == results[0].value["state"] for result in results)
        steps_of = [result.value["seeds"] for result in results]
        return [one for step in zip(*steps_of, strict=True) for one in step], results[0].value["state"]

    alone, _ = dealt(1, 100, None)
    begun, state = dealt(2, 1, None)
    more, state = ([], state) if drop_last else dealt(3, 1, state)  # 3 ranks have no whole step left
    end, _ = dealt(1, 100, state)
    together = [*begun, *more, *end]
    assert list(itertools.takewhile(bool, together)) == alone


# Rank links #######################################################################################

LINK_JOBS = "tests.loader.job_rank_links"


@own_slices
@pytest.mark.timeout(TIMEOUT)
@over_ranks
def test_rank_links_minibatches_are_those_of_one_process(
    ranks: int, hosts: Sequence[int], every: int
) -> None:
    run_covering(f"{LINK_JOBS}:epochs", ranks, hosts, every)


@all_only
@own_slices
@needs_ccl
@pytest.mark.timeout(TIMEOUT)
def test_rank_links_minibatches_over_ccl_are_those_of_one_process() -> None:
    run_covering(f"{LINK_JOBS}:epochs", 2, [0, 1], 9, backend="ccl")


def test_impossible_links_are_refused() -> None:
    run_ranks(f"{LINK_JOBS}:refusals", 2, hosts=[0, 1])


# Rank options #####################################################################################

# The loader over ranks with types, times, weights and subgraphs: the bits of one process.
#
# Pairs of all factors are covered here. ``make test-all`` runs their full product.


OPTION_JOBS = "tests.loader.job_rank_options"
RULES = "tests.loader.job_rank_options"


@own_slices
@pytest.mark.timeout(TIMEOUT)
@over_ranks
def test_rank_options_minibatches_are_those_of_one_process(
    ranks: int, hosts: Sequence[int], every: int
) -> None:
    run_covering(f"{OPTION_JOBS}:epochs", ranks, hosts, every)


@own_slices
@needs_ccl
@pytest.mark.timeout(TIMEOUT)
def test_rank_options_minibatches_over_ccl_are_those_of_one_process() -> None:
    run_covering(f"{OPTION_JOBS}:epochs", 2, [0, 1], 5, backend="ccl")


@pytest.mark.parametrize(
    "job", ["splits_and_refusals", "attributes_that_differ", "resumed", "times_in_pieces"]
)
def test_rank_options_two_ranks(job: str) -> None:
    run_ranks(f"{RULES}:{job}", 2, hosts=[0, 1])


@pytest.mark.parametrize(("ranks", "hosts"), WORLDS[1:3], ids=str)
def test_graphs_of_odd_shapes(ranks: int, hosts: Sequence[int]) -> None:
    run_ranks(f"{RULES}:odd_graphs", ranks, {"first": 100 * ranks, "count": 25}, hosts=hosts)


# Rank coverings ###################################################################################

Setting = dict[str, Any]


def of_nodes(ranks: int) -> list[Setting]:
    job = job_rank_options
    return settings_of(job.factors(ranks), job.allowed, job.IN_ONE_PROCESS, full=True)


def of_links(ranks: int) -> list[Setting]:
    return job_rank_links.settings(True, ranks)


@pytest.mark.parametrize("settings_over", [of_nodes, of_links])
def test_slices_have_every_setting_once(settings_over: Callable[[int], list[Setting]]) -> None:
    settings = settings_over(1)
    texts = [f"{piece}/7" for piece in range(1, 8)]
    slices = [Covering.parse(text, every=5).take(settings) for text in texts]
    assert [*itertools.chain.from_iterable(slices)] == settings
    assert Covering.parse("1", every=5).take(settings) == settings
    assert max(map(len, slices)) - min(map(len, slices)) <= 1
    assert Covering.parse("", every=5).take(settings) == settings[::5]


def test_settings_of_nodes_are_the_whole_product() -> None:
    job = job_rank_options
    names = [tuple(one.items()) for one in product(job.factors(2), job.allowed)]
    made = [tuple(one.items()) for one in of_nodes(2)]
    assert len(made) == len(names) and set(made) == set(names)


def test_settings_of_links_have_the_whole_product_of_the_main_factors() -> None:
    job = job_rank_links
    every = job.factors(2)
    names = (*job.MAIN, "schedule")
    wanted = product({name: every[name] for name in names}, job.allowed)
    made = of_links(2)
    assert all(map(job.allowed, made))
    assert [{name: one[name] for name in names} for one in made] == wanted


@pytest.mark.parametrize("text", ["0", "2", "0/3", "4/3", "1/0", "1/", "x", "-1/3"])
def test_what_is_neither_all_nor_a_slice_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="a slice like 3/8, not"):
        Covering.parse(text, every=1)


def test_policies_do_not_differ_on_one_rank() -> None:
    for policy in POLICIES:
        assert not any(own.any() for own in owners((60, 40, 1, 7), policy, 1))


# Rank agreement ###################################################################################

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
}
EDGES = GRAPHS["plain"].edge_index
LABELS = torch.arange(EDGES.size(1))
BINARY = {"edge_label_index": EDGES, "neg_sampling": "binary"}
TIMED = {"edge_label_index": EDGES, "edge_label_time": LABELS % 9 + 3, "time_attr": "time"}


def weighted(**weights: Any) -> dict[str, Any]:
    """Returns the arguments of links with times and negatives that are drawn by weight."""
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
    """Makes a loader of the plain graph, and expects that the ranks disagree about ``name``."""
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
