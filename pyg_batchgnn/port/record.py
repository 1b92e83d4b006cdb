"""The recording of a ``forward``: one plain call, and every function and module that it calls.

The call is real. So the type and the presence of a tensor, the truth of an option and the keys of
a dict are what they are, and the graph holds as long as they stay the same (`signature`). What
depends on the values of a batch cannot be recorded and is refused, with the file and the line.
"""

from __future__ import annotations

import sys
import threading
import weakref
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode, resolve_name
from torch_geometric.nn.conv import HeteroConv, MessagePassing

from pyg_batchgnn.port import rules
from pyg_batchgnn.port.module_state import SCALARS, calm, restored
from pyg_batchgnn.port.recording import Call, Guard, Judge, ModuleCall, Recording, Ref, Way, flat, mapped
from pyg_batchgnn.port.values import (
    FIXED,
    WHOLE,
    Axis,
    BatchEdges,
    Count,
    Counter,
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


def _words(text: str) -> list[str]:
    return text.split()


# What is refused ##################################################################################

_VALUES = _words("""
    __bool__ __int__ __float__ __complex__ __index__ item tolist numpy __array__ nonzero unique
    unique_consecutive masked_select equal allclose is_nonzero data_ptr storage untyped_storage
    __contains__ cpu cuda pin_memory share_memory_
""")
_LENGTHS = ("__len__", "__iter__")
_CHANGES = _words("""
    __setitem__ requires_grad_ backward set_ resize_ register_hook retain_grad copy_
""")
_METADATA = _words("""
    dim ndimension is_floating_point is_complex is_contiguous get_device is_sparse element_size
    is_signed stride has_names is_inference
""")
_PROPERTIES = _words("""
    ndim dtype device is_cuda is_cpu requires_grad layout is_sparse grad_fn is_leaf names
    is_quantized is_sparse_csr is_meta itemsize is_mps is_xla is_nested is_mkldnn _version grad
""")
_FACTORIES = _words("""
    zeros ones empty full rand randn randint randperm arange linspace logspace eye tensor as_tensor
    from_numpy zeros_like ones_like empty_like full_like rand_like randn_like randint_like new_zeros
    new_ones new_empty new_full new_tensor scalar_tensor normal bernoulli multinomial poisson
    empty_strided tril_indices triu_indices complex
""")


def _functions(names: Sequence[str], homes: Sequence[Any] = (torch, Tensor)) -> set[Any]:
    return {function for home in homes for name in names if callable(function := getattr(home, name, None))}


_READS_VALUES, _READS_LENGTH = _functions(_VALUES), _functions(_LENGTHS, (Tensor,))
_WRITES, _READS_METADATA = _functions(_CHANGES), _functions(_METADATA)
_DIFFERENTIATES = {torch.autograd.grad, torch.autograd.backward}
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
        if self._recorder.is_suspended:  # a recording of a part of the model goes on
            return func(*args, **(kwargs or {}))
        return self._recorder.on_function(func, args, dict(kwargs or {}))


def _nothing_saved() -> Any:
    """Keeps nothing for a backward pass, which never comes: rows of a large batch would not fit."""
    nothing: Any = lambda _: None  # noqa: E731
    return torch.autograd.graph.saved_tensors_hooks(nothing, nothing)


class Recorder:
    """Records a plain call of a model.

    Args:
        model: the model.
        judge: tells how convolutions are computed.
        counter: returns the number of nodes or edges of a hop.
        leaves: the paths of modules that are called as one step, though they are no such kind.
    """

    def __init__(
        self,
        model: torch.nn.Module,
        judge: Judge,
        counter: Callable[[Counter], int],
        leaves: Sequence[str] = (),
    ) -> None:
        self.model, self.found = model, Recording()
        self._judge, self._counter, self._leaves = judge, counter, set(leaves)
        self._paths = {id(one): path for path, one in model.named_modules()}
        self._numbers: dict[int, int] = {}
        #: The tensors by number, as long as somebody holds them.
        self._tensors: list[weakref.ref[Tensor] | None] = []
        self._poisoned: dict[int, str] = {}
        self._layer, self.is_suspended = 0, False
        #: Why the module that is being recorded computes all rows.
        self._note = ""
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
        key = id(value)
        self._numbers[key] = number
        # A value is not kept alive: the ones of a large batch would not fit. Its id is then free.
        self._tensors.append(weakref.ref(value, lambda _: self._forget(key, number)))
        return number

    def _forget(self, key: int, number: int) -> None:
        if self._numbers.get(key) == number:
            del self._numbers[key]

    def _tensor(self, number: int) -> Tensor | None:
        known = self._tensors[number]
        return None if known is None else known()

    def add_input(self, value: Tensor, axis: Axis) -> Tensor:
        """Registers a tensor as the next input.

        Returns:
            What stands for it: another object if it is known as something else, such as the rows of
            another type.
        """
        if id(value) in self._numbers:
            value = value.view_as(value)
        self.found.inputs.append(self._new(value, axis))
        return value

    def add(self, value: Tensor, axis: Axis) -> None:
        """Notes a value that somebody else computed."""
        self._new(value, axis)

    def axis(self, value: Any) -> Axis:
        """Returns what the rows of a value are."""
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
        first = next((name for name in ("input", "self", "tensor", "tensors") if name in kwargs), None)
        if not args and first is not None:
            args = (kwargs.pop(first),)
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
        if func in (Tensor.narrow, torch.narrow) and _is_inside(*args, **kwargs):
            func, args, kwargs = Tensor.__getitem__, _slice_of(*args, **kwargs), {}
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
            first = self.axis(args[0] if args else kwargs["input"])
            if isinstance(first, (Nodes, Edges)) or (isinstance(first, SeedIds) and args[0].dim() == 1):
                raise Refusal(f"it takes a tensor apart row by row ({_name(func)}){_at()}")
        axis, by_row = self._axis_of(func, args, kwargs, result)
        call = self._add(func, args, kwargs, result, axis, by_row=by_row)
        if kept is not None:
            self._poison(result, call.results[0])
        seeds = any(isinstance(self.axis(one), SeedIds) for one in rules.tensors((args, kwargs)))
        if not by_row and not seeds and self._reads_rows(call.args, call.kwargs):
            call.note = f"{_name(func)} {rules.why_whole(func)}"
        return result

    def _check_written(self, written: Tensor) -> None:
        """Refuses a call that would write to an input or a parameter, before it does."""
        outer = map(self._tensor, (*self.found.inputs, *self.found.parameters))
        if any(one is not None and share_memory(one, written) for one in outer):
            raise Refusal(f"it writes to an input or a parameter{_at()}", is_final=True)

    def _poison(self, written: Tensor, number: int) -> None:
        """Marks the values that share memory with a tensor that was written to."""
        what = f"it writes to a tensor that shares memory with another one{_at()}"
        for other, held in enumerate(map(self._tensor, range(len(self._tensors)))):
            if held is not written and other != number and held is not None and share_memory(held, written):
                self._poisoned[other] = what

    def _reads_rows(self, *trees: Any) -> bool:
        found: list[bool] = []
        mapped(trees, lambda leaf: found.append(isinstance(leaf, Ref) and self._is_rows(leaf.number)))
        return any(found)

    def _is_rows(self, number: int) -> bool:
        return isinstance(self.found.axes[number], Nodes)

    def result(self, output: Any) -> Any:
        """Returns what ``forward`` returned, with a `Ref` in the place of each tensor."""
        _check_output(output)
        return mapped(output, self._ref)

    def _axis_of(self, func: Any, args: Any, kwargs: Any, result: Any) -> tuple[Axis, bool]:
        """Returns what the rows of a result are, and whether it is computed row by row."""
        axes = {self.axis(one) for one in rules.tensors((args, kwargs))}
        if axes <= {FIXED}:
            return FIXED, False
        taken = self._taken_axis(func, args, kwargs)
        if taken is not None:
            return taken, True
        with_rows = {one for one in axes if not isinstance(one, Fixed)}
        if with_rows and all(isinstance(one, SeedIds) for one in with_rows):
            return (next(iter(with_rows)) if _selects(func) else WHOLE), False
        # Beside rows, a whole value is the same for each; of one row nobody can tell.
        beside = {one for one in with_rows if not isinstance(one, Whole) and self._count(one) != 1}
        if len(with_rows) == 1 or len(beside) == 1:
            (axis,) = beside or with_rows
            if func is Tensor.__getitem__:
                cut = self._cut(args, axis)
                if cut is not None:
                    return cut, True
            if isinstance(axis, (Nodes, Edges)):
                rows = lambda one: self.axis(one) == axis  # noqa: E731
                if rules.is_by_row(func, args, kwargs, rows):
                    return axis, True
                kept = func in rules.KEEPING and isinstance(result, Tensor) and result.dim() > 0
                if kept and result.size(0) == int(self._count(axis)):
                    return axis, False
        return WHOLE, False

    def _taken_axis(self, func: Any, args: Any, kwargs: Any) -> Axis | None:
        """Returns the axis of rows of a small table that are taken by a number for each node, or
        edge: of parameters, of a whole value, or of the seeds."""
        if func is not Tensor.__getitem__ or kwargs or not isinstance(args[1], Tensor):
            return None
        table, index = self.axis(args[0]), args[1]
        small = isinstance(table, (Fixed, Whole)) or (isinstance(table, Nodes) and table.hops == 0)
        by_row = self.axis(index)
        ids = index.dim() == 1 and index.dtype in (torch.int64, torch.int32)
        return by_row if small and ids and isinstance(by_row, (Nodes, Edges)) else None

    def _cut(self, args: Any, axis: Axis) -> Axis | None:
        """Returns the axis of the first rows of a value, or None for any other part of it."""
        index = args[1]
        if isinstance(index, slice):
            dim, part = 0, index
        elif isinstance(axis, BatchEdges) and isinstance(index, tuple) and len(index) == 2:
            dim, part = 1, index[1]
            if index[0] not in (slice(None), Ellipsis) or not isinstance(part, slice):
                return None
        else:
            return None
        if not _is_zero(part.start) or part.step is not None or not isinstance(part.stop, Count):
            return None
        return axis_cut(axis, part.stop.form) if dim == isinstance(axis, BatchEdges) else None

    def _count(self, axis: Axis) -> int:
        form = form_of(axis)
        return -1 if form is None else form.value(self._counter)

    def _shape(self, value: Tensor) -> tuple[int, ...]:
        shape: list[int] = list(value.shape)
        axis = self.axis(value)
        if isinstance(axis, (Nodes, Edges)) and shape and shape[0] == self._count(axis):
            shape[0] = Count(shape[0], form_of(axis))
        elif isinstance(axis, BatchEdges):
            shape[1] = Count(shape[1], form_of(axis))
        elif isinstance(axis, Whole):
            ref = self._ref(value)
            for dim, size in enumerate(shape):
                number = len(self.found.axes)
                self.found.axes.append(WHOLE)
                self._tensors.append(None)
                self.found.calls.append(
                    Call(Tensor.size, (ref, dim), {}, [number], False, None, self._layer, "")
                )
                shape[dim] = Count(size, None, number)
        return torch.Size(shape)

    def _numel(self, value: Tensor) -> int:
        axis = self.axis(value)
        if isinstance(axis, Fixed):
            return value.numel()
        if isinstance(axis, (Nodes, Edges)) and value.dim() == 1:
            return Count(value.numel(), form_of(axis))
        raise Refusal(f"it reads the number of elements of a tensor{_at()}; read size(0) instead")

    def _check_function(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        name = _name(func)
        if func in _READS_VALUES:
            truth = name == "__bool__"
            what = "asks for the truth of a tensor" if truth else f"reads values of a tensor ({name})"
            raise Refusal(f"it {what}{_at()}")
        if func in _READS_LENGTH:
            raise Refusal(f"it takes the length of a tensor{_at()}; use size(0)")
        if func in _WRITES or kwargs.get("out") is not None:
            raise Refusal(f"{name} writes to a tensor{_at()}")
        if func in _DIFFERENTIATES:
            raise Refusal(f"it computes gradients{_at()}")
        if func in _MAKES:
            raise Refusal(f"{name} makes a tensor that is no input{_at()}")
        if func in _GRAD_MODE and bool(args[0]) != self._grad:
            raise Refusal(f"it switches gradients{_at()}")
        if torch.is_grad_enabled() != self._grad:
            own = _is_inside_of("autograd/function.py")
            raise Refusal(f"it {'calls an autograd.Function' if own else 'switches gradients'}{_at()}")
        if _autocast_state() != self._autocast:
            raise Refusal(f"it enters or leaves autocast{_at()}")
        if _is_inside_of("utils/checkpoint.py"):
            raise Refusal(f"it uses gradient checkpointing{_at()}")

    # Modules --------------------------------------------------------------------------------------

    def on_module(self, call: Callable[..., Any], module: torch.nn.Module, args: Any, kwargs: Any) -> Any:
        """Records the call of a module of the model, as one step or through its ``forward``."""
        path = self._paths.get(id(module))
        if path is None:
            raise Refusal(f"it calls a {type(module).__name__} that is no part of the model{_at()}")
        with self.suspended():  # what is read of the module here does not count
            rule = self._rule(path, module)
            if rule is not None:
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
        axes = {self.axis(one) for one in rules.tensors((args, kwargs))} - {FIXED}
        nodes = [one for one in axes if isinstance(one, (Nodes, Edges))]
        if rule in ("row", "whole") and len(axes) == 1 and len(nodes) == 1:
            flat_rows = any(
                self.axis(one) == nodes[0] and one.dim() < 2 for one in rules.tensors((args, kwargs))
            )
            by_row = rule == "row" and (not flat_rows or rules.takes_vectors(module))
            axis = nodes[0]
            if not by_row:
                self._note = f"{_kind(module)} looks at all rows"
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
        """Returns what the rows of a convolution are, and how its first rows are computed, if they
        can be asked for."""
        given = rules.named_arguments(conv, args, kwargs)
        x, edge_index = given.pop("x", None), given.pop("edge_index", None)
        sources, targets = x if isinstance(x, (tuple, list)) and len(x) == 2 else (x, x)
        rows, edges = self.axis(targets), self.axis(edge_index)
        keeps = isinstance(rows, Nodes) and isinstance(result, Tensor) and result.size(0) == self._count(rows)
        reason = self._reason_against(sources, targets, edges, given)
        way: Way | str = f"{_kind(conv)} {reason}"
        if reason is None:
            way = self._judge(conv, x, edge_index, given)
        if isinstance(way, Way) and keeps:
            return rows, way
        self._note = f"{_kind(conv)} returns more than a row for each node" if isinstance(way, Way) else way
        return rows if keeps else WHOLE, None

    def _reason_against(
        self, sources: Any, targets: Any, edges: Axis, given: Mapping[str, Any]
    ) -> str | None:
        """Returns why a call of a convolution is none over the nodes and edges of the batch."""
        above, rows = self.axis(sources), self.axis(targets)
        values = {self.axis(one) for one in rules.tensors(given)} - {FIXED}
        if not isinstance(rows, Nodes) or not isinstance(above, Nodes):
            return "is called with other rows than those of the nodes"
        if not isinstance(edges, BatchEdges):
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
        """Returns what the rows of each type are after a `HeteroConv`, and how first rows are
        computed."""
        dicts = len(args) == 2 and all(isinstance(one, dict) for one in (*args, result))
        if kwargs or not dicts:
            what = "is called with other arguments than rows by type and edges by relation"
            self._note = f"{_kind(conv)} {what}"
            return WHOLE, None
        x, edges = args
        known = {relation: one for relation, one in conv.convs.items() if relation in edges}
        ways = [self._relation_way(conv, relation, one, x, edges) for relation, one in known.items()]
        ways.append(self._judge(conv, x, edges, {}))
        reason = next((one for one in ways if not isinstance(one, Way)), None)
        if reason is not None:
            self._note = reason
        axes = [self.axis(x.get(name)) for name in result]
        if not all(isinstance(one, Nodes) for one in axes):
            return WHOLE, None
        native = all(one is Way.NATIVE for one in ways)
        return axes, None if reason is not None else Way.NATIVE if native else Way.TRIMMED

    def _relation_way(self, conv: Any, relation: Any, one: Any, x: Any, edges: Any) -> Way | str:
        sources, targets = x.get(relation[0]), x.get(relation[2])
        reason = self._reason_against(sources, targets, self.axis(edges[relation]), {})
        if reason is not None:
            return f"{_kind(conv)} {reason}"
        x = sources if sources is targets else (sources, targets)
        return self._judge(one, x, edges[relation], {})

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
        made = Call(target, given, named, numbers, by_row, way, self._layer, _where(), note=self._note)
        self._note = ""
        made.columns = tuple(result.shape[1:]) if isinstance(result, Tensor) else ()
        self.found.calls.append(made)
        return made

    @contextmanager
    def suspended(self) -> Iterator[None]:
        """Records nothing for the duration of a block: a module that is one step computes
        itself."""
        outer, Count.recording = Count.recording, None
        self.is_suspended = True
        try:
            with torch._C.DisableTorchFunction():
                yield
        finally:
            self.is_suspended = False
            Count.recording = outer

    def on_compare(self, difference: Form | None, compare: Callable[[int, int], bool], found: bool) -> None:
        """Notes what came out of a comparison of numbers of rows; it must come out again."""
        if difference is None:
            raise Refusal(f"it compares the number of rows of a tensor{_at()}")
        if difference.terms:
            self.found.guards.append(Guard(difference, compare, found))


# The call #########################################################################################

_recording = threading.RLock()


def record(recorder: Recorder, forward: Callable[..., Any], args: Any, kwargs: Any) -> tuple[Recording, Any]:
    """Calls a ``forward`` and records what it does.

    Dropout leaves its input as it is, and modules that are called as one step are in evaluation
    mode: only so can two calls be compared. The state of generators and buffers is as before
    afterwards.

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
            return original(module, *given, **named)
        return recorder.on_module(original, module, given, named)

    reads = {
        id(one): recorder.found.reads.setdefault(path, set()) for path, one in recorder.model.named_modules()
    }

    def read(module: torch.nn.Module, name: str) -> Any:
        known = not recorder.is_suspended and id(module) in reads and not name.startswith("__")
        if known and threading.get_ident() == thread:
            reads[id(module)].add(name)
        return object.__getattribute__(module, name)

    def write(module: torch.nn.Module, name: str, value: Any) -> None:
        if not recorder.is_suspended and threading.get_ident() == thread:
            before.writes.setdefault((id(module), name), _at())
        original_write(module, name, value)

    with _recording, restored(recorder.model) as before:
        original, original_write = torch.nn.Module.__call__, torch.nn.Module.__setattr__
        torch.nn.Module.__call__ = call  # type: ignore[method-assign]
        torch.nn.Module.__setattr__ = write  # type: ignore[method-assign, assignment]
        outer_read = vars(torch.nn.Module).get("__getattribute__")
        torch.nn.Module.__getattribute__ = read  # type: ignore[method-assign, assignment]
        outer, Count.recording = Count.recording, (recorder.on_compare, _at)
        try:
            with torch._C._EnableTorchFunction(), _nothing_saved(), _Mode(recorder):
                output = forward(*args, **kwargs)
        finally:
            torch.nn.Module.__call__ = original  # type: ignore[method-assign]
            torch.nn.Module.__setattr__ = original_write  # type: ignore[method-assign]
            if outer_read is None:
                del torch.nn.Module.__getattribute__
            else:
                torch.nn.Module.__getattribute__ = outer_read  # type: ignore[method-assign]
            Count.recording = outer
        targets = (one.target for one in recorder.found.calls)
        recorder.found.writers = before.check({one.path for one in targets if isinstance(one, ModuleCall)})
    found = recorder.found
    found.output = recorder.result(output)
    return found, output


# Helpers ##########################################################################################


def _own_tensors(module: torch.nn.Module) -> list[tuple[str, Tensor | None]]:
    own = [(name, one) for name, one in vars(module).items() if isinstance(one, Tensor)]
    return [*module._parameters.items(), *module._buffers.items(), *own]


def _plain(tree: Any) -> Any:
    return mapped(tree, lambda leaf: int(leaf) if isinstance(leaf, Count) else leaf)


def _check_output(tree: Any) -> None:
    """Raises Refusal for an object that ``forward`` returned and that a graph cannot make again."""
    if isinstance(tree, (tuple, list)) and (type(tree) in (tuple, list) or hasattr(tree, "_fields")):
        for one in tree:
            _check_output(one)
    elif type(tree) in (dict, OrderedDict):
        for one in tree.values():
            _check_output(one)
    elif not (isinstance(tree, (Tensor, Count)) or type(tree) in SCALARS):
        raise Refusal(f"it returns a {type(tree).__name__}")


def share_memory(one: Tensor, other: Tensor) -> bool:
    if one is other:
        return True
    memory = [each.untyped_storage() for each in (one, other) if each.layout is torch.strided]
    return len(memory) == 2 and memory[0].nbytes() > 0 and memory[0].data_ptr() == memory[1].data_ptr()


def _versions(tree: Any) -> list[int]:
    return [0 if one.is_inference() else one._version for one in flat(tree)]


def _copied(leaf: Any) -> Any:
    return leaf.clone() if isinstance(leaf, Tensor) else leaf


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


def _is_inside(input: Tensor, dim: int, start: Any, length: Any) -> bool:
    numbers = isinstance(start, int) and isinstance(length, int)
    return numbers and int(start) >= 0 and int(start) + int(length) <= input.shape[dim]


def _slice_of(input: Tensor, dim: int, start: Any, length: Any) -> tuple[Any, ...]:
    """Returns the arguments of the slice that a call of ``narrow`` takes."""
    part = slice(start, start + length)
    return input, part if dim % input.dim() == 0 else (*[slice(None)] * (dim % input.dim()), part)


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


def _is_inside_of(file: str) -> bool:
    return any(frame.f_code.co_filename.endswith(f"/torch/{file}") for frame in _frames())


_WRITING_OPERATORS = {
    f"__i{name}__" for name in ("pow", "and", "or", "xor", "lshift", "rshift", "mod", "floordiv")
}


def _inplace(func: Any, args: Any, kwargs: Any) -> tuple[Any, Any, Any] | None:
    """Returns the function, and its arguments, that makes a new tensor where this one writes to its
    first; None if it does not write."""
    name = _name(func)
    if name in _WRITING_OPERATORS:
        return getattr(Tensor, f"__{name[3:]}"), args, kwargs
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
