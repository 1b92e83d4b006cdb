"""The functions and modules that compute each row from the same row of their inputs, and what
they do beside it: draw random numbers, write to tensors, or change the state of torch."""

from __future__ import annotations

import functools
import math
import operator
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import torch
import torch.nn.functional as F
import torch_geometric.nn
from torch import Tensor
from torch.overrides import resolve_name
from torch.utils._python_dispatch import TorchDispatchMode

from pyg_batchgnn.nn.models import is_row_wise_norm
from pyg_batchgnn.port.recording import Count, Form, tensors

#: Element by element. Layers hold functions of the first kind as attributes.
_ACTIVATIONS = """
    abs celu elu exp gelu hardsigmoid hardswish hardtanh leaky_relu logsigmoid mish relu relu6
    selu sigmoid silu sin softplus softsign square tanh tanhshrink
"""
_ELEMENTWISE = """
    absolute acos acosh add addcdiv addcmul alpha_dropout angle arctan arctan2 asin asinh atan
    atan2 atanh bitwise_and bitwise_not bitwise_or bitwise_xor bfloat16 bool ceil clamp clamp_max
    clamp_min clip clone contiguous copysign cos cosh deg2rad detach div divide double dropout eq
    erf erfc erfinv exp2 expm1 feature_dropout fix float float_power floor floor_divide fmax fmin
    fmod frac ge greater greater_equal gt half hardshrink heaviside hypot int isfinite isinf isnan
    ldexp le lerp less less_equal lgamma log log10 log1p log2 logaddexp logical_and logical_not
    logical_or logical_xor logit long lt masked_fill maximum minimum mul multiply nan_to_num ne
    neg negative not_equal positive pow prelu rad2deg real reciprocal remainder round rrelu rsqrt
    rsub sign sgn sinc sinh softshrink sqrt sub subtract tan threshold to true_divide trunc type
    type_as where xlogy __and__ __or__ __xor__ __invert__ __rsub__ __rpow__ __rdiv__ __rfloordiv__
    __rmod__ __pow__ __truediv__ __rtruediv__ __floordiv__ __mod__ __neg__ __abs__ __add__
    __radd__ __sub__ __mul__ __rmul__ __eq__ __ne__ __lt__ __le__ __gt__ __ge__ truediv floordiv
    mod and_ or_ xor invert zeros_like ones_like full_like
"""
_ALONG_FIRST = """
    softmax log_softmax softmin cumsum cumprod glu logcumsumexp sum mean amax amin max min argmax
    argmin prod logsumexp std var median all any sort argsort unbind squeeze unsqueeze cat concat
    concatenate stack flip flatten unflatten narrow index_select select
"""
_ALONG_SECOND = "chunk split tensor_split topk norm normalize kthvalue cosine_similarity"
#: Along the dimension ``dim``, which must not be that of the rows. The number is the place of it.
_ALONG = dict.fromkeys(_ALONG_FIRST.split(), 1) | dict.fromkeys(_ALONG_SECOND.split(), 2)
#: What `_ALONG` does without a dimension, if that is safe.
_DEFAULT_DIM = {"glu": -1, "topk": -1, "sort": -1, "argsort": -1, "normalize": 1, "cosine_similarity": 1}
GETITEM = {Tensor.__getitem__, operator.getitem}
INDEX_SELECTS = {Tensor.index_select, torch.index_select}

HasRows = Callable[[Any], bool]  # whether a tensor has the rows in question
_HOMES = (torch, Tensor, F, torch.special, torch._C._nn, operator)


def named(names: Iterable[str]) -> dict[Any, str]:
    found: dict[Any, str] = {}
    for name in names:
        for home in _HOMES:
            function = getattr(home, name, None)
            if callable(function):
                found[function] = name
    return found


