"""The layers of a model and the loop over them, for native layers and for PyG's alike."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, ClassVar, NamedTuple

import torch
from torch import Tensor
from torch_geometric.nn.conv import MessagePassing
from torch_geometric.nn.models.basic_gnn import BasicGNN

from pyg_batchgnn.nn.arguments import input_columns, positive, probability
from pyg_batchgnn.nn.inputs import Rows, head
from pyg_batchgnn.nn.rows import NormedRows

_JK_MODES = ("last", "cat", "max", "lstm")


class ModelOutput(NamedTuple):
    """The result of a forward pass. Its rows are the seed nodes of a minibatch or all nodes of a
    graph.

    Attributes:
        logits: [S, out_channels] float32, or float64 from float64 weights.
        hidden: [S, C], the input of the last layer, which is the last linear layer if there is
            jumping knowledge. In a model of one layer these are the features.
    """

    logits: Tensor
    hidden: Tensor


class LayerStack(BasicGNN):
    """PyG's `BasicGNN` whose layers compute only the rows that are read.

    The constructor and the ``state_dict`` are PyG's. A subclass says how one layer is computed.

    Args:
        in_channels: the number of columns of the features; -1 takes it from the first call.
        hidden_channels: the number of columns between layers.
        num_layers: the number of convolutions.
        out_channels: the number of columns of the result; `hidden_channels` where None.
        dropout: the probability of zeroing an element after a layer in training mode, in [0, 1).
        act: the activation after a layer: a name of ``torch.nn``, a module, or None.
        act_first: applies the activation before the normalisation, not after it.
        act_kwargs: the arguments of an activation that is given by name.
        norm: the normalisation after a layer: a name of ``torch_geometric.nn.norm``, a module of
            `hidden_channels` columns, or None.
        norm_kwargs: the arguments of a normalisation that is given by name.
        jk: jumping knowledge, from the results of all layers to a linear layer: "last", "cat",
            "max" or "lstm"; None has neither.
        **kwargs: the other arguments of the convolutions.

    Raises:
        TypeError, ValueError: an argument is not supported.
    """

    #: The class of the convolutions.
    conv: ClassVar[Callable[..., MessagePassing]]
    supports_edge_weight = False
    supports_edge_attr = False

    def __init__(
        self,
        in_channels: int,
        hidden_channels: int,
        num_layers: int,
        out_channels: int | None = None,
        dropout: float = 0.0,
        act: str | Callable[[Tensor], Tensor] | None = "relu",
        act_first: bool = False,
        act_kwargs: dict[str, Any] | None = None,
        norm: str | torch.nn.Module | None = None,
        norm_kwargs: dict[str, Any] | None = None,
        jk: str | None = None,
        **kwargs: Any,
    ) -> None:
        _check_modules(act, norm, jk)
        with _unknown_names_refused(type(self).__name__, kwargs):
            super().__init__(
                input_columns("in_channels", in_channels),
                positive("hidden_channels", hidden_channels),
                positive("num_layers", num_layers),
                None if out_channels is None else positive("out_channels", out_channels),
                probability("dropout", dropout),
                act,
                act_first,
                act_kwargs,
                norm,
                norm_kwargs,
                jk,
                **kwargs,
            )

    def init_conv(self, in_channels: int, out_channels: int, **kwargs: Any) -> MessagePassing:
        """Returns a new convolution."""
        return type(self).conv(in_channels, out_channels, **kwargs)

    def compute(self, index: int, x: Any, edges: Any) -> Any:
        """Computes layer ``index`` (from 0) and what follows it, from its input and its edges."""
        raise NotImplementedError

    def is_followed(self, index: int) -> bool:
        """Returns whether normalisation, activation and dropout follow a convolution: all but the
        last, and that too if there is jumping knowledge."""
        return index < len(self.convs) - 1 or self.jk_mode is not None

    def _inputs(self, x: Any, edges: Any) -> Any:  # noqa: ARG002
        """Returns the input of a layer. A model may override it to add rows to the result of the
        layer before."""
        return x

    def _compute_rows(self, index: int, x: Any, edges: Any) -> Any:
        """Calls `compute`. A model may override it to leave a part to the layer that reads the
        result."""
        return self.compute(index, x, edges)

    def _run(self, x: Any, edges: Sequence[Any], rows: int | None = None) -> ModelOutput:
        """Computes all layers.

        Args:
            x: the input of the first layer.
            edges: of each layer, the one next to the input first.
            rows: the number of first rows that are wanted; all that the last layer computes if
                None.
        """
        hidden, states = x, []
        for index, of_layer in enumerate(edges):
            hidden, x = x, self._compute_rows(index, self._inputs(x, of_layer), of_layer)
            states.append(x)
        rows = x.size(0) if rows is None else rows
        x = head(x, rows)
        if self.jk_mode is None:
            return ModelOutput(wide(x), values(hidden, rows))
        if self.keeps_all_layers:
            x = self.jk([state[:rows] for state in states])
        return ModelOutput(wide(self.lin(x)), x)

    @property
    def keeps_all_layers(self) -> bool:
        """True if the results of all layers are read at the end."""
        return hasattr(self, "jk")


@contextlib.contextmanager
def _unknown_names_refused(model: str, given: Mapping[str, Any]) -> Iterator[None]:
    """Says that a model has no such argument where the base class of PyG's layers complains."""
    try:
        yield
    except TypeError as error:
        found = re.search(r"unexpected keyword argument '(\w+)'", str(error))
        if found is None or found[1] not in given:
            raise
        raise TypeError(
            f"{model} has no argument {found[1]!r}; its arguments are PyG's: "
            f"{model}(in_channels, hidden_channels, num_layers, out_channels, ...)"
        ) from None


def _check_modules(act: Any, norm: Any, jk: Any) -> None:
    """Checks what may be given by name. PyG refuses names that it does not know."""
    if act is not None and not isinstance(act, str) and (isinstance(act, type) or not callable(act)):
        raise TypeError(f"act must be a name of torch.nn, a module or None, got {act!r}")
    if norm is not None and not isinstance(norm, (str, torch.nn.Module)):
        raise TypeError(f"norm must be a name of torch_geometric.nn.norm, a module or None, got {norm!r}")
    if jk is not None and jk not in _JK_MODES:
        raise ValueError(f"jk must be None or one of {', '.join(_JK_MODES)}, got {jk!r}")


def values(x: Rows | NormedRows, rows: int) -> Tensor:
    """Returns the first rows as values."""
    first = x.head(rows) if isinstance(x, NormedRows) else head(x, rows)
    return first if isinstance(first, Tensor) else first.gather()


def wide(x: Tensor) -> Tensor:
    """Returns the rows in float32 if they are bfloat16."""
    return x.float() if x.dtype == torch.bfloat16 else x
