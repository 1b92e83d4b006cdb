"""The recording of a ``forward``: one plain call, and every function and module that it calls.

The call is real. So the type and the presence of a tensor, the truth of an option and the keys of
a dict are what they are, and the graph holds as long as they stay the same (`signature`). What
depends on the values of a batch cannot be recorded and is refused, with the file and the line.
"""

from __future__ import annotations

import copy
import enum
import operator
import random
import sys
import threading
from collections import deque
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode, resolve_name
from torch_geometric.nn.conv import HeteroConv, MessagePassing

from pyg_batchgnn.port import rules
from pyg_batchgnn.port.values import (
    FIXED,
    WHOLE,
    Axis,
    Count,
    EdgeIndex,
    Edges,
    Fixed,
    Form,
    Nodes,
    Refusal,
    SeedIds,
    Whole,
    axis_cut,
    form_of,
)


@dataclass(frozen=True)
class Ref:
    """A value of the recording, in the place of the tensor or the number."""

    number: int


@dataclass(frozen=True)
class ModuleCall:
    """The call of a module as one step. ``path``: its name in the model; empty for the model itself."""

    path: str


class Way(enum.Enum):
    """How the first rows of a convolution are computed."""

    NATIVE = "native"
    TRIMMED = "trimmed"


#: Returns the way of a convolution, or the reason why it computes all rows, from its arguments: rows,
#: edges and values of edges.
Judge = Callable[[torch.nn.Module, Any, Any, Mapping[str, Any]], "Way | str"]


@dataclass
class Call:
    """A recorded call.

    Attributes:
        target: a function, or a module by its path.
        args, kwargs: the arguments, with a `Ref` for each value, and a `Count` for each number of
            rows that a form tells.
        results: the values that it made, in the order in which `flat` finds them.
        by_row: each row of the results follows from the same row of the arguments.
        message_passing: the call is one of a convolution over the edges of the batch, which may be
            asked for its first rows: a native one, or another that is trimmed. None for all others.
        names: the names of the positional arguments of a convolution.
        names_of_results: the node types of the results of a `HeteroConv`, in their order.
        layer: how many message passing layers were recorded before.
        where: the file and line of the user's code.
    """

    target: Callable[..., Any] | ModuleCall
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    results: list[int]
    by_row: bool
    message_passing: Way | None
    layer: int
    where: str
    names: tuple[str, ...] = ()
    names_of_results: tuple[str, ...] = ()


@dataclass(frozen=True)
class Guard:
    """A comparison of a sum of counters with zero that ``forward`` made, and what came out."""

    form: Form
    compare: Callable[[int, int], bool]
    found: bool


@dataclass
class Recording:
    """What one plain call of a ``forward`` did.

    Attributes:
        axes: what the rows of each value are.
        inputs: the numbers of the values that are inputs, in the order of `flat`.
        parameters: by number, the place of a parameter, a buffer or a tensor of a module: the path
            of the module and the name of the attribute.
        output: what ``forward`` returned, with a `Ref` for each tensor.
        inlined: the paths of the modules whose ``forward`` was recorded call by call.
        reads: the names of the attributes that were read, by the path of the module.
        notes: what computes all rows, with the reason, by the place in the user's code.
    """

    calls: list[Call] = field(default_factory=list)
    axes: list[Axis] = field(default_factory=list)
    inputs: list[int] = field(default_factory=list)
    parameters: dict[int, tuple[str, str]] = field(default_factory=dict)
    output: Any = None
    guards: list[Guard] = field(default_factory=list)
    inlined: list[str] = field(default_factory=list)
    reads: dict[str, set[str]] = field(default_factory=dict)
    notes: dict[str, str] = field(default_factory=dict)


def mapped(tree: Any, change: Callable[[Any], Any]) -> Any:
    """Returns nested tuples, lists, dicts and slices with every leaf changed."""
    if isinstance(tree, tuple):
        made = [mapped(one, change) for one in tree]
        if type(tree) in (tuple, torch.Size):
            return tuple(made)
        return type(tree)(*made) if hasattr(tree, "_fields") else type(tree)(made)
    if isinstance(tree, list):
        return [mapped(one, change) for one in tree]
    if isinstance(tree, dict):
        return {name: mapped(one, change) for name, one in tree.items()}
    if isinstance(tree, slice):
        return slice(*(mapped(one, change) for one in (tree.start, tree.stop, tree.step)))
    return change(tree)


def flat(tree: Any) -> list[Tensor]:
    """Returns the tensors in a tree, in the order in which `mapped` meets them."""
    found: list[Tensor] = []

    def see(leaf: Any) -> Any:
        if isinstance(leaf, Tensor):
            found.append(leaf)
        return leaf

    mapped(tree, see)
    return found


# What is refused ##################################################################################

_VALUES = ("__bool__ __int__ __float__ __complex__ __index__ item tolist numpy __array__ nonzero unique "
           "unique_consecutive masked_select equal allclose is_nonzero data_ptr storage untyped_storage "
           "__contains__ cpu cuda pin_memory share_memory_").split()  # fmt: skip