ACTIVATIONS = named(f"{one}{end}" for one in _ACTIVATIONS.split() for end in ("", "_"))
_BY_ELEMENT = named((*_ACTIVATIONS.split(), *_ELEMENTWISE.split()))
_BY_DIM = named(_ALONG)
_PRODUCT = named(("linear", "matmul", "mm", "__matmul__"))  # of rows with a fixed matrix
RESHAPES = named(("view", "reshape", "repeat", "expand"))
_TRANSPOSES = named(("transpose", "swapaxes", "swapdims", "movedim", "permute"))
_CELL = {getattr(torch._VF, name) for name in ("gru_cell", "lstm_cell", "rnn_tanh_cell", "rnn_relu_cell")}
_CELL |= named(("gru_cell", "lstm_cell", "rnn_tanh_cell", "rnn_relu_cell")).keys()
#: Take rows [N, C, L], or [N, C, H, W], of as many dimensions. With fewer there is one row.
_BATCHED = dict.fromkeys((torch.conv1d, F.max_pool1d, torch.avg_pool1d, F.adaptive_avg_pool1d), 3)
_BATCHED |= {torch.conv2d: 4}
_LAYER_NORM = {F.layer_norm, torch.layer_norm, F.rms_norm, torch.rms_norm}
_GROUP_NORM, _EMBEDDING = {F.group_norm, torch.group_norm}, {F.embedding, torch.embedding}
#: Write to running statistics among their arguments.
KEEPS_STATISTICS = named(("batch_norm", "instance_norm"))
#: Draw from torch's generator, row by row: another number of rows draws other numbers.
DROPOUTS = named(("dropout", "alpha_dropout", "feature_alpha_dropout", "feature_dropout", "rrelu"))


def is_by_row(
    function: Any, args: Sequence[Any], kwargs: Mapping[str, Any], rows: HasRows, form: Form | None
) -> bool:
    """Returns whether each row of a function's result depends on the same row of its arguments
    alone. ``rows``: returns whether a tensor has these rows. ``form``: their number."""
    given = tensors((args, kwargs))
    if not given or not args or (function in (torch.where, Tensor.where) and len(given) < 2):
        return False
    if function in _BY_ELEMENT:
        return _broadcasts(given, rows)
    if function in GETITEM:
        return _keeps_rows(args[1], rows)
    if function is with_items:
        return _sets_in_rows(args[0], args[1], args[2], rows)
    name = _BY_DIM.get(function)
    if name is not None:
        return _is_along_columns(name, args, kwargs, given, rows)
    if function in _PRODUCT:
        is_matrix = len(given) > 1 and given[1].dim() in (1, 2)
        return is_matrix and rows(args[0]) and args[0].dim() >= 2 and not any(map(rows, given[1:]))
    if function in RESHAPES:
        return _keeps_first(RESHAPES[function], args, kwargs, form)
    if function in _TRANSPOSES:
        return _leaves_first(_TRANSPOSES[function], args, kwargs)
    if function in _LAYER_NORM:
        shape = args[1] if len(args) > 1 else kwargs.get("normalized_shape", ())
        return rows(args[0]) and len(shape) < args[0].dim() and not any(map(rows, given[1:]))
    if function is F.one_hot:  # without a number of classes it takes the largest value of all rows
        classes = args[1] if len(args) > 1 else kwargs.get("num_classes", -1)
        return rows(args[0]) and type(classes) is int and classes > 0
    if function is torch.einsum:
        return _sums_no_rows(args, rows)
    if function in _GROUP_NORM:
        return rows(args[0]) and args[0].dim() > 1 and not any(map(rows, given[1:]))
    if function in _BATCHED:
        return rows(args[0]) and args[0].dim() == _BATCHED[function] and not any(map(rows, given[1:]))
    if function in _CELL:
        return all(map(rows, tensors(args[:2]))) and not any(map(rows, tensors(args[2:])))
    if function in _EMBEDDING:
        index, table = (args[0], args[1]) if len(args) > 1 else (args[0], kwargs.get("weight"))
        if function is torch.embedding:
            index, table = table, index
        renormed = kwargs.get("max_norm") is not None or (len(args) > 3 and args[3] is not None)
        by_frequency = bool(kwargs.get("scale_grad_by_freq")) or (len(args) > 5 and bool(args[5]))
        return rows(index) and not rows(table) and not renormed and not by_frequency
    return False


