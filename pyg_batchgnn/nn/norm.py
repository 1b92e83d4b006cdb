"""The modules that follow a product: normalisation, ReLU and dropout."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch_geometric.nn.norm import BatchNorm as PygBatchNorm
from torch_geometric.nn.norm import LayerNorm as PygLayerNorm

from pyg_batchgnn import ops
from pyg_batchgnn.nn.linear import Linear, is_watched

#: Products of at least this many rows are normalised in fewer passes.
MANY_ROWS = 4096


class BatchNorm(torch.nn.BatchNorm1d):
    """A ``torch.nn.BatchNorm1d`` (Ioffe and Szegedy 2015) with the same arguments and
    ``state_dict``.

    A minibatch of fewer than two rows is normalised by the running statistics and does not change
    them. A recomputed forward pass (``torch.utils.checkpoint``) counts twice, as in torch.

    Args:
        relu: adds a ReLU in the same pass.
        device: the device, which must be the CPU.
        dtype: the dtype of parameters and buffers; statistics are at least float32.
    """

    def __init__(
        self,
        num_features: int,
        eps: float = 1e-5,
        momentum: float | None = 0.1,
        affine: bool = True,
        track_running_stats: bool = True,
        relu: bool = False,
        **factory: Any,
    ) -> None:
        super().__init__(num_features, eps, momentum, affine, track_running_stats, **factory)
        self.relu = relu

    @classmethod
    def sharing(cls, norm: torch.nn.BatchNorm1d, relu: bool = False) -> BatchNorm:
        options = norm.eps, norm.momentum, norm.affine, norm.track_running_stats, relu
        made = cls(norm.num_features, *options, device="meta")
        made.weight, made.bias = norm.weight, norm.bias
        made.running_mean, made.running_var = norm.running_mean, norm.running_var
        made.num_batches_tracked = norm.num_batches_tracked
        return made.train(norm.training)

    def forward(self, input: Tensor) -> Tensor:
        """Normalises [D, C] float32, float64 or bfloat16 rows; the input is not changed.

        Raises:
            TypeError, ValueError: another dtype or shape, or one row without running statistics.
        """
        ops.check_matrix("the input of BatchNorm", input)
        if input.size(1) != self.num_features:
            raise ValueError(
                f"the input of BatchNorm must have {self.num_features} columns, got shape {list(input.shape)}"
            )
        own = self._takes_own(input)
        if not own and self.running_mean is None and input.size(0):
            raise ValueError(
                "one row has no deviation, and there are no running statistics to normalise it by; "
                "use track_running_stats=True"
            )
        mean, variance = (None, None) if own else (self.running_mean, self.running_var)
        found = ops.batch_norm(input, self.weight, self.bias, mean, variance, self.eps, self.relu)
        if own:
            self._track(found.mean, found.variance, input.size(0))
        return found.y

    def of_product(self, linear: Linear, input: Tensor, *, after_relu: bool = False) -> Tensor:
        """Returns ``self(linear(input))`` for [D, K] rows, in fewer passes (`ops.linear_norm`) if
        there are many. ``after_relu``: the input is the result of a ReLU (`Linear.after_relu`)."""
        watched = is_watched(linear) or is_watched(self)
        fitting = input.dim() == 2 and input.size(1) == linear.in_features
        many = fitting and input.size(0) >= MANY_ROWS and self._takes_own(input)
        if not many or watched or ops.current_products() != "native":
            out: Tensor = self(linear.after_relu(input) if after_relu else linear(input))
            return out
        parameters = linear.weight, linear.bias, self.weight, self.bias
        found = ops.linear_norm(input, *parameters, eps=self.eps, relu=self.relu, after_relu=after_relu)
        self._track(found.mean, found.variance, input.size(0))
        return found.y

    def _takes_own(self, input: Tensor) -> bool:
        return (self.training or self.running_mean is None) and input.size(0) > 1

    @torch.no_grad()
    def _track(self, mean: Tensor, variance: Tensor, rows: int) -> None:
        if not self.training or self.running_mean is None:
            return
        unbiased = variance * (rows / (rows - 1))
        assert self.running_var is not None
        assert self.num_batches_tracked is not None
        self.num_batches_tracked.add_(1)
        factor = 1.0 / float(self.num_batches_tracked) if self.momentum is None else self.momentum
        for running, seen in ((self.running_mean, mean), (self.running_var, unbiased)):
            running.mul_(1.0 - factor).add_(seen.to(running.dtype), alpha=factor)

    def extra_repr(self) -> str:
        return f"{super().extra_repr()}, relu={self.relu}"


class ReLU(torch.nn.ReLU):
    """A ``torch.nn.ReLU`` that stores one bit per element for the backward pass. ``inplace``:
    overwrites the input; torch raises an error if another backward pass needs it."""

    def __init__(self, inplace: bool = True) -> None:
        super().__init__(inplace)

    def forward(self, input: Tensor) -> Tensor:
        """Returns the ReLU of a float32, float64 or bfloat16 tensor of any shape."""
        return ops.activate(input if self.inplace else input.clone(), relu=True)


class Dropout(torch.nn.Dropout):
    """A ``torch.nn.Dropout`` (Srivastava et al. 2014) with a key: whether an element is dropped is
    a function of (key, node, column). One bit per element is stored for the backward pass.

    >>> dropout = Dropout(0.5, inplace=False)
    >>> bool((dropout(data.x, key=1) == dropout(data.x, key=1)).all())
    True

    Args:
        p: the probability of zeroing an element, in [0, 1), rounded to a multiple of 2^-16.
        inplace: overwrites the input in training mode.

    Raises:
        ValueError: p is not in [0, 1).
    """

    def __init__(self, p: float = 0.5, inplace: bool = True) -> None:
        ops.check_drop(p)
        super().__init__(p, inplace)

    def forward(self, input: Tensor, key: int | None = None, node: Tensor | None = None) -> Tensor:
        """Returns the input [..., C] after dropout; in evaluation mode the input.

        Args:
            input: float32, float64 or bfloat16.
            key: from `pyg_batchgnn.ops.dropout_key`; None draws one from torch's default generator.
            node: [rows] int64, the id of each row; None for row numbers.
        """
        if not self.training or self.p == 0.0:
            return input
        key = ops.drawn_key() if key is None else key
        return ops.activate(input if self.inplace else input.clone(), drop=self.p, key=key, node=node)


def native_norm(norm: torch.nn.Module, relu: bool) -> torch.nn.Module:
    """Turns a batch normalisation of PyG into a native one; returns other modules as they are."""
    if type(norm) is PygBatchNorm and type(norm.module) is torch.nn.BatchNorm1d:
        norm.module = BatchNorm.sharing(norm.module, relu)
    return norm


# Normalisation of rows ############################################################################


class RowNorm(NamedTuple):
    """The arguments of `ops.layer_norm` after x."""

    weight: Tensor | None
    bias: Tensor | None
    eps: float


def row_norm(norm: torch.nn.Module, x: Tensor) -> RowNorm | None:
    """Returns the arguments for `ops.layer_norm` that compute ``norm(x)``. None if the module must
    be called: it is no layer normalisation of rows, has hooks, or `row_norm_of` refuses x."""
    one: Any = norm
    if type(norm) is torch.nn.LayerNorm and not is_watched(norm):
        return row_norm_of(x, one.normalized_shape, one.weight, one.bias, one.eps)
    if type(norm) is PygLayerNorm and one.mode == "node" and not is_watched(norm):
        return row_norm_of(x, (one.in_channels,), one.weight, one.bias, one.eps)
    return None


def row_norm_of(
    input: Tensor,
    normalized_shape: Sequence[int],
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    eps: float = 1e-5,
    cudnn_enable: bool = True,
) -> RowNorm | None:
    """Returns the arguments for `ops.layer_norm` that compute ``torch.layer_norm`` of these
    arguments. None leaves it to torch: the input is no dense matrix of a supported dtype or is
    transformed, autocast would change its dtype, or torch would raise an error."""
    del cudnn_enable
    columns = [one for one in (weight, bias) if one is not None]
    if not all(type(one) in (Tensor, torch.nn.Parameter) for one in (input, *columns)):
        return None
    wide = torch.float32 if input.dtype is torch.bfloat16 else input.dtype
    fits = (
        input.dtype in ops.FLOATS
        and input.dim() == 2
        and tuple(normalized_shape) == (input.size(1),)
        and all(one.shape == (input.size(1),) for one in columns)
        and {one.dtype for one in columns} in (set(), {input.dtype}, {wide})
        and all(one.is_cpu and one.layout is torch.strided for one in (input, *columns))
    )
    if not fits or torch.is_autocast_enabled("cpu") or ops.is_transforming():
        return None
    return RowNorm(weight, bias, eps)
