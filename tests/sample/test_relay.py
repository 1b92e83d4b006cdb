"""Sampling over ranks gives what one process gives, in the rounds that the design promises."""

from __future__ import annotations

import dataclasses
import itertools
import re
from collections.abc import Sequence
from typing import Any

import hypothesis.strategies as st
import pytest
import torch
from hypothesis import given
from torch import Tensor

from pyg_batchgnn.ops import (
    OwnedGraph,
    QuestionForm,
    Relay,
    RelayAnswers,
    RelayBook,
    RelayFault,
    RelayQuestions,
    SampledGraph,
    SampledSeeds,
    SamplingRules,
    WireError,
    minibatch_key,
    relay_answer,
    to_signed,
)
from pyg_batchgnn.sample import Layout, Replacement, SampledMinibatch, SamplingPlan, Subgraph
from tests.support.ranks import run_ranks
from tests.support.relayed import EPOCH, RelayedSampler, Traffic, asked_nodes, owners_of, remote_edges
from tests.support.sampling_cases import fixed, random_seeds
from tests.support.tiers import each, in_all
from tests.support.typed_graphs import TypedCase, assert_same_typed, typed_cases, typed_plans, typed_seeds

JOBS = "tests.sample.job_relay"


def test_wrong_arguments_are_told_before_anything_is_exchanged() -> None:
    for result in run_ranks(f"{JOBS}:refusals", 2):
        said = result.value
        assert re.search(r"but this rank owns \d+ to \d+; seeds of other parts need", said["foreign"])
        assert said["outside"].startswith("IndexError: seeds of minibatch 0 holds 10")
        assert "3 with 2 original ids" in said["short"]
        assert "1 lists of seeds came with 0 of original ids" in said["lists"]
        assert "TypeError" in said["dtype"]
        assert f"cannot be on rank {result.rank} of 2" in said["part"]
        assert "99 original ids came with 100 nodes" in said["node"]


def test_a_rank_with_another_book_is_told() -> None:
    first, second = (result.value for result in run_ranks(f"{JOBS}:wrong_book", 2))
    assert first["ranks"] == [1] and "asked for node 140, but rank 0 owns 0 to 99" in first["text"]
    assert second["ranks"] == [1] and "asked for node 140" in second["text"]


PARTS = st.sampled_from([1, 2, 3, 4, 18])


def check(
    data: st.DataObject, case: TypedCase, seed: int, *, excluding: bool = False, **rules: object
) -> None:
    plan = data.draw(typed_plans(case.schema, True, not case.timed, **rules))
    parts = data.draw(PARTS)
    owners = data.draw(owners_of(case, parts))
    lists = st.lists(typed_seeds(case, excluding), max_size=2)
    seeds = [[one.seeds for one in data.draw(lists)] for _ in range(parts)]
    sampler = RelayedSampler(case, owners, parts, plan, wide=data.draw(st.booleans()))
    layout = data.draw(st.sampled_from(Layout))
    found = sampler.sample(seeds, seed, layout, excluding)
    alone = case.sampler(plan, seed, layout)
    wanted = [alone.sample(own, EPOCH) for own in seeds]
    for mine, theirs in zip(found, wanted, strict=True):
        for batch, right in zip(mine, theirs, strict=True):
            assert_same_typed(batch, right)
    assert sampler.traffic == expected_traffic(case, plan, seed, owners, wanted, seeds)


def expected_traffic(
    case: TypedCase,
    plan: SamplingPlan,
    seed: int,
    owners: Sequence[Tensor],
    wanted: Sequence[Sequence[SampledMinibatch]],
    seeds: Sequence[Sequence[object]],
) -> Traffic:
    """The formula: expanded remote nodes that a relation with a fanout leads into, and their picks.

    For an induced subgraph, every owner of a node that may be a target gets all nodes once more,
    and answers with the edges.
    """
    traffic = Traffic()
    directional = case.sampler(dataclasses.replace(plan, subgraph=Subgraph.DIRECTIONAL), seed)
    for rank, batches in enumerate(wanted):
        for batch, picked in zip(batches, directional.sample(seeds[rank], EPOCH), strict=True):  # type: ignore[arg-type]
            away = [owner[one.node] != rank for owner, one in zip(owners, batch.nodes, strict=True)]
            traffic.nodes += asked_nodes(plan, batch, away)
            traffic.picks += remote_edges(picked, away)
            if plan.subgraph is Subgraph.INDUCED:
                targets = sorted(set(case.schema.target_types))
                asked = torch.cat([owners[t][batch.nodes[t].node] for t in targets]).unique()
                traffic.nodes += batch.num_nodes * int((asked != rank).sum())
                traffic.picks += remote_edges(batch, away)
    return traffic


@pytest.mark.parametrize("fanout", [256, *in_all(255, 70_000)])
def test_numbers_of_picks_of_every_width(fanout: int) -> None:
    @fixed(5)
    @given(st.data(), typed_cases(), random_seeds)
    def run(data: st.DataObject, case: TypedCase, seed: int) -> None:
        rules = {"fanouts": (fanout, 2), "by_relation": (), "replacement": Replacement.WITHOUT}
        check(data, case, seed, **rules)

    run()


