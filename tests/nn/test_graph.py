"""The edges of layers: prefixes of minibatches and whole graphs."""

from __future__ import annotations

import gc

import pytest
import torch
from torch_geometric import EdgeIndex

from pyg_batchgnn import nn, ops
from pyg_batchgnn.nn import RowView, layer_graph, whole_graph
from pyg_batchgnn.nn import inputs as room
from tests.support.layer_cases import batch_cases, sampled, table

CASES = batch_cases()


def test_dropout_keys_differ_between_layers_epochs_and_minibatches() -> None:
    minibatch = CASES["ordinary"]
    keys = {layer_graph(minibatch, layer).dropout_key() for layer in (1, 2, 3)}
    assert keys == {ops.dropout_key(5, 0, minibatch.key, layer) for layer in (1, 2, 3)} and len(keys) == 3
    assert layer_graph(CASES["all neighbours"], 1).dropout_key() not in keys
    whole = whole_graph(torch.zeros(2, 1, dtype=torch.int64), 1, 1)
    assert whole.dropout_key() != whole.dropout_key()


def test_edges_that_are_changed_are_read_again_and_checked() -> None:
    minibatch = batch_cases()["ordinary"]
    conv = nn.SAGEConv(4, 3)
    x = torch.randn(minibatch.num_nodes, 4, requires_grad=True)
    before = layer_graph(minibatch, 1)
    conv(x, minibatch, 1).sum().backward()
    sources = minibatch.indices.clone()
    minibatch.indices.copy_(sources.flip(0).clamp_(max=int(sources.min())))  # all of them one node
    assert layer_graph(minibatch, 1) is not before
    found = conv(x, minibatch, 1)
    assert torch.allclose(found, conv(x, minibatch.edge_index, None)[: len(found)], atol=1e-5)
    for bad in (-1, 2**31 - 5):
        minibatch.indices[0] = bad
        with pytest.raises(IndexError, match=f"holds {bad}"):
            conv(x, minibatch, 1)
    minibatch.indices.copy_(sources)
    minibatch.indptr[1] = 10**9
    with pytest.raises(ValueError, match="indptr"):
        conv(x, minibatch, 1)


def test_a_minibatch_is_let_go_of_with_its_layers() -> None:
    gc.collect()
    before = len(room._layers)
    minibatch = batch_cases()["ordinary"]
    assert len(layer_graph(minibatch, 1).by_source) == 3
    assert len(room._layers) == before + 1
    del minibatch
    gc.collect()
    assert len(room._layers) == before


def test_pygs_edge_index_is_read() -> None:
    edge_index = torch.tensor([[1, 2], [0, 1]])
    graph = whole_graph(EdgeIndex(edge_index, sparse_size=(3, 3)), 3, 3)
    assert graph.indices.tolist() == [1, 2]


@pytest.mark.parametrize(
    ("edges", "error"),
    [
        (torch.eye(3).to_sparse(), TypeError),
        (torch.eye(3).to_sparse_csr(), TypeError),
        ([[0], [0]], TypeError),
        (torch.zeros(2, 1), TypeError),
        (torch.zeros(3, 1, dtype=torch.int64), ValueError),
        (torch.tensor([[-1], [0]]), IndexError),
        (torch.tensor([[0], [3]]), IndexError),
    ],
)
def test_refused_edges(edges: object, error: type[Exception]) -> None:
    with pytest.raises(error):
        whole_graph(edges, 3, 3)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("row", "error"),
    [(torch.tensor([60]), IndexError), (torch.tensor([-1]), IndexError), (torch.tensor([0.0]), TypeError)],
)
def test_refused_rows(row: torch.Tensor, error: type[Exception]) -> None:
    with pytest.raises(error):
        RowView(table(), row)


def test_refused_tables() -> None:
    with pytest.raises(ValueError, match=r"table\[row\]"):
        RowView(table().requires_grad_(), torch.tensor([0]))
    with pytest.raises(ValueError, match="not contiguous"):
        RowView(table().t(), torch.tensor([0]))


EDGE = torch.zeros(2, 1, dtype=torch.int64)
CONVS = {
    "sage": nn.SAGEConv(12, 4),
    "gcn": nn.GCNConv(12, 4),
    "gin": nn.GINConv(torch.nn.Linear(12, 4)),
    "gat": nn.GATConv(12, 4),
    "gatv2": nn.GATv2Conv(12, 4),
    "transformer": nn.TransformerConv(12, 4),
}


@pytest.mark.parametrize("name", CONVS)
@pytest.mark.parametrize(
    ("given", "error", "words"),
    [
        # The first rows of a whole table would be other nodes' features.
        ((table(), CASES["ordinary"], 1), ValueError, ["60 rows", "nodes", "RowView"]),
        ((table()[:3], CASES["ordinary"], 1), ValueError, ["3 rows"]),
        ((nn.RowView(table(), torch.arange(60)), CASES["ordinary"], 1), ValueError, ["60 rows", "nodes"]),
        ((None, CASES["ordinary"], 1), TypeError, ["NoneType", "RowView"]),
        ((table().numpy(), CASES["ordinary"], 1), TypeError, ["ndarray"]),
        ((table()[:20].to_sparse(), CASES["ordinary"], 1), TypeError, ["sparse_coo", "to_dense"]),
        ((table()[0], CASES["ordinary"], 1), ValueError, ["[12]"]),
        ((table(), CASES["ordinary"]), ValueError, ["layer"]),
        ((table(), CASES["ordinary"], 4), ValueError, ["layers 1 to 3", "layer 4"]),
        ((table(), EDGE, 1), ValueError, ["layer=1"]),
        ((table(), torch.eye(20).to_sparse()), TypeError, ["to_edge_index"]),
        ((table(), torch.tensor([[0], [99]])), IndexError, ["99"]),
        ((table(torch.float64), EDGE), TypeError, ["float64"]),
    ],
)
def test_refused_by_every_layer(
    name: str, given: tuple[object, ...], error: type[Exception], words: list[str]
) -> None:
    named = {"layer": given[2]} if given[2:] else {}
    with pytest.raises(error) as caught:
        CONVS[name](*given[:2], **named)
    assert all(word in str(caught.value) for word in words), caught.value


@pytest.mark.parametrize("name", [name for name in CONVS if name != "gin"])
def test_refused_by_every_layer_with_weights(name: str) -> None:
    kind = type(CONVS[name])
    with pytest.raises(ValueError, match=r"flow.*flip"):
        kind(12, 4, flow="target_to_source")
    with pytest.raises(ValueError, match="12"):
        CONVS[name](table()[:, :5], EDGE)


def test_a_model_refuses_the_whole_table() -> None:
    for kind in (nn.SAGE, nn.GCN, nn.GIN, nn.GAT):
        with pytest.raises(ValueError, match="60 rows, but the minibatch has"):
            kind(12, 8, 3, 4)(CASES["ordinary"], x=table())
    whole = nn.Aggregated("mean", table(), table())
    with pytest.raises(ValueError, match="60"):
        nn.SAGE(12, 8, 3, 4)(sampled([1, 2], (2, 2)), x=whole)