_NAMED = {*_BY_ELEMENT, *_BY_DIM, *_PRODUCT, *RESHAPES, *_TRANSPOSES, *GETITEM}
#: Those that draw no random numbers, or draw them row by row.
KNOWN = {*_NAMED, *_EMBEDDING, *_LAYER_NORM, *_BATCHED, *_GROUP_NORM, *_CELL, *DROPOUTS}
KNOWN |= {torch.einsum, F.one_hot}


def why_whole(function: Callable[..., Any]) -> str:
    if function in _BY_ELEMENT:
        return "meets values of other rows"
    known = function in _NAMED or function in KEEPS_STATISTICS
    return "looks at all rows" if known else "is not known to compute each row by itself"


def _broadcasts(given: Sequence[Tensor], rows: Callable[[Any], bool]) -> bool:
    """Returns whether rows meet the same rows, and other tensors broadcast over them."""
    most = max(one.dim() for one in given)
    for one in given:
        aligned = one.dim() == most
        if rows(one) != (aligned and rows(one)):
            return False
        if not rows(one) and aligned and one.size(0) != 1:
            return False
    return True


def _sums_no_rows(args: Sequence[Any], rows: Callable[[Any], bool]) -> bool:
    equation, *rest = args
    operands = rest[0] if len(rest) == 1 and isinstance(rest[0], (list, tuple)) else rest
    if not isinstance(equation, str) or "->" not in equation:
        return False
    terms, result = equation.replace(" ", "").split("->")
    letter, each = result[:1], terms.split(",")
    if not letter.isalpha() or result.count(letter) != 1 or len(each) != len(operands):
        return False
    return all(
        one.startswith(letter) and one.count(letter) == 1 if rows(operand) else letter not in one
        for one, operand in zip(each, operands, strict=True)
    )


def _keeps_rows(index: Any, rows: Callable[[Any], bool]) -> bool:
    places = index if isinstance(index, tuple) else (index,)
    if any(map(rows, tensors(places))):
        return False
    first = places[0] if places else Ellipsis
    if first is Ellipsis:
        # [..., i] of a matrix takes the rows as long as it names fewer dimensions than there are.
        return not any(isinstance(one, Tensor) or one is None for one in places[1:])
    return isinstance(first, slice) and first == slice(None) and not any(one is None for one in places[:1])


def _sets_in_rows(x: Any, index: Any, value: Any, rows: HasRows) -> bool:
    """Returns whether a write sets columns of each row, or the elements of a mask of the rows."""
    dims = value.dim() if isinstance(value, Tensor) else 0
    if isinstance(index, Tensor):
        masks = rows(x) and rows(index) and index.dtype is torch.bool
        return masks and not rows(value) and dims <= x.dim() - index.dim()
    if not rows(x) or tensors(index) or not _keeps_rows(index, rows):
        return False
    return dims == x[index].dim() if rows(value) else dims < x[index].dim()


def _is_along_columns(
    name: str, args: Sequence[Any], kwargs: Mapping[str, Any], given: Sequence[Tensor], rows: HasRows
) -> bool:
    if name in ("max", "min") and len(args) > 1 and isinstance(args[1], Tensor):
        return _broadcasts(given, rows)
    if name == "cosine_similarity" and len({one.dim() for one in given}) > 1:
        return False
    every = name in ("cat", "concat", "concatenate", "stack", "cosine_similarity")
    if not (all(map(rows, given)) if every else rows(given[0]) and not any(map(rows, given[1:]))):
        return False
    named = [kwargs[key] for key in ("dim", "axis", "start_dim", "dims") if key in kwargs]
    by_place = [one for one in args[_ALONG[name] : _ALONG[name] + 1] if not isinstance(one, Tensor)]
    dim = next(iter((*named, *by_place)), _DEFAULT_DIM.get(name))
    if name == "softmax" and dim is None:
        dim = 1 if given[0].dim() == 2 else 0  # as torch chooses for a matrix
    dims = dim if isinstance(dim, (tuple, list)) else (dim,)
    most = given[0].dim() + (1 if name in ("stack", "unsqueeze") else 0)
    return bool(dims) and all(type(one) is int and one % max(1, most) != 0 for one in dims)