@each
@pytest.mark.parametrize("timed", [False, True])
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("excluding", [False, True])
def test_every_rule(timed: bool, weighted: bool, excluding: bool) -> None:
    @fixed(8)
    @given(st.data(), typed_cases(timed, weighted), random_seeds)
    def run(data: st.DataObject, case: TypedCase, seed: int) -> None:
        check(data, case, seed, excluding=excluding)

    run()


FIRST, NODES, EDGES = 100, 50, 500
PLAIN = QuestionForm()
#: Every column that a question can have.
FULL = QuestionForm(disjoint=True, timed=True, excluding=True)


def owned() -> OwnedGraph:
    arrays = SampledGraph(
        num_nodes=[NODES],
        indptr=[torch.arange(0, EDGES + 1, 10)],
        indices=[(torch.arange(EDGES) * 7 % 200).int()],
        edge_ids=[torch.arange(EDGES, dtype=torch.int32) + 1000],
        source=[0],
        target=[0],
        digest=[0],
        source_digest=[0],
        order=[],
        weights=[],
    )
    return OwnedGraph(arrays, torch.arange(NODES) * 3, FIRST, all_nodes=200, num_edges=[2000])


def rules(fanout: int) -> SamplingRules:
    return SamplingRules(hops=1, fanouts=[fanout], shares=None, coo=False, options={"edge_ids": True})


def answered(
    words: list[int], counts: list[int], fanout: int = 4, form: QuestionForm = PLAIN
) -> RelayAnswers | RelayFault:
    return relay_answer(owned(), torch.tensor(words, dtype=torch.int32), counts, rules(fanout), form, 0)


def seeds_of(node: Tensor, original: Tensor, ptr: list[int]) -> SampledSeeds:
    keys = [to_signed(minibatch_key(original[a:b])) for a, b in itertools.pairwise(ptr)]
    return SampledSeeds(node, torch.tensor(ptr), torch.tensor(keys, dtype=torch.int64))


def begun(fanout: int = 4, seeds: tuple[int, ...] = (100, 149, 120)) -> tuple[Relay, RelayQuestions]:
    """A relay on rank 0, which owns nothing, after asking rank 1, which owns 100 to 149."""
    node = torch.tensor(seeds)
    given = seeds_of(node, (node - FIRST) * 3, [0, len(seeds)])
    book = RelayBook([0, 100, 150, 200], 1, 0, [0], [0], [2000], False)
    relay = Relay(given, book, rules(fanout), PLAIN, seed=1, epoch=2)
    return relay, relay.ask()


def asked_and_answered(*given: Any, answering: int = 4) -> tuple[Relay, RelayAnswers]:
    relay, asked = begun(*given)
    answers = answered(asked.words.tolist(), [asked.words.numel()], answering)
    assert isinstance(answers, RelayAnswers)
    return relay, answers


def merged(relay: Relay, words: Tensor, counts: list[int]) -> RelayFault | None:
    return relay.merge(torch.empty(0, dtype=torch.int64), words, counts)


