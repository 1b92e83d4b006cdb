"""Models with a captured ``forward``, which compute what is asked of them (design, section 9)."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import torch
from torch import Tensor
from torch.compiler import is_dynamo_compiling
from torch.utils import _pytree as pytree
from torch_geometric.data import Data, HeteroData
from torch_geometric.nn.conv import MessagePassing
from torch_geometric.nn.dense.linear import is_uninitialized_parameter

from pyg_batchgnn import machine, nn, ops
from pyg_batchgnn.port import foreign
from pyg_batchgnn.port.batches import ArgumentTensor, Bound, bind
from pyg_batchgnn.port.call import SCALARS, Call, Entry, Tracing, first_rows
from pyg_batchgnn.port.capture import Miss, Seen
from pyg_batchgnn.port.leaves import captures
from pyg_batchgnn.port.modules import is_symbolic, is_traced
from pyg_batchgnn.port.recording import Axis, Nodes, Refusal, mapped, tensors
from pyg_batchgnn.port.structure import Memo, prefix
from pyg_batchgnn.types import SampledMinibatch

_MOST_GRAPHS = 16  # of a model
_TOO_MANY = "it was captured {} times for other arguments and attributes"
_BATCHES = (Data, HeteroData, SampledMinibatch)
_NAMES = ("__doc__", "__module__", "__qualname__", "__annotations__")  # as of the user's class


class TracedModel(torch.nn.Module):
    """A user's model that `accelerate` traces. It stands before the user's class, and is called as
    before, with the same results, or as ``model(batch)``."""

    stands_for: ClassVar[type[torch.nn.Module]]
    #: The parameters that a batch gives values to; all where None.
    bound_names: ClassVar[tuple[str, ...] | None] = None

    @functools.cached_property
    def _batchgnn(self) -> Tracing:
        return Tracing()  # of a model that was made by ``type(model)(...)``

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        if is_dynamo_compiling():
            if not captures() and args and isinstance(args[0], _BATCHES):
                return _call_apart(self, *args, **kwargs)  # in the user's torch.compile
            return self.users_forward(self, *args, **kwargs)
        own = self.users_forward
        if is_traced() or is_symbolic(*args, *kwargs.values()):
            return own(self, *args, **kwargs)
        tracing = self._batchgnn
        by_type = isinstance(self, torch.fx.GraphModule)
        bound = bind(own, args, kwargs, rows=tracing.rows, names=self.bound_names, by_type=by_type)
        if bound is None:
            self._tell_of_call(own, (*args, *kwargs.values()))
            return own(self, *args, **kwargs)
        if bound.left_out:
            names = ", ".join(f"{name}=batch.{name}" for name in bound.left_out)
            tracing.warn(
                "left out",
                f"{type(self).__name__} is called without {' and '.join(bound.left_out)} of the batch, "
                f"because forward has a default; to use it, call model(batch, {names})",
            )
        result = plain = run(self, tracing, bound)
        if not isinstance(plain, Plain):
            leaves = pytree.tree_leaves(result) if bound.seeds is not None else ()
            if not all(isinstance(one, (Tensor, *SCALARS)) for one in leaves):
                tracing.warn(
                    "uncut",
                    f"{type(self).__name__} returns a {type(result).__name__}, whose rows model(batch) does "
                    f"not cut to those of the seeds; return tensors, or tuples and dicts of them",
                )
            return result
        try:
            if bound.by_name:
                tensor = lambda one: one.tensor() if isinstance(one, ArgumentTensor) else one  # noqa: E731
                result = own(self, **mapped(dict(bound.arguments), tensor))
            else:
                result = own(self, *args, **kwargs)
        except BaseException:
            plain.forget()  # it may be the call that is wrong
            raise
        if plain.reason is not None:
            tracing.refuse(self, plain.reason, bound.seeds is not None and not plain.cuts)
        elif plain.cuts and bound.seeds is not None and tracing.result is None:
            learn_result(self, tracing, bound)
        return _cut(result, bound, tracing.result) if plain.cuts else result

    def __setattr__(self, name: str, value: Any) -> None:
        super().__setattr__(name, value)
        if name == "forward":
            self.tell_of_own_forward()

    def tell_of_own_forward(self) -> None:
        if "forward" in vars(self):
            self._batchgnn.warn(
                "forward",
                f"{type(self).__name__} has a forward of its own instance, and model(batch) returns what "
                f"that returns; put it on the class, before accelerate(model)",
            )

    @property
    def users_forward(self) -> Callable[..., Any]:
        """The user's ``forward``, as a function of the model and its arguments."""
        if not self._batchgnn.is_sequential:
            return self.stands_for.forward
        signature: Any = self.signature
        return _forward_of_sequential(tuple(signature.param_dict))

    def _tell_of_call(self, forward: Callable[..., Any], given: Sequence[Any]) -> None:
        kinds = [one.kind for one in inspect.signature(forward).parameters.values()]
        tensors = (one for one in given if type(one).__name__ == "SparseTensor" or isinstance(one, Tensor))
        sparse = next((one for one in tensors if getattr(one, "layout", None) is not torch.strided), None)
        name = type(self).__name__
        if inspect.Parameter.VAR_POSITIONAL in kinds:
            text = "it takes *args, whose names are not known; write its parameters out"
        elif any(isinstance(one, SampledMinibatch) for one in given):
            text = "a forward that takes the batch itself needs PyG's batches; leave out export='native'"
        elif sparse is not None:
            text = f"its edges are a {type(sparse).__name__}; give edge_index, without ToSparseTensor"
        elif any(isinstance(one, Mapping) and any(isinstance(key, tuple) for key in one) for one in given):
            text = "its dicts do not hold the rows of every type that its edges join; give all of them"
        else:
            return  # nothing says that it is about a graph
        self._batchgnn.warn("call", f"{name}.forward is called plainly, for all rows, because {text}")

    def __init_subclass__(cls, **options: Any) -> None:
        if "stands_for" not in vars(cls):
            super().__init_subclass__(**options)
        else:  # the user's class is known already to what its bases register; tools see its signature

            @functools.wraps(cls.stands_for.forward)
            def forward(self: TracedModel, *args: Any, **kwargs: Any) -> Any:
                return TracedModel.forward(self, *args, **kwargs)

            type.__setattr__(cls, "forward", forward)


