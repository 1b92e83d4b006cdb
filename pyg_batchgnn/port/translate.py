"""The translation of a captured FX graph into the calls of a recording, and what their rows are.

An axis follows from where a value comes from: an input, or a call that is known to keep the rows of
its own. It never follows from two sizes being equal. A function that is not known, by name, to
compute each row by itself computes all rows.
"""

from __future__ import annotations

import functools
import operator
import re
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch_geometric.nn.conv import MessagePassing

from pyg_batchgnn.port import foreign, rules
from pyg_batchgnn.port.batches import ArgumentTensor
from pyg_batchgnn.port.capture import Captured, Input, axis_of, place_of, symbols
from pyg_batchgnn.port.leaves import LEAF, RETURNED, Leaf
from pyg_batchgnn.port.recording import (
    FIXED,
    WHOLE,
    Axis,
    BatchEdges,
    Call,
    Count,
    Edges,
    Form,
    ModuleCall,
    Nodes,
    Other,
    Reads,
    Recording,
    Ref,
    Refusal,
    SeedIds,
    Way,
    axis_cut,
    form_of,
    form_of_sum,
    has_counts,
    mapped,
    refs,
    tensors,
)

_OF_STACKS = rules.named(("sum", "mean", "max", "min", "amax", "amin"))
_SIZES = {torch.ops.aten.sym_size.int, Tensor.size}
_ASSERTIONS = {
    torch.ops.aten._assert_scalar.default,
    torch.ops.aten.sym_constrain_range_for_size.default,
    torch._check,
}
#: Arithmetic with numbers, which looks at no tensor.
_ARITHMETIC = {
    one for name in dir(operator) if callable(one := getattr(operator, name)) and name[0] not in "_i"
}
_ARITHMETIC |= {getattr(torch, name) for name in dir(torch) if name.startswith(("sym_", "_sym_"))}
_ARITHMETIC |= {max, min, float, int, bool, round, abs, pow}


def translate(captured: Captured, model: torch.nn.Module, judge: Callable[..., Way | str]) -> Recording:
    """Turns a captured graph into a recording of its calls. ``judge``: returns how a convolution
    computes its first rows alone, or why not. Raises `Refusal` if a call cannot be recorded."""
    try:
        return _Translator(captured, model, judge).found
    except Exception as error:  # what is not understood is not rewritten
        what = f"{type(error).__name__}: {error}"
        raise Refusal(f"its graph is of a form that is not known ({what})") from error