def test_a_question_and_its_answer() -> None:
    relay, asked = begun()
    assert asked.counts == [0, 7, 0] and asked.nodes == [0, 3, 0] and asked.own.numel() == 0
    assert asked.words[[0, 3, 4, 5, 6]].tolist() == [1, 3, 100, 149, 120]
    answers = answered(asked.words.tolist(), [7, 0, 0])
    assert isinstance(answers, RelayAnswers)
    # A word of counts; twelve edge ids and twelve sources of four bytes.
    assert answers.counts == [1 + 6 + 6, 0, 0] and answers.picks == [12, 0, 0]
    assert answers.words[:1].view(torch.uint8).tolist() == [4, 4, 4, 0, 0, 0, 0, 0]
    assert merged(relay, answers.words, [0, 13, 0]) is None
    (node, indptr, _, edge), counts = relay.take()
    assert indptr.tolist() == [0, 4, 8, 12] and counts.tolist() == [[3, node.numel() - 3, 12]]
    assert torch.equal(edge // 10 - 100, torch.tensor([0, 49, 20]).repeat_interleave(4))


@pytest.mark.parametrize(
    "words",
    [
        [0],  # no blocks in a message that is not empty
        [1],
        [-1, 0, 0, 0],
        [2, 0, 0, 1, 100],  # fewer words than two blocks take
        [1, 0, 0, 2, 100],  # fewer nodes than promised
        [1, 0, 0, 1, 100, 101],  # more
        [1, 0, 0, -1, 100],
        [2**31 - 1, 0, 0, 1, 100],
        [1, 0, 0, 2**31 - 1, 100],
        [2, 0, 0, 2**31 - 1, 0, 0, 2**31 - 1, 100],
    ],
)
def test_questions_that_do_not_add_up(words: list[int]) -> None:
    good = [1, 5, 6, 1, 100]
    assert isinstance(answered(good, [5]), RelayAnswers)
    assert answered([*good, *words], [5, len(words)]) == RelayFault(WireError.BLOCKS, 1, len(words))


#: Node 100 as one of example 9, whose time is 1; its edges from node 0 are excluded.
FULL_BLOCK = [1, 5, 6, 1, 1, 1, 100, 0, 9, 1, 0, 0, 0, 0]


def test_a_question_with_every_column() -> None:
    answers = answered(FULL_BLOCK, [len(FULL_BLOCK)], -1, FULL)
    assert isinstance(answers, RelayAnswers) and answers.picks == [9]  # of ten, without that from 0


@pytest.mark.parametrize(
    ("place", "value"),
    [
        (4, 2),  # more examples than there are words for
        (4, -1),
        (4, 0),
        (5, 2),  # pairs
        (5, -1),
        (5, 2**31 - 1),
        (7, 1),  # an example that the block does not have
        (7, -1),
        (11, 1),  # a pair whose target is no node of the block
        (11, -1),
        (12, 1),  # a relation that the graph does not have
        (12, -1),
    ],
)
def test_columns_that_do_not_add_up(place: int, value: int) -> None:
    words = list(FULL_BLOCK)
    words[place] = value
    assert answered(words, [len(words)], -1, FULL) == RelayFault(WireError.BLOCKS, 0, len(words))


@pytest.mark.parametrize("node", [99, 150, 0, -1, 2**31 - 1, -(2**31)])
def test_nodes_that_are_not_ours(node: int) -> None:
    assert answered([1, 5, 6, 3, 100, node, 149], [0, 0, 7]) == RelayFault(WireError.NODE, 2, node)
    many = [1, 5, 6, 10_001, *[100 + i % NODES for i in range(10_000)], node]
    assert answered(many, [0, len(many)]) == RelayFault(WireError.NODE, 1, node)


@pytest.mark.parametrize("length", [0, 1, 12, 14])
def test_answers_of_the_wrong_length(length: int) -> None:
    relay, answers = asked_and_answered()
    words = torch.cat([answers.words, answers.words])[:length].clone()
    assert merged(relay, words, [0, length, 0]) == RelayFault(WireError.LENGTH, 1, length)


def test_answers_of_nobody_who_was_asked() -> None:
    relay, answers = asked_and_answered()
    words = torch.cat([answers.words, torch.zeros(1, dtype=torch.int64)])
    assert merged(relay, words, [0, 13, 1]) == RelayFault(WireError.LENGTH, 2, 1)


def test_more_picks_than_the_plan_allows() -> None:
    relay, answers = asked_and_answered(answering=5)
    assert merged(relay, answers.words, [0, answers.counts[0], 0]) == RelayFault(WireError.PICKS, 1, 5)


@pytest.mark.parametrize("source", [200, -1, 2**31 - 1, -(2**31)])
def test_sources_that_are_no_nodes(source: int) -> None:
    relay, answers = asked_and_answered()
    words = answers.words.clone()
    words[7:].view(torch.int32)[5] = source
    assert merged(relay, words, [0, 13, 0]) == RelayFault(WireError.SOURCE, 1, source)


def test_many_sources_that_are_no_nodes() -> None:
    """There is room for as many nodes as the graph has, and no more."""
    seeds = tuple(range(100, 150)) * 200
    relay, answers = asked_and_answered(-1, seeds, answering=-1)
    words = answers.words.clone()
    words[-50_000:].view(torch.int32)[:] = torch.arange(1000, 101_000, dtype=torch.int32)
    fault = merged(relay, words, [0, words.numel(), 0])
    assert fault is not None and fault.error is WireError.SOURCE


def test_state_of_something_else_is_refused() -> None:
    with pytest.raises(RuntimeError, match="expected the state that an operator returned"):
        torch.ops.pyg_batchgnn.relay_ask(torch.zeros(16, dtype=torch.uint8), 1)


def test_opcheck() -> None:
    """The functional operators: their arguments stay as they are."""
    graph, kernels = owned(), torch.ops.pyg_batchgnn
    checks = ("test_schema", "test_autograd_registration")
    words = begun()[1].words
    held = (graph.held(), graph.node, graph.first, graph.all_nodes, graph.num_edges)
    plan = kernels.sampling_rules(1, [4], None, ["edge_ids"], [1])
    with pytest.raises(IndexError):  # a rule that no plan has
        kernels.sampling_rules(1, [4], None, ["unknown"], [1])
    asked = (*held, words, [0, words.numel(), 0], False, False, False, 0, plan, 2)
    torch.library.opcheck(kernels.relay_answer, asked, test_utils=checks)
    node = torch.tensor([100, 149])
    seeds = (node, torch.tensor([0, 2]), torch.tensor([7]), None, None, None)
    start = (*seeds, [0, 100, 150, 200], 1, 0, [0], [0], [2000], False, False, False, False)
    torch.library.opcheck(kernels.relay_begin, (*start, plan, False, 1, 2), test_utils=checks)