def _keeps_first(name: str, args: Sequence[Any], kwargs: Mapping[str, Any], form: Form | None) -> bool:
    x, shape = args[0], list(args[1:])
    if kwargs or not shape:
        return False
    if isinstance(shape[0], (tuple, list)):
        shape = list(shape[0])
    if not all(isinstance(one, int) for one in shape) or not shape:
        return False
    first = shape[0]
    if name == "repeat":
        return type(first) is int and first == 1 and len(shape) == x.dim()
    if name == "expand":
        return len(shape) == x.dim() and (first.form == form if isinstance(first, Count) else first == -1)
    if isinstance(first, Count):
        return first.form == form
    rest = math.prod(map(int, shape[1:]))
    return int(first) == -1 and rest > 0 and rest == x[:1].numel()


def _leaves_first(name: str, args: Sequence[Any], kwargs: Mapping[str, Any]) -> bool:
    x, dims = args[0], [*args[1:], *kwargs.values()]
    if name == "permute":
        order = dims[0] if dims and isinstance(dims[0], (tuple, list)) else dims
        return bool(order) and order[0] == 0
    return all(type(one) is int and one % x.dim() != 0 for one in dims)


def new_shape(args: Sequence[Any], rows: int) -> tuple[Any, ...]:
    x, shape = args[0], args[1:]
    nested = bool(shape) and isinstance(shape[0], (tuple, list))
    sizes = list(shape[0]) if nested else list(shape)
    if isinstance(sizes[0], Count):
        sizes[0] = rows
    return (x, tuple(sizes)) if nested else (x, *sizes)


LINEAR = (torch.nn.Linear, torch_geometric.nn.Linear)
MLP = torch_geometric.nn.MLP
PygBatchNorm = torch_geometric.nn.BatchNorm
#: Work element by element.
ACTIVATES = (torch.nn.ReLU, torch.nn.Dropout)
#: Compute each row by itself; batch normalisations do in evaluation, else they see the rows that
#: are computed.
_BY_ROW = (
    *(*LINEAR, *ACTIVATES, torch.nn.Identity, torch.nn.BatchNorm1d, PygBatchNorm),
    *(torch_geometric.nn.DiffGroupNorm, torch_geometric.nn.JumpingKnowledge),
)


def kind_of(module: torch.nn.Module) -> type[torch.nn.Module]:
    """Returns the class that the user knows of a module, which may have been made native."""
    return getattr(module, "stands_for", type(module))


#: Encoders of the columns of one kind, of pytorch-frame, that compute each row by itself.
_OF_COLUMNS = ("Embedding", "Linear", "Stack", "ExcelFormer", "Timestamp")


def encodes_columns(module: Any) -> bool:
    kind = kind_of(module)
    known = kind.__name__.removesuffix("Encoder") in _OF_COLUMNS
    return known and kind.__module__ == "torch_frame.nn.encoder.stype_encoder" and module.post_module is None


def computes_rows(module: torch.nn.Module) -> bool:
    """Returns whether a module that is captured as one step computes each row by itself."""
    kind = kind_of(module)
    if kind is MLP:
        norms: Any = module.norms
        return all(map(computes_rows, norms))
    if kind is torch_geometric.nn.InstanceNorm:
        return not takes_row_statistics(module)
    return kind in _BY_ROW or is_row_wise_norm(module) or encodes_columns(module)


def takes_row_statistics(module: torch.nn.Module) -> bool:
    """Returns whether a module normalises by statistics of the rows in this call."""
    normalises = isinstance(module, torch.nn.modules.batchnorm._NormBase)
    return normalises and (module.training or module.running_mean is None)


# Effects ##########################################################################################


