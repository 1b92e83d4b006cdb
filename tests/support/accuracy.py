"""Comparison of our results with PyG's, both beside PyG's in float64.

Which sums a processor adds in which order decides the last bits of float32, of ours and of PyG's.
So no difference between the two is the right one to allow. Both are compared with the same
computation in float64, and ours may be off by a small multiple of what PyG's own float32 is off
by, and by some roundings.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

#: The error of ours may be the error of PyG's own result times this number,
MULTIPLE = 4
#: and this number of roundings of the size of the result more.
ROUNDINGS = 128
#: In float64 there is nothing more exact to compare with: the allowed part of the size.
OF_FLOAT64 = 1e-10
#: A result that cancels to less than this part of the largest counts as that part of it: a bias
#: before a batch norm, for example, has no gradient but roundings of the others.
LEAST = 0.1
#: The allowed part of the size where no result of PyG's in the same dtype is at hand.
ALONE = 4 * ROUNDINGS * torch.finfo(torch.float32).eps


class Outcome(NamedTuple):
    """The results of a call, by name: its outputs, and the gradients of parameters and inputs."""

    outputs: dict[str, Tensor]
    gradients: dict[str, Tensor]


def outcome(module: torch.nn.Module, call: Callable[..., Any], inputs: Sequence[Tensor]) -> Outcome:
    """Returns what ``call(module, *inputs)`` gives, a tensor or tensors by name. The gradients are
    those of a loss that weighs every element differently."""
    given = [one.detach().clone().requires_grad_() for one in inputs]
    out = call(module, *given)
    outputs = out if isinstance(out, Mapping) else {"output": out}
    leaves = dict(module.named_parameters()) | {f"input {at}": one for at, one in enumerate(given)}
    loss = torch.zeros((), dtype=torch.float64)
    for one in outputs.values():
        weights = torch.linspace(-1.0, 1.0, one.numel(), dtype=torch.float64).view_as(one)
        loss = loss + (one.double() * weights).sum()
    grads = torch.autograd.grad(loss, list(leaves.values()), allow_unused=True, materialize_grads=True)
    detached = {name: one.detach() for name, one in outputs.items()}
    return Outcome(detached, dict(zip(leaves, grads, strict=True)))


def assert_as_pygs(
    ours: torch.nn.Module,
    pygs: torch.nn.Module,
    our_call: Callable[..., Any],
    pyg_call: Callable[..., Any],
    *inputs: Tensor,
) -> None:
    """Fails unless a call of our module gives what PyG's gives, outputs and gradients."""
    exact = outcome(copy.deepcopy(pygs).double(), pyg_call, [one.double() for one in inputs])
    assert_as_accurate(outcome(ours, our_call, inputs), outcome(pygs, pyg_call, inputs), exact)


def assert_as_accurate(ours: Outcome, pygs: Outcome, exact: Outcome) -> None:
    """Fails unless our outcome is nearly as near the exact one as PyG's of the same dtype is."""
    assert list(ours.outputs) == list(exact.outputs)
    for found, theirs, wanted in zip(ours, pygs, exact, strict=True):
        sizes = {name: _largest(one) for name, one in wanted.items()}
        least = LEAST * max(sizes.values(), default=0.0)
        sizes = {name: max(size, least, 1e-30) for name, size in sizes.items()}
        errors = {name: _error(theirs[name], one) / sizes[name] for name, one in wanted.items()}
        worst = max(errors.values(), default=0.0)
        assert found.keys() == wanted.keys() == theirs.keys()
        for name, one in wanted.items():
            assert found[name].dtype is theirs[name].dtype and found[name].shape == one.shape, name
            floor = ROUNDINGS * torch.finfo(found[name].dtype).eps
            allowed = MULTIPLE * worst + max(floor, OF_FLOAT64)
            error = _error(found[name], one) / sizes[name]
            assert error <= allowed, f"{name}: off by {error:.2e}, PyG's by {errors[name]:.2e} ({worst:.2e})"


def _largest(values: Tensor) -> float:
    return float(values.double().abs().max()) if values.numel() else 0.0


def _error(found: Tensor, exact: Tensor) -> float:
    return _largest(found.detach().double() - exact.detach().double())


def distance(found: Tensor, wanted: Tensor, least: float = 1e-30) -> float:
    """Returns the largest difference, relative to the largest magnitude, or to ``least`` where all
    are smaller: sums that cancel have the rounding errors of sums that do not."""
    found, wanted = found.detach(), wanted.detach()
    assert found.shape == wanted.shape
    if wanted.numel() == 0:
        return 0.0
    scale = wanted.double().abs().max().clamp_min(least)
    return float((found.double() - wanted.double()).abs().max() / scale)