@torch.compiler.disable(reason="model(batch) runs what accelerate captured")  # type: ignore[untyped-decorator]
def _call_apart(model: TracedModel, *args: Any, **kwargs: Any) -> Any:
    return model.forward(*args, **kwargs)


@functools.lru_cache(maxsize=64)
def _forward_of_sequential(names: tuple[str, ...]) -> Callable[..., Any]:
    """Returns a ``forward`` for a `Sequential` of PyG, as a function of it and its arguments. PyG
    generates one per instance but puts it on the class, where another instance's may stand."""

    def forward(self: Any, *args: Any, **kwargs: Any) -> Any:
        values, found = {**dict(zip(names, args, strict=False)), **kwargs}, None
        for child in self._children:
            found = getattr(self, child.name)(*(values[name] for name in child.param_names))
            several = len(child.return_names) > 1
            values.update(zip(child.return_names, found if several else (found,), strict=False))
        return found

    kind = inspect.Parameter.POSITIONAL_OR_KEYWORD
    parameters = [inspect.Parameter(name, kind) for name in ("self", *names)]
    forward.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    return forward


def _reduced(self: TracedModel, _: Any) -> Any:
    """Returns how a copy or pickle rebuilds a model: its class is made again from the user's."""
    state = self.__getstate__() if hasattr(self, "__getstate__") else None
    return _rebuild, (self.stands_for,), self.__dict__ if state is None else state


def _rebuild(kind: Any) -> torch.nn.Module:
    traced = traced_class(kind)
    return traced.__new__(traced)


def _set_on_users(cls: Any, name: str, value: Any) -> None:
    """Sets what is written to an accelerated model's class, as by ``type(self).calls += 1``."""
    type.__setattr__(cls if name.startswith(("__", "_abc_")) else cls.stands_for, name, value)


@functools.cache
def traced_class(kind: Any) -> type[torch.nn.Module]:
    """Returns the class of an accelerated model of class ``kind``, with the same name."""
    meta: Any = type(type(kind).__name__, (type(kind),), {"__setattr__": _set_on_users})
    body = {name: getattr(kind, name) for name in _NAMES}
    body |= {"stands_for": kind, "__reduce_ex__": _reduced}
    return meta(kind.__name__, (TracedModel, kind), body)


