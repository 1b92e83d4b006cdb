"""Models of the shapes that PyG's examples with neighbour loaders have compute the seeds' rows.

Each stands for the scripts after which it is named. Loops over layers are in test_own_models.py.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
import torch
import torch_geometric.nn as pyg
from torch_geometric.data import Data

from pyg_batchgnn import MacrobatchLinkNeighborLoader, MacrobatchNeighborLoader
from tests.support.example_models import (
    HIDDEN,
    IN,
    ITEM,
    OUT,
    TO,
    Bipartite,
    Citations,
    Encoder,
    Hierarchical,
    Module,
    Recommender,
    Stack,
    Tabular,
    infomax,
    link_batches,
    polynormer,
    sequential,
    to_hetero,
    typed_batches,
    with_tables,
)
from tests.support.ported_models import GRAPH
from tests.support.recorded_models import assert_close, batches, cut, found_in, gradients, pair


@dataclass(frozen=True)
class Example:
    """A ``forward`` of the examples.

    Attributes:
        make: makes a model of its shape.
        plain: calls the plain model with a batch, as the script does.
        ours: calls the accelerated one.
        rows: picks and cuts what the script uses; of the plain model's result.
        picks: picks the same of the accelerated one's.
        given: the batches.
        whole: why something computes all rows; None where nothing does, empty where nothing is
            recorded.
        dtype: of the features and parameters.
    """

    make: Callable[[], Module]
    plain: Callable[[Any, Any], Any] = lambda model, batch: model(batch.x, batch.edge_index)
    ours: Callable[[Any, Any], Any] = lambda model, batch: model(batch)
    rows: Callable[[Any, Any], Any] = lambda found, batch: cut(found, batch.num_sampled_nodes[0])
    picks: Callable[[Any], Any] = lambda found: found
    given: Callable[[], list[Any]] = batches
    whole: str | None = None
    dtype: torch.dtype = torch.float64


def dicts(model: Any, batch: Any) -> Any:
    return model(batch.x_dict, batch.edge_index_dict)


def links(model: Any, batch: Any) -> Any:
    return model(batch.x_dict, batch.edge_index_dict, batch[TO].edge_label_index)


def as_it_is(found: Any, batch: Any) -> Any:
    return found


def of_items(found: Any, batch: Any) -> Any:
    return found[ITEM][: batch[ITEM].batch_size]


def item_rows(found: Any, batch: Any) -> Any:
    return found[: batch[ITEM].batch_size]


def self_trimming(model: Any, batch: Any) -> Any:
    return model(
        batch.x_dict, batch.edge_index_dict, batch.num_sampled_edges_dict, batch.num_sampled_nodes_dict
    )


def homogeneous_links() -> list[Any]:
    loader = MacrobatchLinkNeighborLoader(
        GRAPH,
        [4, 3],
        edge_label_index=GRAPH.edge_index[:, 5:35],
        batch_size=12,
        seed=3,
        neg_sampling="binary",
    )
    return list(loader)


def disjoint(dtype: torch.dtype = torch.float64) -> list[Any]:
    data = Data(x=GRAPH.x.to(dtype), edge_index=GRAPH.edge_index)
    return list(MacrobatchNeighborLoader(data, [4, 3], torch.arange(20), batch_size=9, seed=1, disjoint=True))


def with_batch(model: Any, batch: Any) -> Any:
    return model(batch.x, batch.edge_index, batch.batch)


EXAMPLES: dict[str, Example] = {
    "ogbn_train, SGFormer": Example(
        lambda: pyg.SGFormer(IN, HIDDEN, OUT, trans_dropout=0.0, gnn_dropout=0.0), with_batch,
        given=lambda: disjoint(torch.float32), whole="makes a tensor", dtype=torch.float32,
    ),
    "ogbn_train, Polynormer, local": Example(lambda: polynormer(False), with_batch, given=disjoint),
    "ogbn_train, Polynormer, global": Example(
        lambda: polynormer(True), with_batch, given=disjoint,
        whole="takes the length|makes a tensor|reads values",
    ),
    "graph_sage_unsup": Example(
        lambda: pyg.GraphSAGE(IN, HIDDEN, 2, OUT, norm="batch_norm"), given=homogeneous_links
    ),
    "infomax_inductive": Example(
        Encoder, lambda model, batch: model(batch.x, batch.edge_index, batch.batch_size), rows=as_it_is
    ),
    "infomax_inductive, whole": Example(
        infomax, lambda model, batch: model(batch.x, batch.edge_index, batch.batch_size),
        lambda model, batch: model(batch.x, batch.edge_index, batch.batch_size),
        rows=lambda found, _: found[0], picks=lambda found: found[0], whole="",
    ),
    "bipartite_sage_unsup, taobao": Example(
        Bipartite,
        lambda model, batch: model(batch.number_dict, batch.edge_index_dict, batch[TO].edge_label_index),
        rows=as_it_is, given=link_batches,
    ),
    "hierarchical_sage": Example(Hierarchical, self_trimming, rows=item_rows, given=typed_batches),
    "recommender_system, temporal_link_pred": Example(
        Recommender, links, rows=as_it_is, given=link_batches
    ),
    "to_hetero_mag": Example(
        sequential, dicts, rows=of_items, picks=lambda found: found[ITEM], given=typed_batches
    ),
    "relational_gnn": Example(
        lambda: to_hetero(Stack(last=True)), dicts, rows=of_items, picks=lambda found: found[ITEM],
        given=typed_batches,
    ),
    "rdl": Example(
        Tabular, lambda model, batch: model(batch, ITEM), lambda model, batch: model(batch, ITEM),
        rows=as_it_is, given=with_tables,
    ),
    "mag240m_graphsage": Example(Citations, dicts, rows=item_rows, given=typed_batches),
}  # fmt: skip


def prepared(example: Example) -> tuple[Any, Any]:
    """An accelerated and a plain model in evaluation mode, whose widths are known."""
    torch.manual_seed(0)
    model = example.make().to(example.dtype)
    (first, *_) = example.given()
    with torch.no_grad():
        example.plain(model, first.clone())
    ours, plain = pair(model, example.dtype)
    return ours.eval(), plain.eval()


@pytest.mark.parametrize("name", EXAMPLES)
def test_models_of_the_shapes_in_pygs_examples(name: str) -> None:
    example = EXAMPLES[name]
    ours, plain = prepared(example)
    tolerance = 1e-10 if example.dtype == torch.float64 else 1e-4
    for batch, same in zip(example.given(), example.given(), strict=True):
        found = example.picks(example.ours(ours, batch))
        wanted = example.rows(example.plain(plain, same), batch)
        assert_close(found, wanted, tolerance)
        assert_close(gradients(ours, found), gradients(plain, wanted), tolerance)
    now = found_in(ours)
    assert is_trimmed(ours) == (example.whole is None), (now.reasons, now.notes)
    assert example.whole is None or re.search(example.whole, " ".join(now.reasons + now.notes))


def is_trimmed(model: Any) -> bool:
    """Returns whether nothing computed all rows, and some convolution those of the seeds alone."""
    found = found_in(model)
    return not found.reasons and not found.notes and any(0 in hops for hops in found.hops)
