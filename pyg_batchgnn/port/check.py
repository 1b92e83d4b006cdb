"""The comparison of a new program with the graph that it was made of: rows and gradients.

The graph is run as it is, on all rows, with the plain ``forward`` of leaves; so nothing of the
user's code runs twice. Both are run on small parts of the batch, in float64, with copies of the
parameters that have random numbers in the place of zeros: a factor of zero hides rows that are
wrong.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor
from torch.nn.utils.stateless import _reparametrize_module
from torch.overrides import TorchFunctionMode
from torch_geometric.nn.conv import MessagePassing

from pyg_batchgnn.port import foreign, rules
from pyg_batchgnn.port.batches import ArgumentTensor
from pyg_batchgnn.port.capture import Captured
from pyg_batchgnn.port.execution import Frame, run
from pyg_batchgnn.port.graph_run import run_graph
from pyg_batchgnn.port.inputs import Accelerated
from pyg_batchgnn.port.program import Program
from pyg_batchgnn.port.recording import Ref
from pyg_batchgnn.port.small_batches import SmallBatch, small_batches
from pyg_batchgnn.port.structure import Structure, prefix
from pyg_batchgnn.port.values import BatchEdges, Count, Nodes, form_of

#: Tensors of more elements are compared in their own dtype, without a copy.
_MOST_ELEMENTS = 1 << 24


def difference(
    captured: Captured,
    program: Program,
    model: torch.nn.Module,
    structure: Structure,
    leaves: Sequence[ArgumentTensor],
    places: Sequence[int | None],
    values: Sequence[Any],
) -> str | None:
    """Returns how the rows or gradients of a program differ from those of its graph, or None.

    Args:
        leaves: the tensors of the arguments.
        places: of each placeholder, its number among them, or None.
        values: of the placeholders, in the call that captured the graph.
    """
    trial = _Trial(captured, program, model, list(leaves), places, values)
    generator = torch.random.get_rng_state()
    try:
        small = list(small_batches(structure, trial.leaves))
        for batches, wide in ((small, True), (small, False), ([None], False)):
            if batches:
                try:
                    return trial.difference(batches, structure, wide)
                except _NoReferenceError as error:
                    reason = str(error)
        return f"its graph cannot be run by itself: {reason}"
    finally:
        torch.random.set_rng_state(generator)


class _NoReferenceError(Exception):
    """The graph itself fails on a part of a batch, or in float64."""


class _WithoutDropout(TorchFunctionMode):
    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func in rules.DROPOUTS:
            return args[0] if args else kwargs["input"]
        return func(*args, **(kwargs or {}))


class _Trial:
    """One comparison."""

    def __init__(
        self,
        captured: Captured,
        program: Program,
        model: torch.nn.Module,
        leaves: list[ArgumentTensor],
        places: Sequence[int | None],
        values: Sequence[Any],
    ) -> None:
        self.captured, self.program, self.model = captured, program, model
        self.leaves, self._places, self._values = leaves, places, values
        self._random = torch.Generator().manual_seed(5)

    def difference(
        self, batches: Sequence[SmallBatch | None], structure: Structure, wide: bool
    ) -> str | None:
        grads = torch.is_grad_enabled() and not torch.is_inference_mode_enabled()
        for batch in batches:
            modes = torch.inference_mode(False), torch.set_grad_enabled(grads)
            with modes[0], modes[1], torch.autocast("cpu", enabled=False), _calm(self.model):
                clones = self._clones(wide)
                named = {name: clones[id(one)] for name, one in self._tensors_of_model()}
                hooks = torch.autograd.graph.saved_tensors_hooks(_same, _same)
                with _reparametrize_module(self.model, named), _WithoutDropout(), hooks:
                    reason = self._differs(batch, batch.structure if batch else structure, clones, wide)
            if reason is not None:
                return reason
        return None

    def _tensors_of_model(self) -> list[tuple[str, Tensor]]:
        return [*self.model.named_parameters(), *self.model.named_buffers()]

    def _clones(self, wide: bool) -> dict[int, Tensor]:
        """Returns copies of the parameters and buffers, by the ids of the originals."""
        found = {}
        for _, one in self._tensors_of_model():
            made = self._clone(one, wide)
            if one.requires_grad:
                made = torch.nn.Parameter(made)
            found[id(one)] = made
        return found

    def _clone(self, one: Tensor, wide: bool) -> Tensor:
        made = one.detach()
        if made.numel() > _MOST_ELEMENTS:
            return made
        made = made.clone()
        if made.is_floating_point():
            made = made.double() if wide else made
            noise = torch.rand(made.shape, generator=self._random, dtype=torch.float64) + 0.5
            made = torch.where(made == 0, noise.to(made.dtype), made)
        return made

    def _differs(
        self, batch: SmallBatch | None, structure: Structure, clones: Mapping[int, Tensor], wide: bool
    ) -> str | None:
        try:
            inputs = self._inputs(batch, structure, clones, wide)
            expected = run_graph(self.captured, inputs, self.model, _pygs)
        except Exception as error:
            raise _NoReferenceError(f"{type(error).__name__}: {error}") from error
        expected = [self._first(one, number, structure) for number, one in enumerate(expected)]
        try:
            found = run(self.program, Frame(self.model, structure, {}, drops=False), list(inputs))
        except Exception as error:
            return f"its rows could not be computed by themselves: {type(error).__name__}: {error}"
        tolerance = 1e-6 if wide else 3e-2
        for one, other in zip(expected, found, strict=True):
            if not _is_close(one, other, tolerance):
                return "its result differed from that of the plain forward"
        leaves = [one for one in (*inputs, *clones.values()) if isinstance(one, Tensor) and one.requires_grad]
        if leaves and not self._same_gradients(expected, found, leaves, tolerance):
            return "its gradients differed from those of the plain forward"
        return None

    def _inputs(
        self, batch: SmallBatch | None, structure: Structure, clones: Mapping[int, Tensor], wide: bool
    ) -> list[Any]:
        """Returns the values of the placeholders for a part of the batch."""
        made: list[Any] = []
        each = zip(self._values, self._places, self.captured.places, self.captured.dims, strict=True)
        for value, leaf, place, dim in each:
            if leaf is not None:
                made.append(self._leaf(self.leaves[leaf], batch, wide))
            elif isinstance(place, Count):
                made.append(place.form.value(structure.counter))
            elif isinstance(place, ArgumentTensor) and dim is not None:
                made.append(_size(place, dim, structure, value))
            elif isinstance(value, Tensor):
                made.append(clones[id(value)] if id(value) in clones else self._clone(value, wide))
            else:
                made.append(0.7 if isinstance(value, float) and value == 0.0 else value)
        return made

    def _leaf(self, leaf: ArgumentTensor, batch: SmallBatch | None, wide: bool) -> Tensor:
        value = leaf.tensor().detach() if batch is None else batch.value(leaf)
        if value.is_floating_point() and wide:
            value = value.double()
        needs = isinstance(leaf.value, Tensor) and leaf.value.requires_grad
        return value.clone().requires_grad_() if needs and torch.is_grad_enabled() else value.clone()

    def _first(self, one: Any, number: int, structure: Structure) -> Any:
        """Returns the rows of an output that the program computes."""
        output, recording = self.program.recording.output[number], self.program.recording
        if not isinstance(output, Ref) or not isinstance(one, Tensor):
            return one
        axis = recording.axes[output.number]
        first = self.program.seeds and recording.returned[number] and isinstance(axis, Nodes)
        return one[: prefix(structure, "nodes", axis.name, 0)] if first else one  # type: ignore[union-attr]

    def _same_gradients(
        self, expected: Sequence[Any], found: Sequence[Any], leaves: Sequence[Tensor], tolerance: float
    ) -> bool:
        pairs = [
            (one, other)
            for one, other in zip(expected, found, strict=True)
            if isinstance(one, Tensor) and one.requires_grad
        ]
        if not pairs:
            return not any(isinstance(one, Tensor) and one.requires_grad for one in found)
        if not all(other.requires_grad for _, other in pairs):
            return False
        upstream = [
            torch.randn(one.shape, generator=self._random, dtype=torch.float64).to(one.dtype)
            for one, _ in pairs
        ]
        both = [
            torch.autograd.grad(
                outputs, leaves, upstream, allow_unused=True, materialize_grads=True, retain_graph=True
            )
            for outputs in zip(*pairs, strict=True)
        ]
        return all(_is_close(one, other, tolerance) for one, other in zip(*both, strict=True))


def _same(one: Any) -> Any:
    return one


def _pygs(module: Any) -> Callable[..., Any]:
    """Returns the ``forward`` that PyG or torch wrote, of a module that may have been made
    native."""
    if isinstance(module, Accelerated):
        return functools.partial(module.stands_for.forward, module)
    call: Callable[..., Any] = module
    return call


def _size(place: ArgumentTensor, dim: int, structure: Structure, value: Any) -> Any:
    form = form_of(place.axis)
    rows = form is not None and dim == isinstance(place.axis, BatchEdges)
    return form.value(structure.counter) if rows and form is not None else value


@contextmanager
def _calm(model: torch.nn.Module) -> Iterator[None]:
    """Sets all modules to evaluation mode, but for layers of the user's own, whose ``message`` was
    captured in the mode that they have."""
    were = [(one, one.training) for one in model.modules()]
    try:
        for one, _ in were:
            if not (isinstance(one, MessagePassing) and foreign.is_users(one)):
                one.training = False
        yield
    finally:
        for one, training in were:
            one.training = training


def _is_close(one: Any, other: Any, tolerance: float) -> bool:
    if not isinstance(one, Tensor) or not isinstance(other, Tensor):
        return bool(one == other)
    if one.shape != other.shape or one.dtype != other.dtype:
        return False
    if not one.is_floating_point():
        return torch.equal(one, other)
    wide = one.detach().double()
    scale = float(wide.abs().nan_to_num().amax()) if wide.numel() else 0.0
    return torch.allclose(
        other.detach().double(), wide, rtol=tolerance, atol=tolerance * scale + 1e-12, equal_nan=True
    )
