"""Native models against PyG's on sampled minibatches: state, outputs and all gradients."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from pyg_batchgnn import nn
from tests.support.accuracy import ALONE, assert_as_pygs
from tests.support.layer_cases import relative_error, small_graph, table
from tests.support.model_pairs import PAIRS, both, cases, with_features

CASES = cases()


@pytest.mark.parametrize("kind", PAIRS)
def test_state_moves_both_ways(kind: str) -> None:
    native, reference = both(kind)
    assert list(native.state_dict()) == list(reference.state_dict())
    torch.manual_seed(99)
    fresh_native, fresh_reference = PAIRS[kind].native(0.0), PAIRS[kind].pyg(0.0)
    native.load_state_dict(fresh_reference.state_dict())
    reference.load_state_dict(fresh_native.state_dict())
    for name, value in fresh_reference.state_dict().items():
        assert torch.equal(native.state_dict()[name], value)


@pytest.mark.parametrize("kind", PAIRS)
def test_initialised_as_pygs(kind: str) -> None:
    torch.manual_seed(5)
    native = PAIRS[kind].native(0.0).state_dict()
    torch.manual_seed(5)
    for name, value in PAIRS[kind].pyg(0.0).state_dict().items():
        assert torch.equal(native[name], value), name


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("kind", PAIRS)
def test_outputs_and_gradients(kind: str, case: str, dtype: torch.dtype) -> None:
    batch = CASES[case]
    native, reference = both(kind, dtype=dtype)
    if kind == "gin" and batch.has_layers and batch.nodes_per_hop[0] < 3:
        # A row or two are normalised to next to nothing, whose gradient cancels.
        native.eval()
        reference.eval()
    counts = (batch.nodes_per_hop, batch.edges_per_hop) if batch.has_layers else ()

    def theirs(model: Any, x: Tensor) -> dict[str, Tensor]:
        torch.set_default_dtype(x.dtype)
        out = model.outputs(x, batch.edge_index, *counts)
        return {"logits": out.logits[: batch.batch_size], "hidden": out.hidden[: batch.batch_size]}

    def mine(model: Any, x: Tensor) -> dict[str, Tensor]:
        out = model.outputs(batch, x=x)
        return {"logits": out.logits, "hidden": out.hidden}

    assert_as_pygs(native, reference, mine, theirs, table(dtype)[batch.node])


@pytest.mark.parametrize("kind", PAIRS)
def test_the_three_ways_to_call(kind: str) -> None:
    native, reference = both(kind)
    native.eval()
    reference.eval()
    batch = with_features(CASES["all neighbours"])
    through_row = native(batch)
    assert torch.equal(through_row, native(batch, x=table()[batch.node]))
    assert torch.equal(through_row, native(batch, x=nn.RowView(table(), batch.node)))
    hidden = native.outputs(batch).hidden
    assert torch.equal(hidden, native.outputs(batch, x=table()[batch.node]).hidden)
    whole = small_edges()
    assert relative_error(native(table(), whole), reference(table(), whole)) < ALONE
    # All neighbours of all hops are sampled, so that the seeds see what they see in the whole
    # graph.
    if kind != "gcn":
        assert relative_error(through_row, native(table(), whole)[batch.node[:3]]) < ALONE


def small_edges() -> Tensor:
    graph = small_graph()
    targets = torch.repeat_interleave(torch.arange(60), graph.indptr.diff())
    return torch.stack([graph.indices.long(), targets])


def test_one_layer_has_the_features_for_hidden() -> None:
    model = nn.SAGE(12, 16, 1, 5)
    from tests.support.layer_cases import sampled

    batch = with_features(sampled([3, 4], (5,)))
    assert torch.equal(model.outputs(batch).hidden, table()[[3, 4]])