_LENGTHS = ("__len__", "__iter__")
_CHANGES = (
    "__setitem__",
    "requires_grad_",
    "backward",
    "set_",
    "resize_",
    "register_hook",
    "retain_grad",
    "copy_",
)
_METADATA = ("dim", "ndimension", "is_floating_point", "is_complex", "is_contiguous", "get_device", "is_sparse",
             "element_size", "is_signed", "stride", "has_names", "nelement", "numel", "is_inference")  # fmt: skip
_PROPERTIES = ("ndim", "dtype", "device", "is_cuda", "is_cpu", "requires_grad", "layout", "is_sparse", "grad_fn",
               "is_leaf", "names", "is_quantized", "is_sparse_csr", "is_meta", "itemsize", "is_mps", "is_xla",
               "is_nested", "is_mkldnn", "_version", "grad")  # fmt: skip
_FACTORIES = ("zeros ones empty full rand randn randint randperm arange linspace logspace eye tensor as_tensor "
              "from_numpy zeros_like ones_like empty_like full_like rand_like randn_like randint_like new_zeros "
              "new_ones new_empty new_full new_tensor scalar_tensor normal bernoulli multinomial poisson "
              "empty_strided tril_indices triu_indices complex").split()  # fmt: skip


def _functions(names: Sequence[str], homes: Sequence[Any] = (torch, Tensor)) -> set[Any]:
    return {function for home in homes for name in names if callable(function := getattr(home, name, None))}


_READS_VALUES, _READS_LENGTH = _functions(_VALUES), _functions(_LENGTHS, (Tensor,))
_WRITES, _READS_METADATA = _functions(_CHANGES), _functions(_METADATA) - {Tensor.numel, torch.numel}
_NUMELS = {Tensor.numel, torch.numel, Tensor.nelement}
_READS_METADATA |= {getattr(Tensor, name).__get__ for name in _PROPERTIES if hasattr(Tensor, name)}
_READS_METADATA |= {torch.is_tensor, torch.is_floating_point, torch.is_grad_enabled, torch.get_default_dtype,
                    torch.is_autocast_enabled}  # fmt: skip
_MAKES = _functions(_FACTORIES)
_SHAPE, _SIZE = Tensor.shape.__get__, Tensor.size  # type: ignore[attr-defined]
_GRAD_MODE = {torch._C._set_grad_enabled}


class _Mode(TorchFunctionMode):
    def __init__(self, recorder: Recorder) -> None:
        super().__init__()
        self._recorder = recorder

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        del types
        return self._recorder.on_function(func, args, dict(kwargs or {}))


