"""Sums over in-edges of rows of sources, targets and edges, and attention of such sums."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pytest
import torch
from torch import Tensor

from pyg_batchgnn import ops
from tests.support.accuracy import distance
from tests.support.reference_attention import assert_close_gradients, gradients
from tests.support.tiers import every_level

TOLERANCE = {torch.float32: 2e-5, torch.float64: 1e-10}
TARGETS, SOURCES = 11, 23
KINDS = ("additive", "messages", "weighted")


@dataclass
class Case:
    kind: str
    indptr: Tensor
    indices: Tensor
    leaves: dict[str, Tensor]
    options: dict[str, Any] = field(default_factory=dict)

    def run(self, **more: Any) -> Tensor:
        named = dict(self.leaves)
        x, options = named.pop("x"), {**self.options, **more}
        if x.requires_grad:
            options["by_source"] = ops.transpose(self.indptr, self.indices, x.size(0))
        if self.kind != "additive":
            return ops.edge_sums(x, self.indptr, self.indices, **named, **options)
        return ops.additive_attention(x, self.indptr, self.indices, **named, **options).out


def make_case(
    kind: str,
    columns: int,
    heads: int = 1,
    edge_columns: int | None = 3,
    dtype: torch.dtype = torch.float64,
    edges: int = 70,
    loops: int | None = None,
) -> Case:
    """``edge_columns``: of rows that a weight multiplies; 0: rows as wide as x; None: no rows."""
    torch.manual_seed(columns + heads)
    wide = torch.float64 if dtype == torch.float64 else torch.float32
    into, out_of = torch.randint(TARGETS - 1, (edges,)).sort().values, torch.randint(SOURCES, (edges,))
    out_of[::5] = into[::5]
    indptr = torch.zeros(TARGETS + 1, dtype=torch.int64)
    indptr[1:] = torch.bincount(into, minlength=TARGETS).cumsum(0)
    width, slots = columns * (heads if kind == "additive" else 1), edges + (loops or 0)

    def normal(*shape: int) -> Tensor:
        return torch.randn(shape, dtype=torch.float64).to(wide)

    leaves = {"x": normal(SOURCES, width).to(dtype)}
    if kind == "weighted":
        leaves["weight"] = normal(edges, heads)
    else:
        leaves |= {"weight": normal(heads, columns)} if kind == "additive" else {}
        leaves["target_rows"] = normal(TARGETS, width)
        if edge_columns is not None:
            leaves["edge_rows"] = normal(slots, edge_columns or width)
        if edge_columns:
            leaves["edge_weight"] = normal(edge_columns, width)
    for leaf in leaves.values():
        leaf.requires_grad_(leaf.dtype != torch.float16)
    return Case(kind, indptr, out_of, leaves, {"loops": loops} if kind == "additive" else {})


def reference(case: Case, slope: float = 0.2) -> Tensor:
    given = {name: leaf.double() for name, leaf in case.leaves.items()}
    x, loops = given["x"], case.options.get("loops")
    found, slot = [], 0
    for i in range(TARGETS):
        into = range(int(case.indptr[i]), int(case.indptr[i + 1]))
        sources = [int(case.indices[e]) for e in into]
        places = [p for p, source in enumerate(sources) if loops is None or source != i]
        sources, slots = [sources[p] for p in places], [slot + p for p in places]
        slot += len(into)
        if loops is not None and i < loops:
            sources, slots, slot = [*sources, i], [*slots, slot], slot + 1
        rows = x[sources]
        if case.kind == "weighted":
            found.append(torch.einsum("eh,ec->hc", given["weight"][slots], rows).flatten())
            continue
        sums = rows + given["target_rows"][i]
        if "edge_rows" in given:
            of_edges = given["edge_rows"][slots]
            sums = sums + (of_edges @ given["edge_weight"] if "edge_weight" in given else of_edges)
        if case.kind == "messages":
            found.append(sums.relu().sum(0))
            continue
        heads = given["weight"].size(0)
        by_head = torch.nn.functional.leaky_relu(sums, slope).unflatten(1, (heads, -1))
        alpha = (by_head * given["weight"]).sum(2).softmax(0)
        found.append((alpha.unsqueeze(2) * rows.unflatten(1, (heads, -1))).sum(0).flatten())
    return torch.stack(found)


@every_level
@pytest.mark.parametrize("dtype", TOLERANCE)
@pytest.mark.parametrize("edge_columns", [None, 0, 1, 8])
@pytest.mark.parametrize(("columns", "heads"), [(1, 1), (16, 1), (37, 1), (5, 3), (16, 4), (100, 2)])
@pytest.mark.parametrize("kind", KINDS)
def test_equals_the_formula(
    kind: str, columns: int, heads: int, edge_columns: int | None, dtype: torch.dtype
) -> None:
    heads = 1 if kind == "messages" else heads
    loops = 6 if kind == "additive" and heads != 3 else None
    case = make_case(kind, columns, heads, edge_columns, dtype, loops=loops)
    found, wanted = case.run(), reference(case)
    assert distance(found, wanted) < TOLERANCE[dtype]
    leaves = list(case.leaves.values())
    # The gradients of what all edges of a target share nearly cancel.
    assert_close_gradients(gradients(found, leaves), gradients(wanted, leaves), 20 * TOLERANCE[dtype])


@pytest.mark.parametrize("kind", KINDS)
def test_several_blocks(kind: str) -> None:
    case = make_case(kind, 40, dtype=torch.float32, edges=30_000)
    found, wanted, leaves = case.run(), reference(case), list(case.leaves.values())
    assert distance(found, wanted) < 1e-4
    assert_close_gradients(gradients(found, leaves), gradients(wanted, leaves), 1e-3)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_narrow_rows_are_computed_in_float32(dtype: torch.dtype, kind: str) -> None:
    if kind == "additive" and dtype is torch.float16:
        return  # rows of a product have a type that layers compute in
    case = make_case(kind, 21, dtype=dtype)
    found, wanted = case.run(), reference(case)
    assert distance(found, wanted) < (2**-7 if dtype is torch.bfloat16 else 1e-5)
    if kind != "additive":
        assert distance(case.run(out_dtype=torch.float32), wanted) < 1e-5
    leaves = [leaf for leaf in case.leaves.values() if leaf.requires_grad]
    pairs = zip(gradients(found.float(), leaves), gradients(wanted, leaves), strict=True)
    assert all(distance(one, two) < 2**-6 for one, two in pairs)


@pytest.mark.parametrize("kind", KINDS[1:])
def test_rows_of_a_table_and_a_shared_row(kind: str) -> None:
    case = make_case(kind, 18, dtype=torch.float32)
    row = torch.randint(SOURCES, (SOURCES,))
    table, shared = case.leaves["x"].detach(), torch.randn(18)
    in_place = Case(kind, case.indptr, case.indices, {**case.leaves, "x": table}, {"row": row})
    gathered = Case(kind, case.indptr, case.indices, {**case.leaves, "x": table[row]})
    assert torch.equal(in_place.run(), gathered.run())
    if kind == "messages":
        one = Case(
            kind, case.indptr, case.indices, {**case.leaves, "target_rows": shared.expand(TARGETS, -1)}
        )
        two = Case(kind, case.indptr, case.indices, {**one.leaves, "target_rows": shared.repeat(TARGETS, 1)})
        assert torch.equal(one.run(), two.run())


@pytest.mark.parametrize("kind", KINDS)
def test_derivatives(kind: str) -> None:
    heads, loops = 1 if kind == "messages" else 2, 4 if kind == "additive" else None
    case = make_case(kind, 3, heads, 2, edges=20, loops=loops)
    names = list(case.leaves)

    def run(*leaves: Tensor) -> Tensor:
        more = {"drop": 0.3, "key": 5} if kind == "additive" else {}
        named = dict(zip(names, leaves, strict=True))
        return Case(kind, case.indptr, case.indices, named, case.options | more).run()

    assert torch.autograd.gradcheck(run, tuple(case.leaves.values()))


@pytest.mark.parametrize("kind", KINDS)
def test_opcheck(kind: str) -> None:
    case = make_case(kind, 4, dtype=torch.float32)
    calls = []
    real = torch.ops.pyg_batchgnn
    for leaves in (case.leaves, {name: leaf.detach() for name, leaf in case.leaves.items()}):
        x, by_source = leaves["x"], ops.transpose(case.indptr, case.indices, SOURCES)
        scores = {"additive": 1, "weighted": 2, "messages": 3}[kind]
        weight = leaves.get("weight", torch.empty(1, 4)) if scores != 2 else torch.empty(1, 4)
        terms = [leaves.get(name) for name in ("edge_rows", "target_rows", "edge_weight")]
        logits = leaves["weight"] if scores == 2 else None
        edges = (x, None, None, case.indptr, case.indices)
        numbers = (False, scores, TARGETS, -1, 0.2, 0.0, 0)
        lists = list(by_source) if x.requires_grad else []
        forward = (*edges, weight, None, None, logits, *terms, None, lists, *numbers, torch.float32, 2)
        torch.library.opcheck(real.attention, forward)
        calls.append((edges, weight, terms, by_source, numbers, logits, real.attention(*forward)))
    edges, weight, terms, by_source, numbers, logits, (out, coefficient, _) = calls[1]
    kept = coefficient if logits is None else logits
    graph = (*edges, weight, None, *terms, None, list(by_source))
    backward = (
        torch.randn_like(out),
        None,
        None,
        kept,
        *graph,
        *numbers,
        kind == "weighted",
        kind != "weighted",
        2,
    )
    torch.library.opcheck(real.attention_grads, backward)


X, INDPTR, INDICES = torch.ones(3, 4), torch.tensor([0, 1, 2]), torch.tensor([1, 2])


@pytest.mark.parametrize(
    ("call", "error", "words"),
    [
        (lambda: ops.edge_sums(X, INDPTR, INDICES, weight=torch.ones(3, 2)), ValueError, "weight.*[2, 2]"),
        (lambda: ops.edge_sums(X, INDPTR, INDICES, weight=torch.ones(2, 2).double()), TypeError, "float64"),
        (lambda: ops.edge_sums(X, INDPTR, INDICES, edge_rows=torch.ones(2, 3)), ValueError, "edge_rows"),
        (lambda: ops.edge_sums(X, INDPTR, INDICES, edge_weight=torch.ones(2, 4)), ValueError, "edge_rows"),
        (lambda: ops.edge_sums(X, INDPTR, INDICES, target_rows=torch.ones(1, 4)), ValueError, "target_rows"),
        (lambda: ops.edge_sums(X[0], INDPTR, INDICES), ValueError, "rows, columns"),
        (
            lambda: ops.additive_attention(X, INDPTR, INDICES, torch.ones(3, 2), torch.ones(2, 4)),
            ValueError,
            "weight",
        ),
        (
            lambda: ops.additive_attention(X, INDPTR, INDICES, torch.ones(2, 2), torch.ones(2, 4), loops=3),
            ValueError,
            "loops",
        ),
    ],
)
def test_refused(call: Callable[[], Any], error: type[Exception], words: str) -> None:
    with pytest.raises(error, match=words.replace("[", r"\[")):
        call()
