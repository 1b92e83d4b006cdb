"""The parts of a minibatch, of which those that it does not reach take no time."""

from __future__ import annotations

import copy
import pickle

import pytest
import torch

from pyg_batchgnn.data import Schema
from pyg_batchgnn.sample import Layout, MacrobatchSampler, SamplingPlan, Seeds
from pyg_batchgnn.store import CscGraph, TypedGraph
from pyg_batchgnn.types import ByNumber


def test_parts_are_a_sequence() -> None:
    parts = ByNumber(4, {1: "one", 3: "three"}, "rest")
    whole = ["rest", "one", "rest", "three"]
    assert list(parts) == whole and len(parts) == 4 and parts.reached == {1: "one", 3: "three"}
    assert [parts[at] for at in range(-4, 4)] == whole * 2
    assert list(parts[1:]) == whole[1:] and list(reversed(parts)) == whole[::-1]
    with pytest.raises(IndexError):
        parts[4]
    assert list(ByNumber.of(whole)) == whole and ByNumber.of(parts) is parts
    assert list(pickle.loads(pickle.dumps(parts))) == whole


def test_types_that_a_minibatch_does_not_reach_share_their_parts() -> None:
    schema = Schema(("a", "b", "c"), (("b", "to", "a"), ("a", "to", "c"), ("c", "to", "b")))
    edges = {names: torch.tensor([[0, 1], [1, 1]]) for names in schema.relations}
    graph = TypedGraph.from_edge_indices(schema, {"a": 2, "b": 2, "c": 2}, edges)
    sampler = MacrobatchSampler(graph, SamplingPlan((2,)), layout=Layout.CSC)
    (minibatch,) = sampler.sample([Seeds.of(schema, {"a": torch.tensor([1])})], 0)
    assert list(minibatch.reached_nodes) == [0, 1] and list(minibatch.reached_edges) == [0]
    assert minibatch.edges[1] is minibatch.edges[2] and minibatch.edges[1].num_edges == 0
    assert minibatch.nodes_of("c").node.numel() == 0
    assert (minibatch.num_nodes, minibatch.num_edges, minibatch.batch_size) == (3, 2, 1)


def _sampler() -> tuple[MacrobatchSampler, CscGraph]:
    graph = CscGraph.from_edge_index(torch.randint(20, (2, 100)), 20)
    return MacrobatchSampler(graph, SamplingPlan((3,))), graph


def test_a_sampler_can_be_copied_after_it_has_sampled() -> None:
    sampler, _ = _sampler()
    expected = sampler.sample([torch.arange(5)], 0)[0]
    for other in (copy.deepcopy(sampler), pickle.loads(pickle.dumps(sampler))):
        assert torch.equal(other.sample([torch.arange(5)], 0)[0].edge_index, expected.edge_index)


def test_ids_written_after_sampling_are_checked_again() -> None:
    sampler, graph = _sampler()
    sampler.sample([torch.arange(5)], 0)
    graph.indices[3] = 20
    with pytest.raises(IndexError, match="20"):
        sampler.sample([torch.arange(5)], 0)
    graph.indices[3] = 19
    sampler.sample([torch.arange(5)], 0)


def test_arrays_that_are_resized_or_replaced_after_sampling_are_refused() -> None:
    for change in (lambda one: one.resize_(10), lambda one: setattr(one, "data", one.clone()[:10])):
        sampler, graph = _sampler()
        sampler.sample([torch.arange(5)], 0)
        change(graph.indices)
        with pytest.raises((ValueError, RuntimeError), match=r"indices|resized"):
            sampler.sample([torch.arange(5)], 0)


def test_inference_tensors_are_checked_at_every_call() -> None:
    with torch.inference_mode():
        indptr, indices = torch.tensor([0, 2, 2]), torch.tensor([0, 1])
    sampler = MacrobatchSampler(CscGraph.from_csc(indptr, indices), SamplingPlan((-1,)))
    assert sampler.sample([torch.tensor([0])], 0)[0].num_edges == 2
    indices.numpy()[0] = 7
    with pytest.raises(IndexError, match="7"):
        sampler.sample([torch.tensor([0])], 0)
