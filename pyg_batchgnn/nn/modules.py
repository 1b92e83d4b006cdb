"""The modules around convolutions: linear layers and the choice of their products, normalisation,
ReLU and dropout.
"""

from __future__ import annotations

import math
import timeit
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
import torch_geometric.nn
from torch import Tensor
from torch_geometric.nn.dense.linear import is_uninitialized_parameter
from torch_geometric.nn.norm import BatchNorm as PygBatchNorm
from torch_geometric.nn.norm import LayerNorm as PygLayerNorm

from pyg_batchgnn import ops
from pyg_batchgnn.nn.inputs import Rows, check_input
from pyg_batchgnn.ops import ProductsName, set_products


class Linear(torch.nn.Linear):
    """A ``torch.nn.Linear`` with the same constructor, initialisation and ``state_dict``, computed
    by `ops.linear`.

    Its bits do not depend on the number of threads. Under ``torch.autocast("cpu",
    torch.bfloat16)`` products and results are bfloat16, with float32 sums. Otherwise they have the
    dtype of the weights; the input may be float32, bfloat16 or float16.
    """

    @classmethod
    def sharing(cls, linear: torch.nn.Linear) -> Linear:
        made = cls(linear.in_features, linear.out_features, linear.bias is not None, device="meta")
        made.weight, made.bias = linear.weight, linear.bias
        return made

    def forward(self, input: Tensor) -> Tensor:
        """Returns the product, [..., out_features], of an input [..., in_features]."""
        return self._product(input)

    def with_relu(self, input: Tensor) -> Tensor:
        """Returns ``relu(self(input))``, in one pass if the layer has no hooks."""
        return self(input).relu() if is_watched(self) else self._product(input, relu=True)

    def after_relu(self, input: Tensor) -> Tensor:
        """Returns ``self(input)`` for a ReLU's result, without gradients of its zeros."""
        result: Tensor = self(input) if is_watched(self) else self._product(input, after_relu=True)
        return result

    def _product(self, input: Tensor, *, relu: bool = False, after_relu: bool = False) -> Tensor:
        if input.size(-1) != self.in_features:
            raise ValueError(
                f"the input has {input.size(-1)} columns (shape {list(input.shape)}), the layer takes "
                f"{self.in_features}"
            )
        matrix = input if input.dim() == 2 else input.reshape(-1, self.in_features)
        rows = math.prod(input.shape[:-1])
        y = ops.linear([matrix], [self.weight], self.bias, num_rows=rows, relu=relu, after_relu=after_relu)
        return y.view(*input.shape[:-1], self.out_features)


def is_watched(module: torch.nn.Module) -> bool:
    """Returns whether a module must be called, and not fused: it (or torch as a whole) has hooks,
    it was compiled, or its ``forward`` was replaced."""
    hooks = (
        torch.nn.modules.module._has_any_global_hook(),
        "forward" in vars(module),
        vars(module).get("_compiled_call_impl"),
        module._forward_hooks,
        module._forward_pre_hooks,
        module._backward_hooks,
        module._backward_pre_hooks,
    )
    return any(hooks)


class LazyLinear(torch.nn.LazyLinear, Linear):
    """A `Linear` that learns its number of input columns from the first call."""

    cls_to_become = Linear


def linear_of(in_features: int, out_features: int) -> Linear:
    """Returns a new `Linear`, or for -1 a `LazyLinear`."""
    return LazyLinear(out_features) if in_features == -1 else Linear(in_features, out_features)


def set_width(rows: Rows | None, *linears: Any) -> None:
    """Initialises lazy linear layers of PyG for input ``rows``, as PyG does at the first call."""
    for linear in linears:
        if linear is not None and rows is not None and is_uninitialized_parameter(linear.weight):
            linear.initialize_parameters(linear, (rows,))


def widest(module: torch.nn.Module) -> int:
    """Returns the largest number of columns of a product in a module."""
    found = [1]
    for part in module.modules():
        unknown = getattr(part, "out_channels", getattr(part, "out_features", 1))
        for one in part.parameters(recurse=False):
            found += [unknown] if is_uninitialized_parameter(one) else list(one.shape[:1])
    return max(found)


class HeteroDictLinear(torch_geometric.nn.HeteroDictLinear):
    """PyG's `HeteroDictLinear` with the same arguments, initialisation and ``state_dict``. It
    brings the features of all node types to one width, and reads those of a native minibatch in
    place: ``project(features_by_type(minibatch))``.

    >>> project = HeteroDictLinear({"paper": 4, "author": 4}, 16)
    >>> project(typed.x_dict)["author"].shape
    torch.Size([50, 16])

    Args:
        in_channels: columns of all types, or a dict by type; -1 takes them from the first call.
        out_channels: columns of the results.
        types: the names of the types, if ``in_channels`` is a number.
        **kwargs: of PyG's `Linear`: ``bias``, ``weight_initializer``, ``bias_initializer``.
    """

    def forward(self, x_dict: Mapping[str, Rows], *, relu: bool = False) -> dict[str, Tensor]:
        """Returns [N, out_channels] by type that has a layer, from [N, F] tensors or `RowView`."""
        lins = self.lins.items()
        return {name: self._product(lin, x_dict[name], relu) for name, lin in lins if name in x_dict}

    def _product(self, lin: Any, x: Rows, relu: bool) -> Tensor:
        if is_watched(lin):
            out: Tensor = lin(x if isinstance(x, Tensor) else x.gather())
            return out.relu() if relu else out
        check_input(x, lin.in_channels, ops.compute_dtype(lin.weight))
        return ops.linear([x], [lin.weight], lin.bias, num_rows=x.size(0), relu=relu)

    @torch.no_grad()
    def initialize_parameters(self, module: Any, input: tuple[Mapping[str, Rows], ...]) -> None:
        del module
        for name, x in input[0].items():
            if name in self.lins and is_uninitialized_parameter(self.lins[name].weight):
                self.lins[name].initialize_parameters(None, (x,))
                self.lins[name].reset_parameters()  # a second time, as PyG does
        if not any(is_uninitialized_parameter(lin.weight) for lin in self.lins.values()):
            self._hook.remove()
            del self._hook
        self.in_channels = {name: lin.in_channels for name, lin in self.lins.items()}


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


