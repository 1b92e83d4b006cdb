"""The operators: what they compute, and that nothing wrong reaches a kernel."""

from __future__ import annotations

import copy
import random
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch_geometric.nn as pyg
from torch import Tensor
from torch.autograd import forward_ad
from torch_geometric.nn import GAT, GCN, GIN, GraphSAGE

from pyg_batchgnn import accelerate, nn, ops
from pyg_batchgnn.ops import InEdges
from tests.support.damaged_arrays import Calls, E, N, assert_all_refused, indices, indptr, print_accepted

DTYPES = [
    *(torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.complex64, torch.complex128),
    *(torch.bool, torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64),
]


def table_of(shape: tuple[int, ...], dtype: torch.dtype) -> Tensor:
    generator = torch.Generator().manual_seed(3)
    if dtype.is_floating_point or dtype.is_complex:
        return torch.randn(shape, generator=generator).to(dtype)
    return torch.randint(2 if dtype is torch.bool else 100, shape, generator=generator).to(dtype)


@pytest.mark.parametrize("index_dtype", [torch.int32, torch.int64])
@pytest.mark.parametrize("dtype", DTYPES)
def test_gather_rows_of_every_dtype(dtype: torch.dtype, index_dtype: torch.dtype) -> None:
    index = torch.randint(50, (321,), dtype=index_dtype)
    for shape in [(50,), (50, 1), (50, 7), (50, 3, 5)]:
        table = table_of(shape, dtype)
        out = ops.gather_rows(table, index)
        assert out.dtype is dtype and torch.equal(out, table[index.long()])