class _Translator:
    """Walks through a captured graph. Every value has a number and an example tensor."""

    def __init__(self, captured: Captured, model: torch.nn.Module, judge: Callable[..., Way | str]) -> None:
        self.found, self._model, self._judge = Recording(), model, judge
        self._modules = {id(one): (path, one) for path, one in model.named_modules()}
        self._env: dict[torch.fx.Node, Any] = {}
        #: By number: a tensor of the shape, whose memory nobody reads; None of numbers.
        self._shapes: list[Any] = []
        self._storages: list[Any] = []
        self._symbols = symbols(captured)
        self.found.decides = not captured.decided.isdisjoint(self._symbols)
        self._by_id: dict[int, int] = {}
        self._now: dict[int, int] = {}
        self._poisoned: dict[int, Refusal] = {}
        self._views: dict[int, tuple[int, Any]] = {}  # of what indexing made, of what and where
        self._ends: dict[int, int] = {}  # of a row of an edge index: 0 for sources, 1 for targets
        self._stacks: dict[int, Any] = {}  # what was stacked in front
        self._of_nodes: set[int] = set()  # rows of edges that are computed from rows of nodes
        self._layer = 0
        self._note = ""
        self._numbers: set[int] = set()
        inputs = iter(captured.inputs)
        for node in captured.module.graph.nodes:
            if node.op == "placeholder":
                self._input(node, next(inputs))
            elif node.op == "output":
                self._output(node)
            else:
                self._node = node
                self._env[node] = self._step(node)

    def _new(self, value: Any, axis: Axis) -> Ref:
        """Numbers a value of the graph, given by its fake tensor or symbol. If nothing else tells
        what its rows stand for, the symbol of their number does."""
        number = len(self.found.axes)
        axis = axis_of(value, self._symbols) if axis == WHOLE else axis
        self.found.axes.append(axis)
        shape = _shape(value)
        self._shapes.append(shape)
        strided = isinstance(value, Tensor) and value.layout is torch.strided
        self._storages.append(value.untyped_storage()._cdata if strided else None)
        if shape is not None:
            self._by_id[id(shape)] = number
        return Ref(number)

    def _input(self, node: torch.fx.Node, one: Input) -> None:
        value, place, dim = node.meta.get("example_value"), one.place, one.dim
        ref = self._new(value, place.axis if isinstance(place, ArgumentTensor) and dim is None else FIXED)
        self.found.inputs.append(ref.number)
        if one.is_number:
            self._numbers.add(ref.number)
        self._env[node] = ref
        constant = _constant(value)
        if constant is not None:
            self._env[node] = constant
        elif isinstance(place, Count):
            self._env[node] = place
        elif isinstance(place, ArgumentTensor) and dim is not None:
            form, sizes = form_of(place.axis, dim), place.columns or ()
            if form is None and 0 < dim <= len(sizes):
                form = Form.of({}, sizes[dim - 1])
            self._env[node] = Count(0, form) if form is not None else ref

    def _ref(self, leaf: Any) -> Any:
        if not isinstance(leaf, Ref):
            return leaf
        number = self._current(leaf.number)
        if number in self._poisoned:
            raise self._poisoned[number]
        return Ref(number)

    def _current(self, number: int) -> int:
        while number in self._now:
            number = self._now[number]
        return number

    def _axis(self, one: Any) -> Axis:
        return self.found.axes[self._by_id[id(one)]] if id(one) in self._by_id else WHOLE

    def _shaped(self, tree: Any) -> Any:
        def change(leaf: Any) -> Any:
            shape = self._shapes[leaf.number] if isinstance(leaf, Ref) else None
            return leaf if shape is None else shape

        return mapped(tree, change)

    def _step(self, node: torch.fx.Node) -> Any:
        if node.op == "get_attr":
            value = node.graph.owning_module
            for name in str(node.target).split("."):
                value = getattr(value, name)
            if isinstance(value, torch.nn.Module):
                raise Refusal("it calls a function with a graph of its own, such as an autograd.Function")
            if not isinstance(value, (int, float, str, bool)):
                raise Refusal(f"it holds a {type(value).__name__} that is neither an input nor a parameter")
            return value
        args = mapped(torch.fx.node.map_arg(node.args, self._env.__getitem__), self._ref)
        kwargs = mapped(torch.fx.node.map_arg(node.kwargs, self._env.__getitem__), self._ref)
        target: Any = node.target
        if node.op == "call_method":
            target = getattr(Tensor, target, None)
        elif node.op != "call_function":
            raise self._refusal(f"it calls {node.target} in a way that is not known")
        if target is LEAF:
            return self._leaf(Leaf.of(*args))
        if target is RETURNED:
            return args[0]
        if target in _ASSERTIONS:
            return None
        if not refs((args, kwargs)) or all(self._shapes[one] is None for one in refs((args, kwargs))):
            return self._number(target, args, kwargs)
        if target in rules.GETITEM and not isinstance(args[0], Ref):
            return args[0][args[1]]
        if target is Tensor.item and args[0].number in self._numbers:
            return args[0]
        first = next((one for one in ("input", "self", "tensor", "tensors") if one in kwargs), None)
        if not args and first is not None:
            args = (kwargs.pop(first),)
        if target in _SIZES and len(args) == 2:
            ref, dim = args
            shape, axis = self._shapes[ref.number], self.found.axes[ref.number]
            form = form_of(axis, dim % shape.dim()) if type(dim) is int else None
            if form is not None:
                return Count(0, form)
            return self._add(Tensor.size, args, {}, WHOLE, by_row=False).result
        return self._function(target, args, kwargs)

    def _number(self, target: Any, args: Any, kwargs: Any) -> Any:
        value = self._node.meta.get("example_value")
        if target in (torch.Size, tuple, list) and len(args) == 1:
            return tuple(args[0]) if target is not list else list(args[0])
        if target in rules.GETITEM:
            return args[0][args[1]]
        if target in _ARITHMETIC:
            if (constant := _constant(value)) is not None:
                return constant
            form = form_of_sum(target, args)
            if form is not None:
                return Count(0, form)
            return self._add(target, args, kwargs, FIXED, by_row=False).result
        if isinstance(value, Tensor) and not rules.is_state(target):
            if rules.draws(self._node):
                raise self._refusal(f"{rules.name_of(target)} draws random numbers")
            depends = refs((args, kwargs)) or has_counts((args, kwargs))
            return self._add(target, args, kwargs, WHOLE if depends else FIXED, by_row=False).result
        raise self._refusal(rules.why_refused(target))

    def _function(self, func: Any, args: Any, kwargs: Any) -> Any:
        name = rules.name_of(func)
        refused = func in rules.WRITES or rules.is_state(func)
        if refused or isinstance(func, torch._ops.HigherOrderOperator):
            raise self._refusal(rules.why_refused(func))
        if func not in rules.KNOWN and rules.draws(self._node):
            raise self._refusal(f"{name} draws random numbers")
        if (total := self._of_stack(func, args, kwargs)) is not None:
            return total
        kept, out = rules.out_of_place(func, args, kwargs), kwargs.get("out")
        written: Any = args[0] if kept is not None else None
        for one in (out, None if func is operator.setitem else written):
            if isinstance(one, Ref) and self._is_written_whole(one.number):
                axis, storage = self.found.axes[one.number], self._storages[one.number]
                self._add(func, args, kwargs, axis, by_row=False).writes = True
                for number in [stack for stack in self._stacks if self._storages[stack] == storage]:
                    del self._stacks[number]
                return one
        if out is not None or (kept is not None and not isinstance(written, Ref)):
            raise self._refusal(f"{name} writes to a tensor")
        if kept is not None:
            self._check_written(written.number, self.found.axes[written.number] is FIXED)
            func, args, kwargs = kept
        if func in (Tensor.narrow, torch.narrow):
            each = {**dict(zip(("input", "dim", "start", "length"), args, strict=False)), **kwargs}
            sliced = self._slice_of(each["input"], each["dim"], each["start"], each["length"])
            if sliced is not None:
                func, args, kwargs = operator.getitem, sliced, {}
        given, named = self._shaped(args), self._shaped(kwargs)
        axis, by_row = self._axis_of(func, given, named)
        by_row = by_row and func not in rules.KEEPS_STATISTICS
        made = self._add(func, args, kwargs, axis, by_row=by_row)
        made.writes = func in rules.KEEPS_STATISTICS
        made.of_ends = isinstance(axis, Edges) and self._looks_up_ends(given)
        if made.of_ends:
            self._of_nodes.update(made.results)
        seeds = any(isinstance(self._axis(one), SeedIds) for one in tensors((given, named)))
        read = refs((args, kwargs))
        axes = {self.found.axes[one] for one in read}
        more = any(isinstance(one, Nodes) and one.hops > 0 for one in axes)  # than the rows of the seeds
        more = more or not self._of_nodes.isdisjoint(read)
        if not by_row and not made.of_ends and not seeds and more:
            made.note = f"{name} {rules.why_whole(func)}"
        if func is torch.stack and (*args[1:], *kwargs.values()) in ((), (0,)):
            self._stacks[made.result.number] = args[0]
        if written is not None:
            self._overwritten(written.number, made.result.number)
        if func in rules.GETITEM and type(args[1]) is int and isinstance(axis, Edges):
            self._ends[made.result.number] = args[1] % 2
        if func in rules.GETITEM and self._storages[made.result.number] == self._storages[args[0].number]:
            self._views[made.result.number] = args[0].number, args[1]
        return made.tree

    def _of_stack(self, func: Any, args: Any, kwargs: Any) -> Any:
        """Rewrites a reduction of a stack along dimension 0, as ``stack(xs).sum(0)``, so that it
        works row by row: as a sum, or along columns. Returns None for other calls."""
        parts = self._stacks.get(args[0].number) if func in _OF_STACKS and isinstance(args[0], Ref) else None
        if not parts or (*args[1:], *kwargs.values()) not in ((0,), ((0,),), ([0],)):
            return None
        columns = self._shapes[args[0].number].movedim(0, 1)
        if _OF_STACKS[func] in ("sum", "mean") and columns.is_floating_point():
            total = functools.reduce(lambda sums, one: self._function(operator.add, (sums, one), {}), parts)
            mean = _OF_STACKS[func] == "mean"
            return self._function(operator.truediv, (total, len(parts)), {}) if mean else total
        axis, by_row = self._axis_of(torch.stack, (self._shaped(parts), 1), {})
        made = self._add(torch.stack, (parts, 1), {}, axis, by_row=by_row, value=columns)
        return self._function(func, (made.result, 1), {})

    def _looks_up_ends(self, args: Any) -> bool:
        """Returns whether a lookup takes rows of nodes by the sources or targets of edges."""
        table, index = self._axis(args[0]), args[-1]
        end = self._ends.get(self._by_id.get(id(index), -1))
        if end is None or not isinstance(table, Nodes):
            return False
        edges: Any = self._axis(index)
        source, _, target = edges.name or (None, None, None)
        return table.name == (source, target)[end] and table.hops >= edges.hops - end

    def _is_written_whole(self, number: int) -> bool:
        """Returns whether a write may stay as it is: its memory holds neither rows nor an input."""
        if self.found.axes[number] is FIXED:
            return True
        storage = self._storages[number]
        sharing = [one for one, other in enumerate(self._storages) if other == storage is not None]
        whole = all(self.found.axes[one] is WHOLE for one in sharing)
        return bool(sharing) and whole and not set(sharing) & set(self.found.inputs)

    def _check_written(self, number: int, fixed: bool = False) -> None:
        storage = self._storages[number]
        if fixed or (storage is not None and storage in map(self._storages.__getitem__, self.found.inputs)):
            raise self._refusal("it writes to an input or a parameter")

    def _overwritten(self, old: int, new: int) -> None:
        """Notes that value ``new`` replaces ``old`` and the values that it is a view of. Other
        values in the same memory must not be read any more."""
        storage, now = self._storages[old], {old: new}
        while old in self._views and (base := self._current(self._views[old][0])) not in self._poisoned:
            args = Ref(base), self._views[old][1], Ref(now[old])
            axis, by_row = self._axis_of(rules.with_items, self._shaped(args), {})
            part = self._add(rules.with_items, args, {}, axis, by_row=by_row, value=self._shapes[base])
            now[base], old = part.result.number, base
        for other, its in enumerate(self._storages[: max(now.values())]):
            if storage is not None and its == storage and other not in {*now, *now.values(), *self._now}:
                why = "it writes to a tensor that shares memory with another one"
                self._poisoned[other] = self._refusal(why)
        for one in now.values():
            self._storages[one] = storage
        self._now.update(now)

    def _slice_of(self, ref: Any, dim: Any, start: Any, length: Any) -> tuple[Any, Any] | None:
        """Returns the slice that ``narrow`` takes, as (value, index); None for other calls."""
        if type(dim) is not int or start != 0 or isinstance(start, Ref) or isinstance(length, Ref):
            return None
        dim %= self._shapes[ref.number].dim()
        part = slice(None, length)
        return ref, part if dim == 0 else (*[slice(None)] * dim, part)

    def _axis_of(self, func: Any, args: Any, kwargs: Any) -> tuple[Axis, bool]:
        axes = {self._axis(one) for one in tensors((args, kwargs))}
        if axes <= {FIXED}:
            return (WHOLE if has_counts((args, kwargs)) else FIXED), False
        taken = self._taken(func, args, kwargs)
        if taken is not None:
            return taken
        with_rows = axes - {FIXED}
        if all(isinstance(one, SeedIds) for one in with_rows):
            return (next(iter(with_rows)) if func in _SELECTS else WHOLE), False
        beside = with_rows - {WHOLE}
        if len(beside) != 1:
            return WHOLE, False
        (axis,) = beside
        if func in rules.GETITEM:
            cut = self._cut(args, axis)
            if cut is not None:
                return cut, True
            if isinstance(axis, BatchEdges) and type(args[1]) is int and args[1] in (0, 1, -1, -2):
                return Edges(axis.name, axis.hops), False
        if isinstance(axis, (Nodes, Edges)):
            rows = lambda one: self._axis(one) == axis  # noqa: E731
            if rules.is_by_row(func, args, kwargs, rows, form_of(axis)):
                return axis, True
        return WHOLE, False

    def _taken(self, func: Any, args: Any, kwargs: Any) -> tuple[Axis, bool] | None:
        """Returns the axis of a lookup ``table[index]`` by node, edge or seed, and whether it is by
        row; None for other calls. A lookup of nodes by the ends of edges has a row per edge."""
        if func in rules.INDEX_SELECTS and len(args) == 3:
            if type(args[1]) is not int or args[1] % args[0].dim() != 0:
                return None
            table, index = args[0], args[2]
        elif func in rules.GETITEM and not kwargs and isinstance(args[1], Tensor):
            table, index = args[0], args[1]
        else:
            return None
        ids = index.dim() == 1 and index.dtype in (torch.int64, torch.int32)
        of_table, by_row = self._axis(table), self._axis(index)
        if not ids or not isinstance(by_row, (Nodes, Edges)):
            return None
        if isinstance(of_table, Other) or (isinstance(of_table, Nodes) and of_table.hops == 0):
            return by_row, True
        return (by_row, False) if self._by_id[id(index)] in self._ends else None

    def _cut(self, args: Any, axis: Axis) -> Axis | None:
        index = args[1]
        if isinstance(index, slice):
            dim, part = 0, index
        elif isinstance(axis, BatchEdges) and isinstance(index, tuple) and len(index) == 2:
            dim, part = 1, index[1]
            if index[0] not in (slice(None), Ellipsis) or not isinstance(part, slice):
                return None
        else:
            return None
        starts = part.start is None or (type(part.start) is int and part.start == 0)
        if not starts or part.step is not None or not isinstance(part.stop, Count):
            return None
        return axis_cut(axis, part.stop.form) if form_of(axis, dim) is not None else None

    def _leaf(self, leaf: Leaf) -> list[Ref]:
        path, module = self._modules[leaf.module]
        if leaf.plain is not None:
            made = self._propagated(path, module, leaf)
        elif isinstance(module, MessagePassing):
            made = self._conv(path, module, leaf)
        else:
            made = self._leaf_of_one(path, module, *leaf.args)
        return [leaf.plain] if made is None else [Ref(one) for one in made.results]

    def _conv(self, path: str, module: Any, leaf: Leaf) -> Call:
        (x,), values = leaf.args, dict(leaf.kwargs)
        edge_index = values.pop("edge_index")
        sources, targets = x if isinstance(x, tuple) else (x, x)
        of_nodes = [name for name, one in values.items() if isinstance(self._axis_by_number(one), Nodes)]
        beside = {name: values.pop(name) for name in of_nodes}
        reads = Reads(sources, targets, edge_index, values, beside)
        reason = self._reason_against(reads)
        way: Way | str = f"{_kind(module)} {reason}"
        if reason is None:
            way = self._judge(module, *self._shaped((x, edge_index, {**values, **beside})))
        self._note = way if isinstance(way, str) else ""
        rows = self._axis_by_number(targets)
        axis = rows if isinstance(rows, Nodes) else WHOLE
        named = {"edge_index": edge_index, **values, **beside}
        made = self._add(ModuleCall(path), (x,), named, axis, by_row=False)
        made.reads, made.message_passing = reads, way if isinstance(way, Way) else None
        self._layer += 1
        return made

    def _leaf_of_one(self, path: str, module: torch.nn.Module, x: Any) -> Call:
        axes = {self.found.axes[one] for one in refs(x)}
        axis = axes.pop() if len(axes) == 1 else WHOLE
        least = min(self._shapes[one].dim() for one in refs(x))
        rows = isinstance(axis, (Nodes, Edges))
        takes = least > 1 or rules.kind_of(module) in rules.ACTIVATES
        by_row = rows and takes and rules.computes_rows(module)
        if isinstance(axis, (Nodes, Edges)) and axis.hops > 0 and not by_row:
            self._note = f"{_kind(module)} looks at all rows"
        in_place = getattr(module, "inplace", False)
        if in_place:
            self._check_written(x.number)
        made = self._add(ModuleCall(path), (x,), {}, axis, by_row=by_row)
        if in_place:
            self._overwritten(x.number, made.result.number)
        return made

    def _axis_by_number(self, ref: Any) -> Axis:
        return self.found.axes[ref.number] if isinstance(ref, Ref) else WHOLE

    def _reason_against(self, reads: Reads) -> str | None:
        above, rows, edges = map(self._axis_by_number, (reads.sources, reads.targets, reads.edges))
        values = {self._axis_by_number(one) for one in reads.values.values()} - {FIXED}
        if not isinstance(rows, Nodes) or not isinstance(above, Nodes):
            return "is called with other rows than those of the nodes"
        if not isinstance(edges, BatchEdges):
            return "passes messages over other edges than those of the batch"
        source, _, target = edges.name or (None, None, None)
        if (above.name, rows.name) != (source, target):
            return "is called with rows of other types than those of its edges"
        pairs = reads.sources is not reads.targets
        cut = pairs and rows.hops == edges.hops - 1
        if above.hops != edges.hops or not (rows.hops == edges.hops or cut):
            return "is called with rows and edges of different hops"
        of_nodes = {self._axis_by_number(one) for one in reads.rows.values()}
        if not values <= {Edges(edges.name, edges.hops)} or (of_nodes and (pairs or of_nodes != {above})):
            return "is called with arguments that are values of neither nodes nor edges"
        return None

    def _propagated(self, path: str, conv: Any, leaf: Leaf) -> Call | None:
        (edge_index,), given, plain = leaf.args, leaf.kwargs, leaf.plain
        self._layer += 1
        axes = {name: self._axis_by_number(one) for name, one in given.items()}
        rows = {name: one for name, one in given.items() if isinstance(axes[name], Nodes)}
        values = {name: one for name, one in given.items() if name not in rows}
        if len({axes[name] for name in rows}) != 1:
            reason: str | None = "gives messages values that are of neither nodes nor edges"
        else:
            first, *_ = rows.values()
            begin = {one.number for one in (edge_index, *given.values())}
            reason = self._reason_against(Reads(first, first, edge_index, values))
            reason = reason or foreign.reason_of_own(self.found, plain.number, begin)
        if reason is not None:
            for call in self.found.calls:
                if plain.number in call.results:
                    call.note = f"{_kind(conv)} {reason}; {foreign.how_to_name(conv)}"
            return None
        target, axis = ModuleCall(path, "propagate"), self._axis_by_number(first)
        made = self._add(target, (edge_index,), given, axis, by_row=False)
        made.layer -= 1
        made.reads, made.message_passing = Reads(rows, rows, edge_index, values), Way.TRIMMED
        return made

    def _add(
        self, target: Any, args: Any, kwargs: Any, axis: Axis, *, by_row: bool, value: Any = None
    ) -> Call:
        value = self._node.meta.get("example_value") if value is None else value
        if isinstance(target, ModuleCall):
            (value,) = value
        if target is rules.with_items and not isinstance(value, Tensor):
            value = next(iter(self._node.all_input_nodes)).meta["example_value"]
        kinds = Tensor, torch.SymInt, torch.SymFloat, torch.SymBool
        tree = mapped(value, lambda one: self._new(one, axis) if isinstance(one, kinds) else one)
        if not refs(tree):  # a number that the graph computes, and that is a constant of it
            tree = self._new(value, axis)
        where = place_of(self._node.meta.get("stack_trace") or self._node.stack_trace)
        call = Call(target, tuple(args), dict(kwargs), refs(tree), by_row, self._layer, where, tree=tree)
        call.note, self._note = self._note, ""
        call.files = tuple(re.findall(r'^ *File "(.+?)"', self._node.stack_trace or "", re.MULTILINE))
        if not self._of_nodes.isdisjoint(refs((args, kwargs))):
            self._of_nodes.update(one for one in call.results if isinstance(self.found.axes[one], Edges))
        if isinstance(value, Tensor):
            call.columns = tuple(map(str, value.shape[1:]))
        self.found.calls.append(call)
        return call

    def _refusal(self, reason: str) -> Refusal:
        place = place_of(self._node.stack_trace)
        return Refusal(f"{reason} ({place})" if place else reason)

    def _output(self, node: torch.fx.Node) -> None:
        outputs: Any = node.args[0]
        for one in outputs:
            is_computed = isinstance(one, torch.fx.Node)
            self.found.output.append(self._ref(self._env[one]) if is_computed else one)
            self.found.returned.append(is_computed and one.target is RETURNED)
        returned = [one for one in node.graph.nodes if one.target is RETURNED]
        self.found.result = {one: self._axis_by_number(self._ref(self._env[one])) for one in returned}
        needed, calls = set(refs(self.found.output)), list[Call]()
        for call in reversed(self.found.calls):
            if call.writes or not needed.isdisjoint(call.results):
                needed.update(refs((call.args, call.kwargs)))
                calls.append(call)
        self.found.calls = calls[::-1]


_SELECTS = {*rules.GETITEM, *rules.named(("unbind", "view", "reshape", "flatten"))}


def _shape(value: Any) -> Tensor | None:
    """Returns an example tensor of a fake tensor's shape, with the sizes of the captured batch.
    Sizes that vary are never 0 or 1, which would broadcast."""
    if not isinstance(value, Tensor):
        return None
    sizes = []
    for one in value.shape:
        if isinstance(one, int):
            sizes.append(one)
            continue
        hint = getattr(one.node, "hint", None)
        sizes.append(max(2, int(hint)) if isinstance(hint, int) else 2)
    return torch.empty((), dtype=value.dtype).expand(sizes)


def _constant(value: Any) -> int | None:
    return value.node.maybe_as_int() if isinstance(value, torch.SymInt) else None


def _kind(module: torch.nn.Module) -> str:
    return rules.kind_of(module).__name__
