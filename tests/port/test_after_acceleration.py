"""Hooks, pruning and repeated passes of a model that was accelerated before."""

from __future__ import annotations

import pytest
import torch
import torch_geometric.nn as pyg
from torch.nn.utils import prune

from pyg_batchgnn.port import accelerate
from tests.support.ported_models import GRAPH, accelerated, batch_of, loader_of, minibatch_of, model_of

KINDS = {"sage": pyg.GraphSAGE, "gcn": pyg.GCN, "gat": pyg.GAT}
PARTS = {"sage": "lin_l", "gcn": "lin", "gat": "lin"}


def test_training_passes_over_a_batch_drop_other_elements() -> None:
    model, batch = accelerated(model_of(pyg.GraphSAGE, 2, dropout=0.5)), batch_of(2)
    for arguments in ((batch,), (batch.x, batch.edge_index), (minibatch_of(2),)):
        model.train()
        assert not torch.equal(model(*arguments), model(*arguments))
        model.eval()
        assert torch.equal(model(*arguments), model(*arguments))


@pytest.mark.parametrize("name", KINDS)
def test_hooks_on_messages_are_called(name: str) -> None:
    model, batch = accelerated(model_of(KINDS[name], 2)).eval(), batch_of(2)
    wanted, seen = model(batch), []
    model.convs[0].register_message_forward_hook(lambda *_: seen.append(1))
    for one in (batch, minibatch_of(2)):
        assert torch.allclose(model(one), wanted)
    assert len(seen) == 2


@pytest.mark.parametrize("name", KINDS)
def test_hooks_on_parts_are_called_and_pruned_parts_are_pruned(name: str) -> None:
    reference, batch = model_of(KINDS[name], 2).eval(), batch_of(2)
    model, seen = accelerated(reference).eval(), []
    part = model.convs[0].get_submodule(PARTS[name])
    handle = part.register_forward_hook(lambda *_: seen.append(1))
    model(batch.x, batch.edge_index)
    assert seen
    handle.remove()
    for one in (part, reference.convs[0].get_submodule(PARTS[name])):
        prune.l1_unstructured(one, "weight", 0.5)
    found = model(batch.x, batch.edge_index)
    assert torch.allclose(found, reference(batch.x, batch.edge_index))


def test_inference_keeps_the_mode_of_each_module() -> None:
    model = accelerated(model_of(pyg.GraphSAGE, 2, norm="batch_norm")).train()
    model.norms[0].eval()
    modes = [module.training for module in model.modules()]
    assert model.inference(loader_of([2, 2], torch.float64)).size(0) == GRAPH.num_nodes
    assert [module.training for module in model.modules()] == modes


def test_a_report_that_cannot_be_called_changes_nothing() -> None:
    model = pyg.GraphSAGE(3, 4, 2)
    with pytest.raises(TypeError, match="got True"):
        accelerate(model, report=True)  # type: ignore[arg-type]
    assert type(model) is pyg.GraphSAGE