@pytest.mark.parametrize("threads", [1, 2, 5, None])
@pytest.mark.parametrize("width", [1, 3, 4, 16, 17, 100, 128, 1433, 5000])
def test_gather_rows_of_every_width(width: int, threads: int | None) -> None:
    table = torch.randn(300, width)
    index = torch.randint(300, (max(8, 2_000_000 // (4 * width)),))
    with ops.thread_limit(threads):
        assert torch.equal(ops.gather_rows(table, index), table[index])


@pytest.mark.parametrize(
    "view",
    [
        lambda t: t[::2],
        lambda t: t[:, 2:9],
        lambda t: t.t(),
        lambda t: t[:, ::2],
        lambda t: t.expand(60, *t.shape)[:, 0],
        lambda t: t[5:],
        lambda t: t.flip(0),
        lambda t: t[:, :0],
        lambda t: t[:, 0],
        lambda t: t[:1].expand(60, -1),
        lambda t: t.view(60, 4, 3).transpose(1, 2),
    ],
)
def test_gather_rows_of_views(view: Callable[[Tensor], Tensor]) -> None:
    table = view(torch.randn(60, 12))
    index = torch.randint(table.size(0), (77,))
    assert torch.equal(ops.gather_rows(table, index), table[index])


def test_gather_rows_of_nothing() -> None:
    assert ops.gather_rows(torch.randn(5, 3), torch.empty(0, dtype=torch.long)).shape == (0, 3)
    assert ops.gather_rows(torch.empty(0, 3), torch.empty(0, dtype=torch.long)).shape == (0, 3)


def test_gather_rows_cuts_gradients() -> None:
    out = ops.gather_rows(torch.randn(4, 2, requires_grad=True), torch.tensor([1]))
    assert not out.requires_grad


@pytest.mark.parametrize("table", [torch.tensor(1.0), torch.empty(3, device="meta")])
def test_gather_rows_refuses(table: Tensor) -> None:
    with pytest.raises(ValueError, match=r"must have rows|on meta"):
        ops.gather_rows(table, torch.tensor([0]))


@pytest.mark.parametrize("index_dtype", [torch.int32, torch.int64, None])
@pytest.mark.parametrize("width", [1, 2, 3, 4, 8, 100, 5000])
def test_put_rows_into_columns_of_bytes(width: int, index_dtype: torch.dtype | None) -> None:
    """Into and out of packed rows, whatever their alignment; what lies beside them stays."""
    table = torch.randint(256, (60, width), dtype=torch.uint8)
    index = None if index_dtype is None else torch.randint(60, (41,), dtype=index_dtype)
    packed = torch.full((41, width + 8), 7, dtype=torch.uint8)
    with ops.thread_limit(3):
        ops.put_rows(packed[:, 3 : 3 + width], table, index)
    wanted = table[:41] if index is None else table[index.long()]
    assert torch.equal(packed[:, 3 : 3 + width], wanted)
    assert (packed[:, :3] == 7).all() and (packed[:, 3 + width :] == 7).all()
    back = ops.empty((41, width), torch.uint8)
    ops.put_rows(back, packed[:, 3 : 3 + width])
    assert torch.equal(back, wanted)


def test_put_rows_of_nothing_and_refusals() -> None:
    ops.put_rows(torch.empty(0, 3), torch.empty(0, 3), torch.empty(0, dtype=torch.int32))
    ops.put_rows(torch.empty(4, 0), torch.empty(4, 0))
    for out, table, index, text in (
        (torch.empty(2, 3), torch.empty(2, 4), None, "cannot be put"),
        (torch.empty(2, 3), torch.empty(2, 3).double(), None, "cannot be put"),
        (torch.empty(2, 3), torch.empty(1, 3), None, "do not fill"),
        (torch.empty(2, 3), torch.empty(9, 3), torch.tensor([1]), "do not fill"),
        (torch.empty(3, 2).t(), torch.empty(2, 3), None, "must be contiguous"),
    ):
        with pytest.raises(ValueError, match=text):
            ops.put_rows(out, table, index)


def test_empty_memory_is_used_again() -> None:
    for dtype in (torch.bool, torch.bfloat16, torch.int64):
        ops.empty_cache()  # a block that others left may be larger than a new one
        tensor = ops.empty((300, 7), dtype)
        assert tensor.shape == (300, 7) and tensor.dtype is dtype and tensor.is_contiguous()
        assert ops.empty((300, 7), dtype).data_ptr() != tensor.data_ptr()
        address, calls = tensor.data_ptr(), ops.memory_stats().system_calls
        del tensor
        assert ops.empty((300, 7), dtype).data_ptr() == address
        assert ops.memory_stats().system_calls == calls
    assert ops.empty((0, 3), torch.float32).shape == (0, 3)


@pytest.mark.parametrize(
    "lists", [[[]], [[], []], [[5]], [[3, 1, 3], [1, 99]], [list(range(100)), [0]], [[63, 64, 65], [127, 0]]]
)
def test_unique_nodes(lists: list[list[int]]) -> None:
    tensors = [torch.tensor(one, dtype=torch.int64) for one in lists]
    unique, rows = ops.unique_nodes(tensors, 128)
    assert unique.tolist() == sorted({node for one in lists for node in one})
    assert [unique[row].tolist() for row in rows] == lists
    assert ops.count_unique_nodes(tensors, 128) == unique.numel()


@pytest.mark.parametrize("dtype", [torch.int32, torch.int64])
@pytest.mark.parametrize("threads", [1, 3])
def test_extent_and_is_ascending(dtype: torch.dtype, threads: int) -> None:
    values = torch.randint(-1000, 1000, (200_000,), dtype=dtype)
    with ops.thread_limit(threads):
        assert ops.extent(values) == (int(values.min()), int(values.max()))
        assert ops.extent(values[:0]) == (0, -1)
    assert not ops.is_ascending(values)
    assert ops.is_ascending(values.sort().values) and ops.is_ascending(values[:0])
    broken = values.sort().values
    broken[-1] = -5000
    assert not ops.is_ascending(broken)


@pytest.mark.parametrize(
    ("call", "error", "words"),
    [
        (lambda: ops.keyed_permutation(-1, 0, 0), ValueError, ["negative", "-1"]),
        (lambda: ops.minibatch_key(torch.tensor([0.5])), TypeError, ["int64", "float32"]),
        (lambda: ops.minibatch_key(torch.tensor([[1]])), ValueError, ["one dimension", "[1, 1]"]),
        (lambda: ops.minibatch_key([1]), TypeError, ["list", "as_tensor"]),
        (lambda: ops.unique_nodes([torch.tensor([1], dtype=torch.int32)], 5), TypeError, ["int32"]),
        (
            lambda: ops.unique_nodes([torch.arange(6)[::2]], 9),
            ValueError,
            ["contiguous", "stride 2", ".contiguous()"],
        ),
        (lambda: ops.extent(torch.tensor([1.0])), TypeError, ["float32"]),
        (lambda: ops.check_range("seeds", torch.tensor([1, 9]), 5), IndexError, ["seeds", "9", "0 to 4"]),
        (lambda: ops.check_range("seeds", torch.tensor([-2, 9]), 5), IndexError, ["-2"]),
    ],
)
def test_refused(call: Callable[[], Any], error: type[Exception], words: list[str]) -> None:
    with pytest.raises(error) as caught:
        call()
    assert all(word in str(caught.value) for word in words), caught.value


def test_memory_is_counted_and_returns() -> None:
    ops.empty_cache()
    before = ops.memory_stats()
    ops.reset_peak()
    held = ops.gather_rows(torch.randn(100, 1000), torch.arange(100))
    during = ops.memory_stats()
    assert during.live - before.live >= held.nbytes
    assert during.peak >= during.live + during.cached
    del held
    after = ops.memory_stats()
    assert after.live == before.live and after.cached > 0
    ops.empty_cache()
    assert ops.memory_stats().cached == 0


def test_sizes_around_the_limit_of_a_class_map_no_memory_again() -> None:
    draw, limit = random.Random(0), 20 << 20
    ops.empty_cache()
    held, calls = ops.empty((int(0.985 * limit),), torch.uint8), -1
    for step in range(50):
        held = ops.empty((int(limit * draw.uniform(0.985, 1.01)),), torch.uint8)  # two at a time
        if step == 1:
            calls = ops.memory_stats().system_calls
    assert held.numel() and ops.memory_stats().system_calls == calls
    ops.empty_cache()


# Every operator refuses arrays that would lead its kernel out of bounds.
#
# All cases run in one process of their own, which must end by itself.


def _calls() -> Calls:
    """Operators with arguments that they take. Vectors of integers are those to damage."""
    x = torch.ones(N, 4)
    graph: dict[str, Any] = {"indptr": indptr(), "indices": indices()}
    by_source = ops.transpose(indptr(), indices(), N)
    weight = torch.ones(2, 4)
    row = torch.arange(N)
    return {
        "aggregate": (ops.aggregate, {"x": x, **graph, "row": row}),
        "aggregate by edge": (ops.aggregate, {"x": x, **graph, "edge_weight": torch.ones(E)}),
        **{f"aggregate {one}": (ops.aggregate, {"x": x, **graph, "reduce": one}) for one in ops.REDUCTIONS},
        "aggregate_with_targets": (ops.aggregate_with_targets, {"x": x, **graph}),
        "attention": (ops.attention, {"x": x, **graph, "source_weight": weight, "row": row, "node": row}),
        "transpose": (ops.transpose, {**graph, "num_sources": N}),
        "drop_self_loops": (ops.drop_self_loops, dict(graph)),
        "gather_rows": (ops.gather_rows, {"table": x, "index": row}),
        "put_rows": (ops.put_rows, {"out": torch.empty(N, 4), "table": x, "index": row}),
        "unique_nodes": (lambda node: ops.unique_nodes([node], N), {"node": row}),
        "count_unique_nodes": (lambda node: ops.count_unique_nodes([node], N), {"node": row}),
        "in edges": (InEdges.checked, dict(graph)),
        "by source": (
            lambda ptr, targets, edge: ops.aggregate(
                x.clone().requires_grad_(), indptr(), indices(), by_source=(ptr, targets, edge)
            ),
            dict(zip(("ptr", "targets", "edge"), by_source, strict=True)),
        ),
        "linear": (ops.linear, {"inputs": [x], "weights": [weight], "node": row}),
        "activate": (ops.activate, {"x": torch.ones(N, 4), "drop": 0.5, "node": row}),
        "group_by_owner": (ops.group_by_owner, {"owner": row, "groups": N}),
        "minibatch_key": (ops.minibatch_key, {"seeds": row}),
    }


#: Ids that only key a random choice, or are only compared, may be any numbers.
_ANY = {
    ("drop_self_loops", "indices"),
    ("attention", "node"),
    ("linear", "node"),
    ("activate", "node"),
    ("minibatch_key", "seeds"),
}
#: Arrays that may have any length.
_ANY_LENGTH = {"index", "node", "seeds", "owner"}


def _is_harmless(name: str, key: str, kind: str) -> bool:
    if kind == "too short":
        return key in _ANY_LENGTH
    return kind in ("negative", "far") and (name, key) in _ANY


def run_all() -> None:
    print_accepted(_calls(), _is_harmless)


def test_every_damaged_array_is_refused() -> None:
    assert_all_refused("tests.ops.test_core")


#: Calls that read a table through ids: of edges, [3] of int64, or of one of the rows 0 to 3 each.
READS: dict[str, Callable[[Tensor, Tensor, Tensor], Any]] = {
    **{one: lambda *given, one=one: ops.aggregate(*given, reduce=one) for one in ops.REDUCTIONS},
    "weights": lambda x, indptr, ids: ops.aggregate(
        x, indptr, ids, edge_weight=torch.ones(3).requires_grad_()
    ),
    "row": lambda x, indptr, ids: ops.aggregate(x.detach(), indptr, torch.arange(3), row=ids),
    "targets": lambda x, indptr, ids: ops.aggregate_with_targets(x, indptr, ids).out,
    "by source": lambda _, indptr, ids: ops.transpose(indptr, ids, 4),
    "attention": lambda x, indptr, ids: (
        ops.attention(
            *(x, indptr, ids, torch.ones(1, 5).requires_grad_()),
            by_source=ops.transpose(indptr, ids.clone(), 4),
        ).out
    ),
    "gather": lambda x, _, ids: ops.gather_rows(x, ids),
    "dense": lambda x, _, ids: ops.linear(
        [nn.RowView(x.detach(), ids)], [torch.ones(2, 5).requires_grad_()], None
    ),
}
WRITES: dict[str, Callable[[Tensor], Any]] = {
    "data": lambda ids: ids.data.fill_(200),
    "numpy": lambda ids: ids.numpy().fill(-7),
}


@pytest.mark.parametrize("write", WRITES)
@pytest.mark.parametrize("read", READS)
def test_ids_are_checked_on_every_call(read: str, write: str) -> None:
    x, indptr, ids = torch.randn(4, 5, requires_grad=True), torch.tensor([0, 1, 3]), torch.tensor([0, 3, 2])
    found = READS[read](x, indptr, ids)
    WRITES[write](ids)
    with pytest.raises(IndexError, match=r"holds (200|-7), but"):
        READS[read](x, indptr, ids)
    if isinstance(found, Tensor) and found.requires_grad:  # what a backward pass reads too
        with pytest.raises(IndexError, match=r"holds (200|-7), but"):
            found.sum().backward()


def test_begins_of_rows_are_checked_on_every_call() -> None:
    x, indptr, ids = torch.ones(4, 5), torch.tensor([0, 1, 3]), torch.tensor([0, 3, 2])
    calls: list[Callable[[], Any]] = [
        lambda: ops.aggregate(x, indptr, ids),
        lambda: ops.transpose(indptr, ids, 4),
        lambda: ops.drop_self_loops(indptr, ids),
    ]
    for call in calls:
        call()
    indptr.data[1] = 1 << 40
    for call in calls:
        with pytest.raises(ValueError, match="must ascend"):
            call()


EDGES = torch.tensor([[0, 1, 2, 3], [1, 2, 3, 0]])
LOSSES: list[Callable[[Tensor], Tensor]] = [torch.sum, lambda out: out.pow(2).sum()]


@pytest.mark.parametrize("loss", LOSSES, ids=["constant gradient", "gradient of the output"])
@pytest.mark.parametrize("norm", [None, "batch_norm"])
@pytest.mark.parametrize("kind", [GraphSAGE, GCN, GIN, GAT])
def test_penalties_on_gradients_are_refused(
    kind: type[torch.nn.Module], norm: str | None, loss: Callable[[Tensor], Tensor]
) -> None:
    x = torch.randn(4, 5, requires_grad=True)
    model = accelerate(kind(5, 8, 2, 3, norm=norm))
    first = loss(model(x, EDGES))
    (grad,) = torch.autograd.grad(first, x, create_graph=True)
    (plain,) = torch.autograd.grad(loss(model(x, EDGES)), x)
    assert torch.allclose(grad, plain)
    penalised = first + grad.pow(2).sum()
    with pytest.raises(RuntimeError, match="no second derivatives"):
        torch.autograd.grad(penalised, list(model.parameters()), allow_unused=True, retain_graph=True)
    with pytest.raises(RuntimeError, match="no second derivatives"):
        penalised.backward()


# torch.func and forward-mode differentiation: native layers refuse them, accelerated ones leave
# them to PyG.


X, TRACED_EDGES = torch.randn(4, 5), torch.tensor([[0, 1, 2, 3], [1, 2, 3, 0]])
Model = Callable[[Tensor, Tensor], Tensor]


def dual(model: Model) -> Tensor:
    with forward_ad.dual_level():
        tangent = forward_ad.unpack_dual(model(forward_ad.make_dual(X, X), TRACED_EDGES)).tangent
    assert tangent is not None
    return tangent


def of_parameters(model: Any) -> Tensor:
    def loss(parameters: dict[str, Tensor]) -> Tensor:
        return torch.func.functional_call(model, parameters, (X, TRACED_EDGES)).square().sum()

    found = torch.func.grad(loss)(dict(model.named_parameters()))
    return torch.cat([one.flatten() for one in found.values()])


TRANSFORMS: dict[str, Callable[[Any], Tensor]] = {
    "grad": of_parameters,
    "jvp": lambda model: torch.func.jvp(lambda x: model(x, TRACED_EDGES), (X,), (X,))[1],
    "jacfwd": lambda model: torch.func.jacfwd(lambda x: model(x, TRACED_EDGES).sum(0))(X),
    "jacrev": lambda model: torch.func.jacrev(lambda x: model(x, TRACED_EDGES).sum(0))(X),
    "vmap": lambda model: torch.func.vmap(lambda x: model(x, TRACED_EDGES))(torch.stack([X, X])),
    "dual numbers": dual,
}


@pytest.mark.parametrize("transform", TRANSFORMS)
@pytest.mark.parametrize("kind", [pyg.GraphSAGE, pyg.GCN, pyg.GIN])
def test_accelerated_models_are_pygs_there(kind: type[torch.nn.Module], transform: str) -> None:
    reference = kind(5, 8, 2, 3).eval()
    ours = accelerate(copy.deepcopy(reference))
    wanted = TRANSFORMS[transform](reference)
    assert torch.allclose(TRANSFORMS[transform](ours), wanted, atol=1e-5)


@pytest.mark.parametrize("transform", TRANSFORMS)
@pytest.mark.parametrize("kind", [nn.SAGE, nn.GCN, nn.GIN, nn.GAT])
def test_native_models_refuse(kind: type[nn.NativeModel], transform: str) -> None:
    model = kind(5, 8, 2, 3).eval()
    with pytest.raises(ValueError, match=r"Conv does not support transforms of torch\.func"):
        TRANSFORMS[transform](model)
    parameters = {name: 2 * value for name, value in model.named_parameters()}
    assert torch.func.functional_call(model, parameters, (X, TRACED_EDGES)).shape == (4, 3)


@pytest.mark.parametrize("transform", [one for one in TRANSFORMS if one != "grad"])
def test_operators_refuse(transform: str) -> None:
    weight = torch.randn(3, 5)
    for operator in (lambda x, _: ops.linear([x], [weight]), lambda x, _: ops.activate(x * 1, relu=True)):
        with pytest.raises(RuntimeError, match=r"is transformed by torch\.func"):
            TRANSFORMS[transform](operator)
