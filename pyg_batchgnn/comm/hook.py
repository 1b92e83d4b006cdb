"""Gradients of DistributedDataParallel, summed by the communicator."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch._C._distributed_c10d import GradBucket
from torch.futures import Future

from pyg_batchgnn.comm.communicator import Communicator
from pyg_batchgnn.comm.header import Header, MessageKind

Hook = Callable[[Any, GradBucket], Future[Tensor]]


def gradient_hook(
    communicator: Communicator,
    weight: Callable[[], float],
    header: Callable[[], Header] = lambda: Header(MessageKind.GRADIENTS),
) -> Hook:
    """A hook for ``DistributedDataParallel.register_comm_hook(None, hook)``.

    A gradient becomes the sum over ranks of its gradients times weight / (sum of all ranks' weights), added
    in the order of ranks. With the mean over a rank's own seed nodes as its loss and their number as its
    weight, every seed node of the step weighs the same. What a rank of weight 0 (an empty minibatch) computed
    counts nothing, NaN or not. The bits do not depend on how DistributedDataParallel groups tensors into
    buckets, which it changes after the first step and so after every resume.

    The sum is taken on the thread that runs the backward pass, so that a failure ends that pass with the
    communicator's error. Give DistributedDataParallel ``process_group=communicator.group`` and
    ``broadcast_buffers=False``, and make it inside `Communicator.guard`.

    Args:
        communicator: one that nothing else uses meanwhile.
        weight: this rank's weight in the current step, finite and not negative.
        header: where the step stands, for the check and for messages.
    """

    def hook(_: Any, bucket: Any) -> Any:
        total = communicator.all_reduce(bucket.buffer(), header(), weight=weight())
        done: Future[Tensor] = Future()
        done.set_result(total)
        return done

    # DistributedDataParallel compares these by identity, which the words of a postponed annotation fail.
    hook.__annotations__ = {"bucket": GradBucket, "return": torch.futures.Future[Tensor]}
    return hook