@dataclass(frozen=True)
class Plain:
    reason: str | None = None  # if it is a new one
    cuts: bool = True  # the result is cut to the rows of the seeds, as graphs of the model tell
    forget: Callable[[], Any] = lambda: None  # takes the verdict back


def run(model: torch.nn.Module, tracing: Tracing, bound: Bound) -> Any:
    """Runs the captured graph that fits a call, and captures one if there is none. Returns the
    result, or a `Plain` if ``forward`` must be called as it is."""
    modules = list(model.modules())
    if any(map(must_be_called, modules[1:])):
        return Plain()
    if any(is_uninitialized_parameter(own) for one in modules for own in one._parameters.values()):
        return Plain()  # the first plain call says how wide lazy modules are
    _forget_if_changed(type(model), tracing)
    try:
        call = Call(model, tracing, bound, modules)
        arguments = call.arguments()
        entry = _entry(tracing, call)
    except Refusal as refusal:  # of objects in a batch
        return Plain(None if "plain" in tracing.warned else refusal.reason, cuts=False)
    grads = torch.is_grad_enabled()
    if grads in entry.refused:
        return Plain(cuts=entry.refused[grads] == _TOO_MANY.format(_MOST_GRAPHS))
    try:
        try:
            return entry.function.run(model.users_forward, model, arguments, call)
        except Miss:
            if len(tracing.graphs) >= _MOST_GRAPHS:
                entry.refused[grads] = _TOO_MANY.format(_MOST_GRAPHS)
                return Plain(None if "plain" in tracing.warned else entry.refused[grads])
        return call.capture(entry.function, arguments, call, entry.exact)
    except Miss:
        entry.refused[grads] = "TorchDynamo is turned off"
    except Refusal as refusal:
        entry.refused[grads] = refusal.reason
    return Plain(entry.refused[grads], False, functools.partial(entry.refused.pop, grads, None))


def _entry(tracing: Tracing, call: Call) -> Entry:
    """Returns the graphs of a call. Graphs that were captured without 0 among the sizes serve calls
    with a 0 if ``forward`` does the same then; else these calls have their own graphs."""
    pattern, shapes = call.pattern(), enumerate(call.shapes)
    zeros = tuple((place, tuple(map(bool, shape))) for place, shape in shapes if 0 in shape)
    looked: Entry | None = None
    if zeros and (pattern, zeros) not in tracing.differs:
        looked, sure = Entry(), list[bool]()
        call.look(looked.function, lambda captured, _: sure.append(captured.is_sure))
        tracing.differs[pattern, zeros] = sure != [True]
    exact = bool(zeros) and tracing.differs[pattern, zeros]
    place = pattern, zeros if exact else ()
    if place not in tracing.entries:
        tracing.entries[place] = Entry(exact) if exact or looked is None else looked
    return tracing.entries[place]


def encoded_rows(model: torch.nn.Module) -> dict[str | None, tuple[int, int]]:
    """Returns how much work copies of nodes saved in the last batch of an accelerated model, by
    node type (None for the only one): the number of rows with all copies, and the number computed.
    Rows that are made from attributes of a node alone, as by an encoder, are computed once per
    distinct node. Types without copies or such rows may be missing.

    >>> from torch_geometric.nn import Linear, SAGEConv, Sequential
    >>> layers = [(Linear(8, 8), "x -> x"), (SAGEConv(8, 3), "x, edge_index -> x")]
    >>> model = accelerate(Sequential("x, edge_index", layers))
    >>> seeds = torch.arange(8).repeat(4)
    >>> loader = MacrobatchNeighborLoader(data, [5], seeds, batch_size=32, disjoint=True)
    >>> logits = model(next(iter(loader)))
    >>> rows, encoded = encoded_rows(model)[None]
    >>> encoded < rows
    True
    """
    traced = (one._batchgnn.encoded for one in model.modules() if isinstance(one, TracedModel))
    return {name: rows for found in traced for name, rows in found.items()}