#: Functions that change what tensors are, or compute gradients.
WRITES = {*named(("requires_grad_", "backward", "set_", "resize_", "register_hook", "retain_grad"))}
WRITES |= {torch.autograd.grad, torch.autograd.backward}
#: Functions that draw numbers if their dropout, at this place among the arguments, is not zero.
_ATTENTIONS: dict[Any, int] = {F.multi_head_attention_forward: 10, F.scaled_dot_product_attention: 4}


def name_of(function: Any) -> str:
    if isinstance(function, functools.partial):
        function = function.args[0]
    known = resolve_name(function) if callable(function) else None
    return known.rsplit(".", 1)[-1] if known else getattr(function, "__name__", repr(function))


def is_state(function: Any) -> bool:
    words = ("autocast", "grad_enabled", "inference_mode", "functorch", "saved_tensors")
    of_functorch = "_functorch" in (getattr(function, "__module__", None) or "")
    return function is None or of_functorch or any(one in name_of(function) for one in words)


def why_refused(function: Any) -> str:
    name = name_of(function)
    if function in WRITES:
        return f"{name} writes to a tensor or computes gradients"
    kinds = {
        "grad_enabled": "switches gradients",
        "inference_mode": "switches gradients",
        "autocast": "enters or leaves autocast",
        "autograd_function": "calls an autograd.Function",
        "checkpoint": "uses gradient checkpointing",
    }
    return f"it {next((kinds[one] for one in kinds if one in name), f'calls {name}, which is not known')}"


class _Generators(TorchDispatchMode):
    """Notices operators that draw from a random generator."""

    draws = False

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.draws = self.draws or torch.Tag.nondeterministic_seeded in func.tags
        return func(*args, **(kwargs or {}))


def draws(node: torch.fx.Node) -> bool:
    if node.target in _ATTENTIONS:
        place = _ATTENTIONS[node.target]
        rate: Any = node.args[place] if len(node.args) > place else node.kwargs.get("dropout_p", 0.0)
        return bool(rate != 0.0)
    given = node.args, node.kwargs
    args, kwargs = torch.fx.node.map_arg(given, lambda one: one.meta.get("example_value"))
    target: Any = getattr(Tensor, str(node.target)) if node.op == "call_method" else node.target
    near = (node, *node.all_input_nodes)
    modes = (getattr(one.meta.get("example_value"), "fake_mode", None) for one in near)
    mode = next((one for one in modes if one is not None), None)
    if mode is None:
        return True
    watch = _Generators()
    try:
        with torch.no_grad(), mode, watch:
            target(*args, **kwargs)
    except Exception:
        return True
    return watch.draws


# Functions that write to their first argument ####################################################


def with_items(x: Tensor, index: Any, value: Any) -> Tensor:
    made = x.clone()
    made[index] = value
    return made


def _on_a_copy(func: Any, x: Tensor, *args: Any, **kwargs: Any) -> Tensor:
    made = x.clone()
    func(made, *args, **kwargs)
    return made


_IN_PLACE = "add sub mul truediv floordiv mod pow xor and_ or_ lshift rshift matmul"
_OPERATORS = {
    getattr(operator, f"i{name.rstrip('_')}"): getattr(operator, name) for name in _IN_PLACE.split()
}


def out_of_place(func: Any, args: Any, kwargs: Any) -> tuple[Any, Any, Any] | None:
    """Returns the function and arguments that compute as a new tensor what ``func`` writes into its
    first argument; None if it does not write."""
    if func in _OPERATORS:
        return _OPERATORS[func], args, kwargs
    if func is operator.setitem:
        return with_items, args, kwargs
    name = name_of(func)
    if name.endswith("_") and not name.endswith("__"):
        for home in (Tensor, torch, F):
            if getattr(home, name, None) is func and callable(other := getattr(home, name[:-1], None)):
                return other, args, kwargs
        return functools.partial(_on_a_copy, func), args, kwargs
    code = getattr(func, "__code__", None)
    given = {} if code is None else dict(zip(code.co_varnames[: code.co_argcount], args, strict=False))
    if given.get("inplace"):
        return func, tuple({**given, "inplace": False}.values()), kwargs
    return (func, args, {**kwargs, "inplace": False}) if kwargs.get("inplace") else None