# Matrix products ##################################################################################


#: The products of torch are chosen if they are faster by this factor.
MARGIN = 1.1

_MOST_ROWS = 16384  # of a timed product, so that reading its weights takes no share of the time
_KEY = 1


@dataclass(frozen=True)
class ProductChoice:
    """The result of `probe_products`: the faster matrix products, and the measured rates."""

    name: ProductsName  # "native" or "torch"
    # Rates: 10^9 floating-point operations per second, dense, with bias, ReLU and dropout.
    native_rate: float
    torch_rate: float
    threads: int  # of the measurement
    torch_same_bits: bool  # whether torch's results had the same bits on one and all threads

    def __str__(self) -> str:
        rates = {"native": f"{self.native_rate:.3g} GF/s", "torch": f"{self.torch_rate:.3g} GF/s"}
        chosen, ((name, rate),) = rates.pop(self.name), rates.items()
        threads = "1 thread" if self.threads == 1 else f"{self.threads} threads"
        depends = "" if self.torch_same_bits else "; torch's bits depend on the number of threads"
        return f"matrix products: {self.name}, {chosen} ({name} {rate}), {threads}{depends}"


class use_products:  # noqa: N801 (called like a function)
    """Sets the matrix products of `ops.linear`, "native" or "torch".

    >>> with use_products("torch"):  # without ``with``, for good
    ...     rows = Linear(8, 3)(data.x)
    """

    def __init__(self, choice: ProductsName | ProductChoice) -> None:
        self._before = set_products(choice.name if isinstance(choice, ProductChoice) else choice)

    def __enter__(self) -> None:
        pass

    def __exit__(self, *_: object) -> None:
        set_products(self._before)


def default_products() -> ProductsName:
    """Returns the products for this processor: "native" with AVX2 or AVX-512, else "torch"."""
    return "native" if ops.simd_level() else "torch"


def probe_products(
    shapes: Sequence[tuple[int, int, int]], dtype: torch.dtype = torch.float32, threads: int | None = None
) -> ProductChoice:
    """Times both kinds of matrix products on the shapes of a model's layers, for about a second.
    The products in use do not change: see `use_products`.

    torch's are chosen if they are faster by `MARGIN`, and if results and gradients have the same
    bits on one thread and on ``threads``. On a busy machine two calls may choose differently.

    Args:
        shapes: (rows, columns of the input, columns of the output) of each product.
        dtype: the dtype to compute in.
        threads: the number of threads; None for torch's.
    """
    if not shapes:
        raise ValueError("there is no shape to probe; give (rows, columns, outputs) of the model's layers")
    threads = threads or torch.get_num_threads()
    cases = [_Case(rows, columns, outputs, dtype) for rows, columns, outputs in shapes]
    before = torch.get_num_threads()
    try:
        torch.set_num_threads(threads)
        native_rate, torch_rate = _rate(cases, "native"), _rate(cases, "torch")
        same = _same_bits(cases, threads)
    finally:
        torch.set_num_threads(before)
    name: ProductsName = "torch" if torch_rate > MARGIN * native_rate and same else "native"
    return ProductChoice(name, native_rate, torch_rate, threads, same)


class _Case:
    def __init__(self, rows: int, columns: int, outputs: int, dtype: torch.dtype) -> None:
        generator = torch.Generator().manual_seed(0)
        rows = max(1, min(rows, _MOST_ROWS))
        weights = torch.float64 if dtype is torch.float64 else torch.float32
        self.x = torch.randn(rows, columns, generator=generator).to(dtype)
        self.weight = torch.randn(outputs, columns, generator=generator).to(weights).requires_grad_()
        self.bias = torch.zeros(outputs, dtype=weights)
        self.operations = 2 * rows * columns * outputs

    def run(self) -> Tensor:
        return ops.linear(
            [self.x], [self.weight], self.bias, relu=True, drop=0.5, key=_KEY, out_dtype=self.x.dtype
        )


def _rate(cases: Sequence[_Case], name: ProductsName) -> float:
    with use_products(name), torch.no_grad():
        for case in cases:
            case.run()
        seconds = sum(max(1e-9, min(timeit.repeat(case.run, repeat=3, number=1))) for case in cases)
    return sum(case.operations for case in cases) / seconds / 1e9


def _same_bits(cases: Sequence[_Case], threads: int) -> bool:
    def answers(count: int) -> list[Tensor]:
        torch.set_num_threads(count)
        found = []
        for case in cases:
            y = case.run()
            found += [y.detach(), *torch.autograd.grad(y.float().sum(), [case.weight])]
        return found

    with use_products("torch"), torch.enable_grad():
        return all(torch.equal(one, other) for one, other in zip(answers(1), answers(threads), strict=True))
