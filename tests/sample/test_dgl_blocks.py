"""DGL blocks of native minibatches are their layers. DGL's `create_block` is made up here."""

from __future__ import annotations

import sys
from collections import defaultdict
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from pyg_batchgnn import Minibatch
from tests.support import hetero_cases, loader_cases
from tests.support.hetero_cases import CITES, COUNTS, make_hetero

PLAIN = ("_N", "_E", "_N")


class Block:
    """What is asked of a block. Without types DGL takes no dicts."""

    def __init__(self, csc: Any, sources: Any, targets: Any) -> None:
        has_names = isinstance(csc, dict)
        self.csc = csc if has_names else {PLAIN: csc}
        self.counts = [one if has_names else {"_N": one} for one in (sources, targets)]
        new = [defaultdict[Any, Any](lambda: SimpleNamespace(data={})) for _ in range(3)]
        self.srcnodes, self.dstnodes, self.edges = new

    def num_dst_nodes(self, name: str) -> int:
        return self.counts[1][name]

    def num_edges(self, relation: Any) -> int:
        return self.csc[relation][1][1].numel()


def test_without_dgl_an_error_says_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "dgl", None)
    with pytest.raises(ImportError, match=r"pip install dgl==1\.1\.3"):
        homogeneous().to_dgl()


def homogeneous(**kwargs: Any) -> Minibatch:
    options = {"input_nodes": torch.tensor([5, 5, 9, 200, 3, 9]), "export": "native", **kwargs}
    return next(iter(loader_cases.make_loader(loader_cases.make_data(edges=600), (4, 3, 2), **options)))


def typed(**kwargs: Any) -> Minibatch:
    data = make_hetero()
    for name, count in COUNTS.items():
        data[name].x = torch.randn(count, 4)
    options = {"input_nodes": hetero_cases.BOTH, "batch_size": 30, "export": "native", **kwargs}
    return next(iter(hetero_cases.make_loader(data, **options)))


@pytest.mark.parametrize("kwargs", [{}, {"disjoint": True}, {"subgraph_type": "induced"}])
@pytest.mark.parametrize("make", [homogeneous, typed])
def test_blocks_have_the_layers_of_the_minibatch(
    make: Callable[..., Minibatch], kwargs: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "dgl", SimpleNamespace(create_block=Block, NID="node", EID="edge"))
    minibatch = make(**kwargs)
    schema, blocks = minibatch.schema, minibatch.to_dgl()
    types = schema.node_types if schema.has_names else ("_N",)
    assert len(blocks) == (2 if make is typed else 3)
    for number, block in enumerate(blocks, 1):
        for relation, edges in zip(schema.relations, minibatch.edges, strict=True):
            name = relation if schema.has_names else PLAIN
            layer, (kind, (indptr, indices, _)) = minibatch.layer(number, relation), block.csc[name]
            targets = torch.arange(indptr.numel() - 1).repeat_interleave(indptr.diff())
            assert kind == "csc" and torch.equal(torch.stack([indices, targets]), layer.edge_index)
            sources, targets = block.counts[0][name[0]], block.num_dst_nodes(name[2])
            assert (sources, targets) == (layer.num_sources, layer.num_targets)
            assert edges.edge is not None
            assert torch.equal(block.edges[name].data["edge"], edges.edge[: indices.numel()])
        for name, nodes in zip(types, minibatch.nodes, strict=True):
            for of, count in ((block.srcnodes, block.counts[0]), (block.dstnodes, block.counts[1])):
                assert torch.equal(of[name].data["node"], nodes.node[: count[name]])
    paper, cites = ("paper", CITES) if make is typed else ("_N", PLAIN)
    rows = minibatch.attribute("x", of="paper") if make is typed else minibatch.x
    labels = minibatch.attribute("y", of="paper") if make is typed else minibatch.y
    assert torch.equal(blocks[0].srcnodes[paper].data["x"], rows)
    assert torch.equal(blocks[-1].dstnodes[paper].data["y"], labels[: blocks[-1].num_dst_nodes(paper)])
    weights = minibatch.attribute("edge_attr", of=CITES) if make is typed else minibatch.edge_attr
    for block in blocks:
        assert torch.equal(block.edges[cites].data["edge_attr"], weights[: block.num_edges(cites)])
