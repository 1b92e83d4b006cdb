"""The loop over layers, and the end of a layer beside its modules called one by one."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch_geometric.nn as pyg
from torch import Tensor

from pyg_batchgnn import nn, ops
from pyg_batchgnn.nn.layer_loop import LayerEnd, last_rows, run_layers, wrong_hops

ROWS, COLUMNS, KEY = 50, 6, 7
NORMS = {
    "none": torch.nn.Identity,
    "batch": lambda: pyg.BatchNorm(COLUMNS),
    "layer of nodes": lambda: pyg.LayerNorm(COLUMNS, mode="node"),
    "layer of torch": lambda: torch.nn.LayerNorm(COLUMNS, bias=False),
    "layer of the graph": lambda: pyg.LayerNorm(COLUMNS),
}
ACTS = {"relu": torch.nn.ReLU, "elu": torch.nn.ELU, "none": lambda: None}


def apply(end: LayerEnd, rows: Tensor) -> Tensor:
    def convolve(update: nn.Update | None) -> Tensor:
        if update is None:
            return rows * 1.0
        key = KEY if update.drop > 0.0 else 0
        return ops.activate(rows * 1.0, relu=update.relu, drop=update.drop, key=key)

    return end.apply(convolve, lambda: (KEY, None))


def by_modules(end: LayerEnd, rows: Tensor) -> Tensor:
    steps: list[Any] = [end.norm] if end.act is None else [end.norm, end.act]
    for step in reversed(steps) if end.act_first else steps:
        rows = step(rows)
    return ops.activate(rows.clone(), drop=end.drop, key=KEY) if end.drop else rows


@pytest.mark.parametrize("fuses_drop", [True, False])
@pytest.mark.parametrize("drop", [0.0, 0.5])
@pytest.mark.parametrize("act_first", [False, True])
@pytest.mark.parametrize("act", ACTS)
@pytest.mark.parametrize("norm", NORMS)
def test_the_end_of_a_layer_is_its_modules_one_by_one(
    norm: str, act: str, act_first: bool, drop: float, fuses_drop: bool
) -> None:
    torch.manual_seed(3)
    end = LayerEnd(NORMS[norm](), ACTS[act](), act_first, drop, fuses_drop)
    found, wanted = (torch.randn(ROWS, COLUMNS, generator=torch.Generator().manual_seed(1)) for _ in "ab")
    results = []
    for rows, call in ((found.requires_grad_(), apply), (wanted.requires_grad_(), by_modules)):
        out = call(end, rows)
        out.mul(torch.linspace(-1, 1, COLUMNS)).sum().backward()
        results.append(out)
    # Normalisations by row are native, with sums in another order.
    allowed = 1e-5 if norm in ("layer of nodes", "layer of torch") else 0.0
    for one, other in (results, (found.grad, wanted.grad)):
        torch.testing.assert_close(one, other, rtol=0, atol=allowed)


def test_a_watched_norm_is_called() -> None:
    norm = pyg.LayerNorm(COLUMNS, mode="node")
    seen: list[Any] = []
    norm.register_forward_hook(lambda *_: seen.append(1))
    apply(LayerEnd(norm, torch.nn.ReLU(), act_first=False, drop=0.5), torch.randn(ROWS, COLUMNS))
    assert seen == [1]


@pytest.mark.parametrize("keep_all", [False, True])
def test_the_loop_keeps_what_is_read_at_the_end(keep_all: bool) -> None:
    before, results = run_layers(lambda index, x: x + 10 ** (index + 1), 3, torch.zeros(4), keep_all=keep_all)
    assert before.tolist() == [110.0] * 4
    assert [one[0].item() for one in results] == ([10.0, 110.0, 1110.0] if keep_all else [1110.0])
    joined = last_rows([one.view(4, 1) for one in results], 2, torch.nn.Identity() if keep_all else None)
    assert len(joined) == (3 if keep_all else 2)


def test_a_wrong_number_of_hops_is_named() -> None:
    text = "a model of 3 layers needs minibatches of 3 hops, but this one has 2; give the loader 3 entries"
    assert str(wrong_hops(3, 2)).startswith(text) and str(wrong_hops(3, 2, ", or not")).endswith(", or not")
