"""Graph attention spelled out edge by edge, for comparison."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from pyg_batchgnn import ops
from tests.support.accuracy import distance


@dataclass
class Case:
    """Arguments of `ops.attention`; tensors in ``leaves`` take gradients."""

    x: Tensor
    indptr: Tensor
    indices: Tensor
    weights: dict[str, Tensor]
    loops: int | None
    row: Tensor | None = None
    by_head: bool = False
    options: dict[str, Any] = field(default_factory=dict)

    @property
    def leaves(self) -> list[Tensor]:
        return [tensor for tensor in (self.x, *self.weights.values()) if tensor.requires_grad]

    def run(self, **more: Any) -> ops.Attention:
        by_source = ops.transpose(self.indptr, self.indices, self.x.size(0)) if self.x.requires_grad else ()
        own = {"row": self.row, "by_source": by_source, "by_head": self.by_head, "loops": self.loops}
        arguments = {**own, **self.weights, **self.options, **more}
        return ops.attention(self.x, self.indptr, self.indices, arguments.pop("source_weight"), **arguments)


def make_case(
    targets: int,
    sources: int,
    edges: int,
    columns: int,
    heads: int,
    loops: int | None,
    *,
    seed: int = 0,
    dtype: torch.dtype = torch.float64,
    hub: bool = False,
    rows: bool = False,
    edge_logits: bool = True,
    by_target: bool = False,
    edge_columns: int = 0,
    by_head: bool = False,
) -> Case:
    """Makes random edges with parallel ones, self loops and, with several targets, one without
    edges. ``hub``: half of the edges go to target 0. ``rows``: x is rows of a table. ``by_target``:
    each target has weights of its own. ``by_head``: each head has keys and values of its own.
    """
    generator = torch.Generator().manual_seed(seed)
    wide = torch.float64 if dtype == torch.float64 else torch.float32

    def normal(*shape: int, of: torch.dtype = wide) -> Tensor:
        return torch.randn(*shape, generator=generator, dtype=torch.float64).to(of)

    into = torch.randint(max(targets - 1, 1), (edges,), generator=generator)
    into[: edges // 2 * hub] = 0
    into = into.sort().values
    out_of = torch.randint(sources, (edges,), generator=generator)
    own = torch.rand(edges, generator=generator) < 0.2
    out_of[own] = into[own]
    indptr = torch.zeros(targets + 1, dtype=torch.int64)
    indptr[1:] = torch.bincount(into, minlength=targets).cumsum(0)
    x = normal(sources, 2 * heads * columns if by_head else columns, of=dtype)
    weights = {
        "source_weight": normal(*[targets] * by_target, heads, columns + edge_columns) / columns**0.5,
        "target_weight": normal(heads, columns) / columns**0.5,
        "target_logits": normal(targets, heads),
    }
    if by_head:
        del weights["target_weight"]
    if edge_logits:
        weights["edge_logits"] = normal(edges + (loops or 0), heads)
    if edge_columns:
        weights["edge_rows"] = normal(edges + (loops or 0), edge_columns)
    row = None
    if rows:
        row = torch.randint(sources, (sources,), generator=generator)
    elif dtype != torch.float16:
        x.requires_grad_()
    for weight in weights.values():
        weight.requires_grad_()
    return Case(x, indptr, out_of.int() if seed % 2 else out_of, weights, loops, row, by_head)


def slot_edges(case: Case) -> list[tuple[int, int, int, int, bool]]:
    """(slot, target, place in the target's slots, source, whether it counts) of every slot."""
    found = []
    for i in range(case.indptr.numel() - 1):
        ends = range(int(case.indptr[i]), int(case.indptr[i + 1]))
        sources = [(int(case.indices[e]), case.loops is None or int(case.indices[e]) != i) for e in ends]
        if case.loops is not None and i < case.loops:
            sources.append((i, True))
        found += [(len(found) + p, i, p, source, counts) for p, (source, counts) in enumerate(sources)]
    return found


def reference(case: Case, slope: float = 0.2, keep: Tensor | None = None) -> tuple[Tensor, Tensor]:
    """Returns z [targets, heads * width] and weights after dropout [slots, heads], in float64 of
    what the case holds; ``keep`` [slots, heads] multiplies the softmax.
    """
    x = case.x.double() if case.row is None else case.x.double()[case.row]
    weights = {name: weight.double() for name, weight in case.weights.items()}
    heads, width = weights["source_weight"].shape[-2:]
    targets = case.indptr.numel() - 1
    own = weights["target_logits"]
    if "target_weight" in weights:
        own = own + x[:targets] @ weights["target_weight"].t()
    keys = values = x.unsqueeze(1).expand(-1, heads, -1)
    if case.by_head:
        keys, values = x.view(x.size(0), 2, heads, -1).unbind(1)
    result, alphas = [], {}
    edges = slot_edges(case)
    for i in range(targets):
        slots = [edge for edge in edges if edge[1] == i and edge[4]]
        if not slots:
            result.append(x.new_zeros(heads * width))
            continue
        ids = torch.tensor([slot for slot, *_ in slots])
        sources = torch.tensor([source for _, _, _, source, _ in slots])
        key, value = keys[sources], values[sources]
        if "edge_rows" in weights:
            of_edges = weights["edge_rows"][ids].unsqueeze(1).expand(-1, heads, -1)
            key, value = (torch.cat([rows, of_edges], dim=2) for rows in (key, value))
        source_weight = weights["source_weight"]
        source_weight = source_weight[i] if source_weight.dim() == 3 else source_weight
        logits = (key * source_weight).sum(dim=2) + own[i]
        if "edge_logits" in weights:
            logits = logits + weights["edge_logits"][ids]
        alpha = torch.nn.functional.leaky_relu(logits, slope).softmax(dim=0)
        if keep is not None:
            alpha = alpha * keep[ids]
        alphas |= dict(zip(ids.tolist(), alpha, strict=True))
        result.append((alpha.unsqueeze(2) * value).sum(dim=0).flatten())
    nothing = x.new_zeros(heads)
    weights_of_slots = [alphas.get(slot, nothing) for slot, *_ in edges]
    empty = x.new_zeros(0, heads)
    out = torch.stack(result) if result else x.new_zeros(0, heads * width)
    return out, torch.stack(weights_of_slots) if edges else empty


def gradients(out: Tensor, leaves: list[Tensor]) -> list[Tensor]:
    weights = torch.linspace(-1.0, 1.0, max(out.numel(), 1), dtype=torch.float64)[: out.numel()].view_as(out)
    if not out.requires_grad:  # without targets nothing depends on anything
        return [torch.zeros_like(leaf) for leaf in leaves]
    total = (out.double() * weights).sum()
    return list(torch.autograd.grad(total, leaves, allow_unused=True, materialize_grads=True))


def assert_close_gradients(found: list[Tensor], wanted: list[Tensor], tolerance: float) -> None:
    """Each relative to its own magnitude; a sum that cancels, to a thousandth of the largest, which
    is of order one."""
    largest = max((float(grad.abs().max()) for grad in wanted if grad.numel()), default=0.0)
    for one, two in zip(found, wanted, strict=True):
        assert distance(one, two, max(largest / 1000, 1e-3)) < tolerance
