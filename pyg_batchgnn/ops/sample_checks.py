"""The checks of what the sampling kernel reads.

The arrays of a graph are read once for as long as torch does not write to them.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from pyg_batchgnn.ops.checks import check_ids, check_indptr, check_range, check_vector
from pyg_batchgnn.ops.known import is_known_indptr


def check_relations(
    num_nodes: Sequence[int],
    indptr: Sequence[Tensor],
    indices: Sequence[Tensor],
    edge_ids: Sequence[Tensor],
    source: Sequence[int],
    target: Sequence[int],
) -> None:
    """Raises unless the in-edges of each relation fit its types."""
    if not len(indptr) == len(indices) == len(edge_ids) == len(source) == len(target):
        raise ValueError("every relation needs one indptr, indices, edge_ids, source and target")
    for number, (rows, sources, ids) in enumerate(zip(indptr, indices, edge_ids, strict=True)):
        check_indptr("indptr", rows, sources.numel())
        if rows.numel() != num_nodes[target[number]] + 1:
            raise ValueError(
                f"indptr of relation {number} is of {rows.numel() - 1} nodes, but its target type has "
                f"{num_nodes[target[number]]}"
            )
        check_ids("indices", sources, num_nodes[source[number]])
        if sources.dtype != indices[0].dtype:
            raise TypeError(f"indices of all relations must be {indices[0].dtype}, got {sources.dtype}")
        check_vector("edge_ids", ids)
        _check_length("edge_ids", ids, sources.numel())


def check_orders(order: Sequence[Tensor], weights: Sequence[Tensor], indices: Sequence[Tensor]) -> None:
    """Raises unless times and weights are those of the relations' edges."""
    for what, arrays, each in (("order", order, 2), ("weights", weights, 3)):
        if len(arrays) not in (0, each * len(indices)):
            raise ValueError(f"{what} must have {each} vectors for each of {len(indices)} relations")
    for number, sources in enumerate(indices):
        edges = sources.numel()
        if order:
            time, position = order[2 * number : 2 * number + 2]
            check_vector("times", time, (torch.int64,))
            _check_length("times", time, edges)
            check_ids("positions", position, edges, "edges")
            _check_length("positions", position, time.numel())
        if weights:
            sums, each_weight, positive = weights[3 * number : 3 * number + 3]
            for name, values in (("sums", sums), ("weights", each_weight)):
                check_vector(name, values, (torch.float64,))
                _check_length(name, values, edges)
            _check_length("sums", sums, each_weight.numel())
            check_vector("positive", positive, (torch.int64,))
            if positive.numel() not in (0, edges + 1):
                raise ValueError(f"positive has {positive.numel()} entries for {edges} edges")
            if positive.numel():
                _check_positive(positive, each_weight)


def check_seeds(node: Tensor, ptr: Tensor, keys: Tensor, num_nodes: Sequence[int]) -> None:
    """Raises unless the seeds of each minibatch and type are nodes of the type."""
    check_vector("seeds", node, (torch.int64,))
    check_vector("keys", keys, (torch.int64,))
    check_indptr("ptr", ptr, node.numel())
    if ptr.numel() != keys.numel() * len(num_nodes) + 1:
        raise ValueError(
            f"ptr has {ptr.numel()} entries for {keys.numel()} minibatches and {len(num_nodes)} types"
        )
    if len(num_nodes) == 1:
        return check_range("seeds", node, num_nodes[0])
    counts = ptr.diff()
    given = counts.nonzero().view(-1)  # few of many types
    limit = torch.tensor(num_nodes)[given % len(num_nodes)].repeat_interleave(counts[given])
    wrong = (node < 0) | (node >= limit)
    if bool(wrong.any()):
        at = int(wrong.nonzero()[0])
        raise IndexError(f"seeds hold {int(node[at])}, but their type has {int(limit[at])} nodes")
    return None


def check_details(
    example: Tensor | None, time: Tensor | None, excluded: Tensor | None, seeds: int, sizes: tuple[int, int]
) -> None:
    """Raises unless examples, times and excluded pairs fit the seeds.

    ``sizes``: the numbers of minibatches and of relations.
    """
    for name, values in (("examples", example), ("seed times", time)):
        if values is not None:
            check_vector(name, values, (torch.int64,))
            if values.numel() != seeds:
                raise ValueError(f"{values.numel()} {name} came for {seeds} seeds")
    if example is not None:
        check_range("examples", example, 1 << 31, "examples")
    if excluded is None:
        return
    if excluded.dtype != torch.int64 or excluded.dim() != 2 or excluded.size(0) != 5:
        raise ValueError(f"excluded must be [5, n] int64, got {excluded.dtype} {list(excluded.shape)}")
    for row, (size, what) in enumerate(zip(sizes, ("minibatches", "relations"), strict=True)):
        check_range(f"excluded[{row}]", excluded[row].contiguous(), size, what)


def check_rules(fanouts: Sequence[int], shares: Tensor | None, count: int) -> None:
    """Raises unless there is a fanout for each relation and hop."""
    if len(fanouts) != count or any(fanout < -1 for fanout in fanouts):
        raise ValueError(f"there must be {count} fanouts, each at least -1, got {list(fanouts)}")
    if shares is not None:
        check_vector("shares", shares, (torch.float64,))
        if shares.numel() != count:
            raise ValueError(f"{shares.numel()} shares came for {count} fanouts")


def _check_positive(positive: Tensor, weight: Tensor) -> None:
    """Raises unless ``positive`` counts the positive weights before each place, once as long as
    nothing is written to it."""
    total = int(positive[-1])
    if is_known_indptr(positive, total):
        return
    if int(positive[0]) != 0 or not torch.equal(positive[1:], (weight > 0).cumsum(0)):
        raise ValueError("positive must count the positive weights before each place; use WeightSums.of")
    check_indptr("positive", positive, total)


def _check_length(name: str, values: Tensor, length: int) -> None:
    if values.numel() not in (0, length):
        raise ValueError(f"{name} has {values.numel()} entries for {length} edges")