@contextmanager
def encode_once(
    model: torch.nn.Module, memory_budget: int | str | None = None, scratch: str | Path | None = None
) -> Iterator[dict[str | None, int]]:
    """In its block, ``model(batch)`` without gradients computes rows that are made from attributes
    of a node alone, as by an encoder, once for all batches. Nodes are found by ``n_id``. A node
    with other attributes is computed again, and so is every node after a parameter, a buffer or an
    option of the model changed; writes through ``.data`` are not seen.

    >>> from torch_geometric.nn import Linear, SAGEConv, Sequential
    >>> layers = [(Linear(8, 8), "x -> x"), (SAGEConv(8, 3), "x, edge_index -> x")]
    >>> model = accelerate(Sequential("x, edge_index", layers)).eval()
    >>> with torch.no_grad(), encode_once(model) as encoded:
    ...     rows = [model(batch) for _ in range(3) for batch in loader]
    >>> encoded[None] <= data.num_nodes
    True

    Args:
        model: a model after `accelerate`.
        memory_budget: bytes (or a text like "2GiB") of rows in memory, half of what is free if
            None. Others lie in files of the folder ``scratch``, which vanish with the block.

    Yields:
        How many rows were computed, by node type (None of the only one).

    Raises:
        TypeError: the model was not accelerated.
        ValueError: ``memory_budget`` is no number of bytes.
    """
    parts = [one._batchgnn for one in model.modules() if isinstance(one, TracedModel)]
    if not parts:
        raise TypeError(
            f"encode_once takes a model that accelerate made fast, got a {type(model).__name__}; call "
            f"accelerate(model) first"
        )
    budget = ops.check_budget(memory_budget)
    memo = Memo(machine.memory().available // 2 if budget is None else budget, scratch)
    try:
        for one in parts:
            one.memo = memo
        yield memo.computed
    finally:
        for one in parts:
            one.memo = None


def learn_result(model: torch.nn.Module, tracing: Tracing, bound: Bound) -> None:
    """Captures a call to learn which results have a row per node, after a call that could not be
    traced because of lazy modules or hooks."""
    try:
        call = Call(model, tracing, bound, list(model.modules()))
        call.arguments()
        entry = _entry(tracing, call)
        reason = call.look(entry.function, lambda captured, _: call.translated(captured), entry.exact)
    except Refusal as refusal:
        reason = refusal.reason
    if reason is not None:
        tracing.result = []
        tracing.refuse(model, reason, True)


def must_be_called(module: torch.nn.Module) -> bool:
    """Returns whether a module has hooks or was changed, so that its own ``forward`` must run. PyG
    does not call hooks on messages while torch compiles."""
    hooked = isinstance(module, MessagePassing) and foreign.has_message_hooks(module)
    changed = isinstance(module, nn.NativeConv) and nn.as_made(module) is None
    return hooked or changed or nn.is_watched(module)


def _forget_if_changed(kind: Any, tracing: Tracing) -> None:
    """Forgets all captured graphs if what they depend on without a guard changed. ``kind``: the
    class of the model, which has the names of the user's class."""
    for name in (*_NAMES, "__name__") if kind.__reduce_ex__ is _reduced else ():
        if getattr(kind, name) != getattr(kind.stands_for, name):
            type.__setattr__(kind, name, getattr(kind.stands_for, name))
    if tracing.seen.has_changed():
        tracing.entries.clear()
        tracing.differs.clear()
        tracing.seen = Seen()


def _cut(result: Any, bound: Bound, axes: Sequence[Axis] | None) -> Any:
    """Cuts the result of an uncaptured call to the rows of the seeds, as a graph would. ``axes``:
    what the rows of each tensor stand for; None cuts nothing."""
    if bound.seeds is None or axes is None or len(tensors(result)) != len(axes):
        return result
    each = iter(axes)

    def cut(leaf: Any) -> Any:
        axis = next(each) if isinstance(leaf, Tensor) else None
        if not isinstance(axis, Nodes) or not leaf.dim():
            return leaf
        every = prefix(bound.structure, "nodes", axis.name, min(axis.hops, bound.structure.hops))
        return first_rows(leaf, axis, bound) if leaf.size(0) == every else leaf

    return mapped(result, cut)