class Recorder:
    """Records a plain call of a model.

    Args:
        model: the model.
        judge: tells how convolutions are computed.
        leaves: the paths of modules that are called as one step, though they are no such kind.
    """

    def __init__(
        self,
        model: torch.nn.Module,
        judge: Judge,
        leaves: Sequence[str] = (),
    ) -> None:
        self.model, self.found = model, Recording()
        self._judge, self._leaves = judge, set(leaves)
        self._paths = {id(one): path for path, one in model.named_modules()}
        self._numbers: dict[int, int] = {}
        #: Keeps the tensors alive, so that their ids stay theirs.
        self._held_by_number: list[Any] = []
        self._poisoned: dict[int, str] = {}
        self._layer, self.is_suspended = 0, False
        self._grad = torch.is_grad_enabled()
        self._autocast = _autocast_state()
        for path, module in model.named_modules():
            for name, one in _own_tensors(module):
                if one is not None and id(one) not in self._numbers:
                    number = self._new(one, FIXED)
                    self.found.parameters[number] = (path, name)

    # Values ---------------------------------------------------------------------------------------

    def _new(self, value: Any, axis: Axis) -> int:
        number = len(self.found.axes)
        self.found.axes.append(axis)
        self._numbers[id(value)] = number
        self._held_by_number.append(value)
        return number

    def add_input(self, value: Tensor, axis: Axis) -> Tensor:
        """Registers a tensor as the next input. Returns what stands for it: another object if it is
        known as something else, such as the rows of another type."""
        if id(value) in self._numbers:
            value = value.view_as(value)
        self.found.inputs.append(self._new(value, axis))
        return value

    def _axis(self, value: Any) -> Axis:
        number = self._numbers.get(id(value))
        return WHOLE if number is None else self.found.axes[number]

    def _ref(self, leaf: Any) -> Any:
        if isinstance(leaf, Tensor):
            number = self._numbers.get(id(leaf))
            if number is None:
                raise Refusal(f"it uses a tensor that is neither an input nor a parameter{_at()}")
            if number in self._poisoned:
                raise Refusal(self._poisoned[number])
            return Ref(number)
        if isinstance(leaf, Count) and leaf.form is None:
            return Ref(leaf.number) if leaf.number is not None else leaf
        return leaf

    # Functions ------------------------------------------------------------------------------------

    def on_function(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if func in _READS_METADATA:
            return func(*_plain(args), **_plain(kwargs))
        if func == _SHAPE:  # made anew at every access
            return self._shape(args[0])
        if func is _SIZE:
            shape = self._shape(args[0])
            dim = args[1] if len(args) > 1 else kwargs.get("dim")
            return shape if dim is None else shape[dim]
        if func in _NUMELS:
            return self._numel(args[0])
        self._check_function(func, args, kwargs)
        if func in _GRAD_MODE:
            return func(*args, **kwargs)
        return self._record_function(func, args, kwargs)

    def _record_function(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        kept = _inplace(func, args, kwargs)
        if kept is not None:
            self._check_written(args[0] if args else kwargs["input"])
        drops = (func if kept is None else kept[0]) in rules.DROPOUTS
        state = None if drops else torch.get_rng_state()
        if drops:  # what is dropped differs from call to call: compare without
            first = args[0] if args else kwargs["input"]
            result = first if kept is not None else first.clone()
        else:
            result = func(*_plain(args), **_plain(kwargs))
        if state is not None and not torch.equal(state, torch.get_rng_state()):
            raise Refusal(f"{_name(func)} draws random numbers{_at()}")
        if kept is not None:
            func, args, kwargs = kept
        if rules.counts_rows(func, args, kwargs):
            first = self._axis(args[0] if args else kwargs["input"])
            if isinstance(first, (Nodes, Edges)) or (isinstance(first, SeedIds) and args[0].dim() == 1):
                raise Refusal(f"it takes a tensor apart row by row ({_name(func)}){_at()}")
        axis, by_row = self._axis_of(func, args, kwargs, result)
        call = self._add(func, args, kwargs, result, axis, by_row=by_row)
        if kept is not None:
            self._poison(result, call.results[0])
        seeds = any(isinstance(self._axis(one), SeedIds) for one in rules.tensors((args, kwargs)))
        if not by_row and not seeds and self._reads_rows(call.args, call.kwargs):
            self._note(f"{_name(func)} looks at all rows")
        return result

    def _check_written(self, written: Tensor) -> None:
        """Refuses a call that would write to an input or a parameter, before it does."""
        outer = (self._held_by_number[one] for one in (*self.found.inputs, *self.found.parameters))
        if any(_share_memory(one, written) for one in outer):
            raise Refusal(f"it writes to an input or a parameter{_at()}", is_final=True)

    def _poison(self, written: Tensor, number: int) -> None:
        """Marks the values that share memory with a tensor that was written to."""
        what = f"it writes to a tensor that shares memory with another one{_at()}"
        for other, held in enumerate(self._held_by_number):
            if held is not written and other != number and held is not None and _share_memory(held, written):
                self._poisoned[other] = what

    def _reads_rows(self, *trees: Any) -> bool:
        found: list[bool] = []
        mapped(trees, lambda leaf: found.append(isinstance(leaf, Ref) and self._is_rows(leaf.number)))
        return any(found)

    def _is_rows(self, number: int) -> bool:
        return isinstance(self.found.axes[number], Nodes)

    def result(self, leaf: Any) -> Any:
        """Returns a leaf of what ``forward`` returned, with a `Ref` in the place of a tensor."""
        return self._ref(leaf)

    def _axis_of(self, func: Any, args: Any, kwargs: Any, result: Any) -> tuple[Axis, bool]:
        """Returns what the rows of a result are, and whether it is computed row by row."""
        axes = {self._axis(one) for one in rules.tensors((args, kwargs))}
        if axes <= {FIXED}:
            return FIXED, False
        with_rows = {one for one in axes if not isinstance(one, Fixed)}
        if with_rows and all(isinstance(one, SeedIds) for one in with_rows):
            return (next(iter(with_rows)) if _selects(func) else WHOLE), False
        taken = self._taken_axis(func, args, kwargs)
        if taken is not None:
            return taken, True
        # Beside rows, a whole value is the same for each; of one row nobody can tell.
        beside = {one for one in with_rows if not isinstance(one, Whole) and self._count(one) != 1}
        if len(with_rows) == 1 or len(beside) == 1:
            (axis,) = beside or with_rows
            if func is Tensor.__getitem__ or func in (Tensor.narrow, torch.narrow):
                cut = self._cut(func, args, kwargs, axis)
                if cut is not None:
                    return cut, True
            if isinstance(axis, (Nodes, Edges)):
                rows = lambda one: self._axis(one) == axis  # noqa: E731
                if rules.is_by_row(func, args, kwargs, rows):
                    return axis, True
                kept = func in rules.KEEPING and isinstance(result, Tensor) and result.dim() > 0
                if kept and result.size(0) == int(self._count(axis)):
                    return axis, False
        return WHOLE, False

    def _taken_axis(self, func: Any, args: Any, kwargs: Any) -> Axis | None:
        """Returns the axis of rows that are taken from a small table by a number for each node or edge.

        The table is a parameter, a whole value, or one of the seeds.
        """
        if func is not Tensor.__getitem__ or kwargs or not isinstance(args[1], Tensor):
            return None
        table, index = self._axis(args[0]), args[1]
        small = isinstance(table, (Fixed, Whole)) or (isinstance(table, Nodes) and table.hops == 0)
        by_row = self._axis(index)
        ids = index.dim() == 1 and index.dtype in (torch.int64, torch.int32)
        return by_row if small and ids and isinstance(by_row, (Nodes, Edges)) else None

    def _cut(self, func: Any, args: Any, kwargs: Any, axis: Axis) -> Axis | None:
        """Returns the axis of the first rows of a value, or None for any other part of it."""
        if func is not Tensor.__getitem__:
            named = {**dict(zip(("input", "dim", "start", "length"), args, strict=False)), **kwargs}
            dim, start, stop = (named.get(name) for name in ("dim", "start", "length"))
            if not _is_zero(start):
                return None
        else:
            index = args[1]
            if isinstance(index, slice):
                dim, part = 0, index
            elif isinstance(axis, EdgeIndex) and isinstance(index, tuple) and len(index) == 2:
                dim, part = 1, index[1]
                if index[0] not in (slice(None), Ellipsis) or not isinstance(part, slice):
                    return None
            else:
                return None
            if not _is_zero(part.start) or part.step is not None or part.stop is None:
                return None
            stop = part.stop
        if dim != (1 if isinstance(axis, EdgeIndex) else 0) or not isinstance(stop, Count):
            return None
        return axis_cut(axis, stop.form)

    def _count(self, axis: Axis) -> int:
        form = form_of(axis)
        return -1 if form is None else form.value(self.counter)

    counter: Callable[[Any], int]

    def _shape(self, value: Tensor) -> tuple[int, ...]:
        shape: list[int] = list(value.shape)
        axis = self._axis(value)
        if isinstance(axis, (Nodes, Edges)) and shape and shape[0] == self._count(axis):
            shape[0] = Count(shape[0], form_of(axis))
        elif isinstance(axis, EdgeIndex):
            shape[1] = Count(shape[1], form_of(axis))
        elif isinstance(axis, Whole):
            ref = self._ref(value)
            for dim, size in enumerate(shape):
                number = len(self.found.axes)
                self.found.axes.append(WHOLE)
                self._held_by_number.append(None)
                self.found.calls.append(
                    Call(Tensor.size, (ref, dim), {}, [number], False, None, self._layer, "")
                )
                shape[dim] = Count(size, None, number)
        return torch.Size(shape)

    def _numel(self, value: Tensor) -> int:
        axis = self._axis(value)
        if isinstance(axis, Fixed):
            return value.numel()
        if isinstance(axis, (Nodes, Edges)) and value.dim() == 1:
            return Count(value.numel(), form_of(axis))
        raise Refusal(f"it reads the number of elements of a tensor{_at()}; read size(0) instead")

    def _check_function(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        name = _name(func)
        if func in _READS_VALUES:
            raise Refusal(f"it reads values of a tensor ({name}){_at()}")
        if func in _READS_LENGTH:
            raise Refusal(f"it takes the length of a tensor{_at()}; use size(0)")
        if func in _WRITES or kwargs.get("out") is not None:
            raise Refusal(f"{name} writes to a tensor{_at()}")
        if func in _MAKES:
            raise Refusal(f"{name} makes a tensor that is no input{_at()}")
        if func in _GRAD_MODE and bool(args[0]) != self._grad:
            raise Refusal(f"it switches gradients{_at()}")
        if torch.is_grad_enabled() != self._grad:
            raise Refusal(f"it switches gradients{_at()}")
        if _autocast_state() != self._autocast:
            raise Refusal(f"it enters or leaves autocast{_at()}")
        if _is_checkpointed():
            raise Refusal(f"it uses gradient checkpointing{_at()}")

    # Modules --------------------------------------------------------------------------------------

    #: Surrounds the call of a module that is one step.
    accepting: Callable[[torch.nn.Module], AbstractContextManager[None]]

    def modules(self) -> list[tuple[torch.nn.Module, str]]:
        return [(one, path) for path, one in self.model.named_modules()]

    def on_module(self, call: Callable[..., Any], module: torch.nn.Module, args: Any, kwargs: Any) -> Any:
        """Records the call of a module of the model, as one step or through its ``forward``."""
        path = self._paths.get(id(module))
        if path is None:
            raise Refusal(f"it calls a {type(module).__name__} that is no part of the model{_at()}")
        rule = self._rule(path, module)
        if rule is not None:
            with self.suspended(), self.accepting(module):
                return self._record_module(call, path, module, args, kwargs, rule)
        if path not in self.found.inlined:
            self.found.inlined.append(path)
        try:
            return call(module, *args, **kwargs)
        except Refusal as refusal:
            refusal.path = refusal.path or path
            raise

    def _rule(self, path: str, module: torch.nn.Module) -> str | None:
        if path in self._leaves or isinstance(module, (torch.jit.ScriptModule, torch.nn.RNNBase)):
            return "leaf"
        if isinstance(module, MessagePassing):
            return "conv"
        if isinstance(module, HeteroConv):
            return "hetero"
        return rules.module_rule(module)

    def _record_module(
        self, call: Callable[..., Any], path: str, module: torch.nn.Module, args: Any, kwargs: Any, rule: str
    ) -> Any:
        writes = bool(getattr(module, "inplace", False)) and bool(args)
        if writes:
            self._check_written(args[0])
        given, named = _plain(args), _plain(kwargs)
        if rule == "leaf":  # what it does is not seen: an input must not be written to
            given, named = mapped((given, named), _copied)
        before = _versions((given, named))
        with calm(module):
            result = call(module, *given, **named)
        if rule == "leaf" and _versions((given, named)) != before:
            raise Refusal(f"{path} writes to what it is called with{_at()}", is_final=True)
        if not writes and any(result is one for one in flat((given, named))):
            result = result.clone()  # a dropout, say, which will drop: it is another value
        axis: Axis | Sequence[Axis] = WHOLE
        by_row, way = False, None
        axes = {self._axis(one) for one in rules.tensors((args, kwargs))} - {FIXED}
        nodes = [one for one in axes if isinstance(one, (Nodes, Edges))]
        if rule in ("row", "whole") and len(axes) == 1 and len(nodes) == 1:
            axis, by_row = nodes[0], rule == "row"
            if not by_row:
                self._note(f"{_kind(module)} looks at all rows")
        elif rule == "conv":
            axis, way = self._conv_axis(module, args, kwargs, result)
        elif rule == "hetero":
            axis, way = self._hetero_axes(module, args, kwargs, result)
        elif rule == "leaf" and isinstance(result, Tensor):
            rows = next((one for one in nodes if isinstance(one, Nodes)), None)
            axis = rows if rows is not None and result.size(0) == self._count(rows) else WHOLE
        made = self._add(ModuleCall(path), args, kwargs, result, axis, by_row=by_row, way=way)
        if writes and isinstance(result, Tensor):
            self._poison(result, made.results[0])
        if rule == "conv":
            made.names = rules.argument_names(module)
        if rule == "hetero" and isinstance(result, dict):
            made.names, made.names_of_results = ("x", "edge_index"), tuple(result)
        if rule in ("conv", "hetero"):
            self._layer += 1
        return result

    def _conv_axis(
        self, conv: torch.nn.Module, args: Any, kwargs: Any, result: Any
    ) -> tuple[Axis, Way | None]:
        """Returns what the rows of a convolution are, and how its first rows are computed, if they can
        be asked for."""
        given = rules.named_arguments(conv, args, kwargs)
        x, edge_index = given.pop("x", None), given.pop("edge_index", None)
        sources, targets = x if isinstance(x, (tuple, list)) and len(x) == 2 else (x, x)
        rows, edges = self._axis(targets), self._axis(edge_index)
        keeps = isinstance(rows, Nodes) and isinstance(result, Tensor) and result.size(0) == self._count(rows)
        reason = self._reason_against(sources, targets, edges, given)
        way: Way | str = f"{_kind(conv)} {reason}"
        if reason is None:
            way = self._judge(conv, x, edge_index, given)
        if isinstance(way, Way) and keeps:
            return rows, way
        self._note(str(way))
        return rows if keeps else WHOLE, None

    def _reason_against(
        self, sources: Any, targets: Any, edges: Axis, given: Mapping[str, Any]
    ) -> str | None:
        """Returns why a call of a convolution is none over the nodes and edges of the batch."""
        above, rows = self._axis(sources), self._axis(targets)
        values = {self._axis(one) for one in rules.tensors(given)} - {FIXED}
        if not isinstance(rows, Nodes) or not isinstance(above, Nodes):
            return "is called with other rows than those of the nodes"
        if not isinstance(edges, EdgeIndex):
            return "passes messages over other edges than those of the batch"
        source, _, target = edges.relation or (None, None, None)
        if (above.name, rows.name) != (source, target):
            return "is called with rows of other types than those of its edges"
        cut = sources is not targets and rows.hops == edges.hops - 1
        if above.hops != edges.hops or not (rows.hops == edges.hops or cut):
            return "is called with rows and edges of different hops"
        if not values <= {Edges(edges.relation, edges.hops)} or any(map(_is_count, given.values())):
            return "is called with arguments that are no values of edges"
        return None

    def _hetero_axes(
        self, conv: Any, args: Any, kwargs: Any, result: Any
    ) -> tuple[Axis | Sequence[Axis], Way | None]:
        """Returns what the rows of each type are after a `HeteroConv`, and how first rows are computed."""
        axes: Axis | Sequence[Axis] = WHOLE
        way: Way | str = (
            f"{_kind(conv)} is called with other arguments than rows by type and edges by relation"
        )
        if len(args) == 2 and all(isinstance(one, dict) for one in args) and isinstance(result, dict):
            x, edges = args
            known = {relation: one for relation, one in conv.convs.items() if relation in edges}
            reasons = [
                self._reason_against(x.get(one[0]), x.get(one[2]), self._axis(edges[one]), {})
                for one in known
            ]
            if not kwargs and not any(reasons) and len({self._axis(edges[one]).hops for one in known}) == 1:
                axes = [self._axis(x[name]) for name in result]
                pairs = {one: x[one[0]] if one[0] == one[2] else (x[one[0]], x[one[2]]) for one in known}
                ways = [self._judge(known[one], pairs[one], edges[one], {}) for one in known]
                ways.append(self._judge(conv, x, edges, {}))
                way = next((one for one in ways if not isinstance(one, Way)), Way.TRIMMED)
                way = Way.NATIVE if all(one is Way.NATIVE for one in ways) else way
            else:
                way = next((f"{_kind(conv)} {one}" for one in reasons if one), way)
        if isinstance(way, Way):
            return axes, way
        self._note(str(way))
        return axes, None

    def _note(self, what: str) -> None:
        self.found.notes.setdefault(_where(), what)

    def _add(
        self,
        target: Any,
        args: Any,
        kwargs: Any,
        result: Any,
        axis: Axis | Sequence[Axis],
        *,
        by_row: bool,
        way: Way | None = None,
    ) -> Call:
        given, named = mapped(tuple(args), self._ref), mapped(dict(kwargs), self._ref)
        made_now = flat(result)
        axes = axis if isinstance(axis, Sequence) else [axis] * len(made_now)
        numbers = [self._new(one, own) for one, own in zip(made_now, axes, strict=True)]
        made = Call(target, given, named, numbers, by_row, way, self._layer, _where())
        self.found.calls.append(made)
        return made

    @contextmanager
    def suspended(self) -> Iterator[None]:
        """Records nothing for the duration of a block: a module that is one step computes itself."""
        on_compare, Count.on_compare = Count.on_compare, None
        self.is_suspended = True
        try:
            with torch._C.DisableTorchFunction():
                yield
        finally:
            self.is_suspended = False
            Count.on_compare = on_compare

    def on_compare(self, difference: Form | None, compare: Callable[[int, int], bool], found: bool) -> None:
        """Notes what came out of a comparison of numbers of rows; it must come out again."""
        if difference is None:
            raise Refusal(f"it compares the number of rows of a tensor{_at()}")
        if difference.terms:
            self.found.guards.append(Guard(difference, compare, found))


# The call #########################################################################################

_original_call, _original_write = torch.nn.Module.__call__, torch.nn.Module.__setattr__
_recording = threading.RLock()


def record(recorder: Recorder, forward: Callable[..., Any], args: Any, kwargs: Any) -> tuple[Recording, Any]:
    """Calls a ``forward`` and records what it does.

    Dropout leaves its input as it is, and modules that are called as one step are in evaluation mode:
    only so can two calls be compared. The state of generators and buffers is as before afterwards.

    Args:
        forward: the model's own.
        args, kwargs: its arguments, whose tensors the recorder knows as inputs.

    Returns:
        The recording, and what ``forward`` returned.

    Raises:
        Refusal: the recording would not hold for other batches.
    """
    thread = threading.get_ident()

    def call(module: torch.nn.Module, *given: Any, **named: Any) -> Any:
        if recorder.is_suspended or threading.get_ident() != thread:
            return _original_call(module, *given, **named)
        return recorder.on_module(_original_call, module, given, named)

    def write(module: torch.nn.Module, name: str, value: Any) -> None:
        if not recorder.is_suspended and threading.get_ident() == thread:
            before.writes.setdefault((id(module), name), _at())
        _original_write(module, name, value)

    reads = {id(module): recorder.found.reads.setdefault(path, set()) for module, path in recorder.modules()}

    def read(module: torch.nn.Module, name: str) -> Any:
        if not recorder.is_suspended and id(module) in reads and threading.get_ident() == thread:
            reads[id(module)].add(name)
        return object.__getattribute__(module, name)

    with _recording, restored(recorder.model) as before:
        torch.nn.Module.__call__ = call  # type: ignore[method-assign]
        torch.nn.Module.__setattr__ = write  # type: ignore[method-assign, assignment]
        torch.nn.Module.__getattribute__ = read  # type: ignore[method-assign, assignment]
        Count.on_compare, Count.place = recorder.on_compare, _at
        recorder.accepting = before.accepting
        try:
            with _Mode(recorder):
                output = forward(*args, **kwargs)
        finally:
            torch.nn.Module.__call__ = _original_call  # type: ignore[method-assign]
            torch.nn.Module.__setattr__ = _original_write  # type: ignore[method-assign]
            del torch.nn.Module.__getattribute__
            Count.on_compare = Count.place = None
        before.check()
    found = recorder.found
    found.output = mapped(output, recorder.result)
    return found, output


class _Before:
    """The generators, the buffers and the attributes of a model before a call.

    Attributes:
        writes: where attributes were set, by the id of the module and their name.
    """

    def __init__(self, model: torch.nn.Module) -> None:
        self.torch, self.python = torch.get_rng_state(), random.getstate()
        self.numpy = np.random.get_state()
        self.buffers = [(one, one.clone()) for one in model.buffers()]
        self.writes: dict[tuple[int, str], str] = {}
        self._model = model
        self._states = [(path, one, _full_state(one)) for path, one in model.named_modules()]
        held = tuple(vars(one) for one in model.modules())
        self._held = [(one, copy.copy(one)) for one in _containers(held, set())]

    @contextmanager
    def accepting(self, module: torch.nn.Module) -> Iterator[None]:
        """Accepts what a module, called as one step, writes to itself: it does so in every call."""
        inside = set(module.modules())
        ours = [(one, state, _full_state(one)) for _, one, state in self._states if one in inside]
        yield
        for one, state, before in ours:
            after = _full_state(one)
            state.update({name: value for name, value in after.items() if before.get(name, state) != value})

    def check(self) -> None:
        """Raises Refusal if the call changed attributes, or drew from generators unseen."""
        if random.getstate() != self.python or not _same(np.random.get_state(), self.numpy):
            raise Refusal(
                f"it draws random numbers from the generator of Python or NumPy{_at_forward(self._model)}"
            )
        for path, module, before in self._states:
            after = _full_state(module)
            if after != before:
                name = min(name for name in {*before, *after} if before.get(name) != after.get(name))
                place = self.writes.get((id(module), name)) or _at_forward(module)
                raise Refusal(f"it writes to {path or 'self'}.{name}{place}")

    def restore(self) -> None:
        torch.set_rng_state(self.torch)
        random.setstate(self.python)
        np.random.set_state(self.numpy)
        for held, before in self._held:
            _put_back(held, before)
        with torch.no_grad():
            for one, value in self.buffers:
                if not torch.equal(one, value):
                    one.copy_(value)


def _full_state(module: torch.nn.Module) -> dict[str, Any]:
    """Returns `plain_state`, and which tensors are parameters and buffers."""
    own = vars(module)
    places = {**own["_parameters"], **own["_buffers"]}
    tensors = {name: _Identity(one) for name, one in places.items()}
    return {**plain_state(module), **tensors}


def _containers(tree: Any, seen: set[int], depth: int = 0) -> Iterator[Any]:
    """Yields the lists, dicts and sets in a container and in objects, and itself."""
    if depth > _DEEPEST or id(tree) in seen:
        return
    inside = _attributes(tree)
    if inside is not None:
        seen.add(id(tree))
        yield from _containers(inside, seen, depth)
    if isinstance(tree, _HOLDERS):
        seen.add(id(tree))
        yield tree
    if isinstance(tree, (*_HOLDERS, tuple)):
        for one in tree.values() if isinstance(tree, dict) else tree:
            yield from _containers(one, seen, depth + 1)


def _put_back(held: Any, before: Any) -> None:
    """Gives a container the contents of a copy; what did not change is not touched."""
    if isinstance(held, dict):
        for name in [name for name in held if name not in before]:
            del held[name]
        for name, one in before.items():
            if name not in held or held[name] is not one:
                held[name] = one
    elif len(held) != len(before) or any(map(operator.is_not, held, before)):
        held.clear()
        (held.update if isinstance(held, set) else held.extend)(before)


def _at_forward(module: torch.nn.Module) -> str:
    code = getattr(rules.kind_of(module).forward, "__code__", None)
    return "" if code is None else f" ({code.co_filename.rsplit('/', 1)[-1]}:{code.co_firstlineno})"


@contextmanager
def restored(model: torch.nn.Module) -> Iterator[_Before]:
    """Brings generators and buffers back after a block."""
    before = _Before(model)
    try:
        yield before
    finally:
        before.restore()


def _same(first: Any, second: Any) -> bool:
    return all(np.array_equal(one, other) for one, other in zip(first, second, strict=True))


@contextmanager
def calm(module: torch.nn.Module) -> Iterator[None]:
    """Sets a module and its parts to evaluation mode for the duration of a block."""
    were = [(one, one.training) for one in module.modules()]
    try:
        for one, _ in were:
            one.training = False
        yield
    finally:
        for one, training in were:
            one.training = training


# The state that a graph depends on ################################################################

_HOLDERS = (list, dict, set, deque)
#: How deep, and up to which length, the contents of what an attribute holds are looked at.
_DEEPEST, _LONGEST = 6, 1000
_PLAIN = (int, float, bool, str, bytes, complex, type(None), torch.dtype, torch.device)
_SKIPPED = {
    *("_parameters", "_buffers", "_modules", "_non_persistent_buffers_set", "_is_full_backward_hook"),
    *("_forward_hooks_with_kwargs", "_forward_hooks_always_called", "_forward_pre_hooks_with_kwargs"),
    *(
        "_state_dict_hooks",
        "_state_dict_pre_hooks",
        "_load_state_dict_pre_hooks",
        "_load_state_dict_post_hooks",
    ),
    *("_as_made", "_batchgnn"),
}


def plain_state(module: torch.nn.Module, names: Collection[str] | None = None) -> dict[str, Any]:
    """Returns attributes of a module in a form that compares.

    Modules, parameters and buffers stand for themselves; other objects for what they hold.

    Args:
        names: of the attributes, which may be missing or those of the class; all of its own where
            None.
    """
    own = vars(module)
    seen: set[int] = set()
    if names is None:
        names = own
    found = {
        name: _frozen(own[name] if name in own else getattr(type(module), name, None), 0, seen)
        for name in names
        if name not in _SKIPPED
    }
    found.update({name: _Identity(part) for name, part in own["_modules"].items()})
    found.update(
        {name: part is None for kind in ("_parameters", "_buffers") for name, part in own[kind].items()}
    )
    return found


def _frozen(value: Any, depth: int, seen: set[int]) -> Any:
    if type(value) in _PLAIN:
        return value
    if isinstance(value, Tensor) or depth > _DEEPEST or id(value) in seen:
        return _Identity(value)
    if isinstance(value, (*_HOLDERS, tuple, frozenset)) and len(value) > _LONGEST:
        return _Identity(value), len(value)
    inside = _attributes(value)
    if inside is not None or isinstance(value, _HOLDERS):
        seen.add(id(value))
    if isinstance(value, (list, tuple, set, frozenset, deque)):
        return type(value), tuple(_frozen(one, depth + 1, seen) for one in value)
    if isinstance(value, Mapping):
        return type(value), tuple((name, _frozen(one, depth + 1, seen)) for name, one in value.items())
    own = _Identity(value)
    return own if inside is None else (own, _frozen(inside, depth + 1, seen))


class _Identity:
    """Equals what holds the same object. It keeps that alive: another one could get its ``id``."""

    def __init__(self, value: Any) -> None:
        self._value = value

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Identity) and other._value is self._value

    def __hash__(self) -> int:
        return id(self._value)


def _attributes(value: Any) -> dict[str, Any] | None:
    """Returns the attributes of an object that holds values; None of modules and functions."""
    if isinstance(value, (type, Tensor, torch.nn.Module)) or callable(value):
        return None
    inside = getattr(value, "__dict__", None)
    return inside if inside and isinstance(inside, dict) else None


# Helpers ##########################################################################################


def _own_tensors(module: torch.nn.Module) -> list[tuple[str, Tensor | None]]:
    own = [(name, one) for name, one in vars(module).items() if isinstance(one, Tensor)]
    return [*module._parameters.items(), *module._buffers.items(), *own]


def _share_memory(one: Tensor, other: Tensor) -> bool:
    if one is other:
        return True
    memory = [each.untyped_storage() for each in (one, other) if each.layout is torch.strided]
    return len(memory) == 2 and memory[0].nbytes() > 0 and memory[0].data_ptr() == memory[1].data_ptr()


def _versions(tree: Any) -> list[int]:
    return [0 if one.is_inference() else one._version for one in flat(tree)]


def _copied(leaf: Any) -> Any:
    return leaf.clone() if isinstance(leaf, Tensor) else leaf


def _plain(tree: Any) -> Any:
    return mapped(tree, lambda leaf: int(leaf) if isinstance(leaf, Count) else leaf)


def _autocast_state() -> tuple[bool, torch.dtype]:
    return torch.is_autocast_enabled("cpu"), torch.get_autocast_dtype("cpu")


def _selects(func: Any) -> bool:
    """Returns whether a function returns some entries of its input."""
    return func in (
        Tensor.__getitem__,
        Tensor.unbind,
        torch.unbind,
        Tensor.view,
        Tensor.reshape,
        Tensor.flatten,
    )


def _is_count(one: Any) -> bool:
    return isinstance(one, Count)


def _is_zero(start: Any) -> bool:
    return start is None or (type(start) is int and start == 0)


def _name(func: Any) -> str:
    known = resolve_name(func)
    return known.rsplit(".", 1)[-1] if known else getattr(func, "__name__", repr(func))


def _kind(module: torch.nn.Module) -> str:
    return rules.kind_of(module).__name__


def _frames() -> Iterator[Any]:
    frame = sys._getframe(1)
    while frame is not None:
        yield frame
        frame = frame.f_back  # type: ignore[assignment]


def _where() -> str:
    """Returns the file and line of the user's code that is being recorded."""
    nearest = ""
    for frame in _frames():
        name = frame.f_code.co_filename
        if "/pyg_batchgnn/port/" in name or "/torch/" in name or "contextlib" in name:
            continue
        place = f"{name.rsplit('/', 1)[-1]}:{frame.f_lineno}"
        if "/torch_geometric/" not in name:
            return place
        nearest = nearest or place
    return nearest


def _at() -> str:
    place = _where()
    return f" ({place})" if place else ""


def _is_checkpointed() -> bool:
    return any(frame.f_code.co_filename.endswith("torch/utils/checkpoint.py") for frame in _frames())


def _inplace(func: Any, args: Any, kwargs: Any) -> tuple[Any, Any, Any] | None:
    """Returns the function, and its arguments, that makes a new tensor where this one writes to its
    first; None if it does not write."""
    name = _name(func)
    if name.endswith("_") and not name.endswith("__"):
        for home in (Tensor, torch, torch.nn.functional):
            same = getattr(home, name, None)
            if same is func and callable(other := getattr(home, name[:-1], None)):
                return other, args, kwargs
        raise Refusal(f"{name} writes to a tensor{_at()}")
    if kwargs.get("inplace"):
        return func, args, {**kwargs, "inplace": False}
    place = _INPLACE.get(func)
    if place is not None and len(args) > place and args[place]:
        return func, (*args[:place], False, *args[place + 1 :]), kwargs
    return None


def _inplace_places() -> dict[Any, int]:
    found = {}
    for name in dir(torch.nn.functional):
        function = getattr(torch.nn.functional, name)
        code = getattr(function, "__code__", None)
        if code is not None and "inplace" in code.co_varnames[: code.co_argcount]:
            found[function] = code.co_varnames.index("inplace")
    return found


_INPLACE = _inplace_places()
