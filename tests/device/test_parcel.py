"""Parcels: any tensors in one copy, with dtypes, shapes and values kept."""

from __future__ import annotations

import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor
from torch_geometric.data import Data

from pyg_batchgnn.device import CpuLane, Parcel, PinnedPool, map_batch, tensors_of
from pyg_batchgnn.ops import QuantizedTensor
from tests.support.loader_cases import equal

DTYPES = (torch.int64, torch.int32, torch.float32, torch.bfloat16, torch.bool, torch.uint8, torch.complex64)


def parcel() -> Parcel:
    lane = CpuLane()
    return Parcel(lane, PinnedPool(lane, 1 << 20))


@st.composite
def tensors(draw: st.DrawFn) -> Tensor:
    shape = draw(st.lists(st.integers(0, 5), max_size=3))
    made = torch.randint(0, 9, shape).to(draw(st.sampled_from(DTYPES)))
    return made.transpose(0, -1) if shape and draw(st.booleans()) else made


@given(sent=st.lists(tensors(), max_size=8), bound=st.sampled_from([None, 9, 1 << 31, (1 << 31) + 1]))
def test_any_tensors(sent: list[Tensor], bound: int | None) -> None:
    made = parcel()
    for one in [*sent, *sent]:
        assert made.add(one, bound) is one
    made.send()
    narrow = bound is not None and bound <= 1 << 31
    sizes = [one.numel() * (4 if narrow and one.dtype is torch.int64 else one.itemsize) for one in sent]
    assert made.nbytes == sum(-(-size // 16) * 16 for size in sizes)
    for one in sent:
        assert equal(made[one], one) and (not one.numel() or made[one].data_ptr() != one.data_ptr())


def test_what_is_not_plain_travels_alone() -> None:
    sparse, learned = torch.eye(3).to_sparse(), torch.ones(2, requires_grad=True)
    codes = QuantizedTensor(torch.ones(2, 3, dtype=torch.int8), torch.ones(2, 3))
    made = parcel()
    for one in (sparse, learned, codes):
        made.add(one)
    made.send()
    assert made[sparse].is_sparse and made[learned].requires_grad and isinstance(made[codes], QuantizedTensor)


def test_tensors_of_a_batch() -> None:
    """Each storage once; those inside of others and of lists too."""
    x = torch.arange(6.0).view(3, 2)
    table = QuantizedTensor(torch.ones(3, 2, dtype=torch.int8), torch.ones(2, 2))
    batch = Data(x=x, y=x[0], lists=[torch.ones(1), {"a": torch.ones(2)}], codes=table, words=["a"], number=3)
    batch.sparse = torch.eye(2).to_sparse()
    assert len(tensors_of(batch)) == 1 + 2 + 2 + 2
    map_batch(batch, lambda one: one * 2 if isinstance(one, Tensor) and one.is_floating_point() else one)
    assert batch.x[0, 1] == 2 and batch.lists[1]["a"].tolist() == [2, 2] and batch.words == ["a"]
