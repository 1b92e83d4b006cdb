"""The hook with which the communicator sums the gradients of DistributedDataParallel."""

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
    """Returns a hook for ``DistributedDataParallel.register_comm_hook(None, hook)``.

    The hook replaces each gradient by a weighted sum over ranks, added in the order of ranks. A
    rank's gradient is multiplied by weight / (the sum of all ranks' weights). Where the loss is the
    mean over a rank's own seed nodes, and the weight is their number, every seed node of the step
    weighs the same. A rank of weight 0 (an empty minibatch) adds nothing, whatever its gradients
    hold. The bits do not depend on how DistributedDataParallel groups tensors into buckets, which
    changes after the first step and so after every resume.

    The sum runs on the thread of the backward pass, so that a failure ends that pass with the
    communicator's error. Give DistributedDataParallel ``process_group=communicator.group`` and
    ``broadcast_buffers=False``, and make it inside `Communicator.guard`. It is never freed if
    ``weight`` or ``header`` refers to it.

    Args:
        communicator: a communicator that nothing else uses at the same time.
        weight: returns this rank's weight in the current step, finite and not negative.
        header: returns the position of the step, for the check and for messages.
    """

    def hook(_: Any, bucket: Any) -> Any:
        total = communicator.all_reduce(bucket.buffer(), header(), weight=weight())
        done: Future[Tensor] = Future()
        done.set_result(total)
        return done

    # DistributedDataParallel compares annotations by identity, and postponed ones are strings.
    hook.__annotations__ = {"bucket": GradBucket, "return": torch.futures.Future[Tensor]}
    return hook
