"""The job of the ranks in test_recorded_calls.py."""

from __future__ import annotations

import copy

import torch
import torch._dynamo  # DistributedDataParallel imports it: once here, not in every rank
import torch_geometric.nn as pyg
from torch import Tensor
from torch.nn.parallel import DistributedDataParallel

from pyg_batchgnn.comm import Communicator, Header, MessageKind, gradient_hook
from pyg_batchgnn.port import accelerate
from tests.support.recorded_models import assert_trimmed, batches


class Net(torch.nn.Module):
    """Two convolutions with a skip connection and a norm."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = pyg.SAGEConv(6, 8), pyg.GraphConv(8, 5)
        self.skip, self.norm = torch.nn.Linear(6, 8), torch.nn.LayerNorm(8)

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        x = self.norm(self.first(x, edge_index) + self.skip(x)).relu()
        return self.second(x, edge_index)


def gradients_are_means() -> None:
    """The hook of a communicator has each seed of all ranks weigh the same."""
    torch.manual_seed(0)
    plain = Net().double()
    ours = accelerate(copy.deepcopy(plain))
    given = batches()
    with Communicator.create("gradients", timeout=60) as comm:
        with comm.guard(MessageKind.CONTROL):
            parallel = DistributedDataParallel(ours, process_group=comm.group, broadcast_buffers=False)
        state = {"weight": 0.0, "step": 0}
        header = lambda: Header(MessageKind.GRADIENTS, 0, int(state["step"]))  # noqa: E731
        parallel.register_comm_hook(None, gradient_hook(comm, lambda: state["weight"], header))
        for step in range(2):
            batch = given[step + comm.rank]
            state.update(weight=batch.batch_size, step=step)
            ours.zero_grad()
            parallel(batch).square().mean().backward()
            rows = [plain(one.x, one.edge_index)[: one.batch_size] for one in given[step : step + comm.size]]
            wanted = torch.autograd.grad(torch.cat(rows).square().mean(), list(plain.parameters()))
            for parameter, grad in zip(ours.parameters(), wanted, strict=True):
                assert parameter.grad is not None and torch.allclose(parameter.grad, grad, atol=1e-12)
    assert_trimmed(ours, [1, 0])
