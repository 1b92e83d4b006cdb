"""The loop over the layers of a native model, and what follows a convolution."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
import torch_geometric.nn
from torch import Tensor

from pyg_batchgnn import ops
from pyg_batchgnn.nn.inputs import Rows, head
from pyg_batchgnn.nn.modules import BatchNorm, is_watched, row_norm
from pyg_batchgnn.nn.terms import Update
from pyg_batchgnn.types import Relation


class ModelOutput(NamedTuple):
    """The result of a model for the seed nodes of a minibatch, or for all nodes."""

    logits: Tensor  # [S, out_channels] float32, or float64 from float64 weights
    # [S, C], the input of the last layer, which is the last linear layer if there is jumping
    # knowledge. In a model of one layer these are the features.
    hidden: Tensor


def wrong_hops(layers: int, hops: int | None, hint: str = "") -> ValueError:
    """Returns the error for a minibatch with another number of hops than the model has layers."""
    return ValueError(
        f"a model of {layers} layers needs minibatches of {layers} hops, but this one has {hops}; "
        f"give the loader {layers} entries in num_neighbors{hint}"
    )


def run_layers(
    compute: Callable[[int, Any], Any], layers: int, x: Any, *, keep_all: bool
) -> tuple[Any, list[Any]]:
    """Calls ``compute(index, x)`` for each layer with the result of the one before. Returns the
    input of the last layer, and the results of all layers, or of the last without ``keep_all``."""
    before: Any = x
    results: list[Any] = []
    for index in range(layers):
        before, x = x, compute(index, x)
        results = [*results, x] if keep_all else [x]
    return before, results


def module_key(names: str | Relation) -> str:
    """Returns the name of the module of a type or relation, as PyG's `to_hetero` forms it."""
    text = names if isinstance(names, str) else "__".join(names)
    return text.replace(" ", "_").replace("-", "_").replace(":", "_")


def end_of(model: torch.nn.Module, node_type: str) -> list[Any]:
    """Returns the jumping knowledge and the linear layer behind a model's layers, None if it has
    none. A typed model has one of each per node type."""
    parts: list[Any] = [model._modules.get(name) for name in ("jk", "lin")]
    key = module_key(node_type)
    return [one[key] if isinstance(one, torch.nn.ModuleDict) else one for one in parts]


def last_rows(results: Sequence[Any], rows: int, knowledge: torch.nn.Module | None) -> Tensor:
    """Returns the first ``rows`` rows of the last layer's result, or of the jumping knowledge."""
    if knowledge is not None:
        joined: Tensor = knowledge([one[:rows] for one in results])
        return joined
    return _values(results[-1], rows)


def model_output(
    model: torch.nn.Module, before: Any, results: Sequence[Any], rows: int, node_type: str = ""
) -> ModelOutput:
    """Returns the output of a model for its first ``rows`` rows, of one type in a typed model."""
    knowledge, last = end_of(model, node_type)
    out = last_rows(results, rows, knowledge)
    if last is not None:
        return ModelOutput(wide(last(out)), out)
    return ModelOutput(wide(out), out[:, :0] if before is None else _values(before, rows))


def _values(x: Rows, rows: int) -> Tensor:
    first = head(x, rows)
    return first if isinstance(first, Tensor) else first.gather()


def wide(x: Tensor) -> Tensor:
    return x.float() if x.dtype == torch.bfloat16 else x


def fuses_relu(act: Any) -> bool:
    """Returns whether an activation is a ReLU without hooks, which a product can compute."""
    return type(act) is torch.nn.ReLU and not is_watched(act)


def fused_norm(norm: torch.nn.Module) -> BatchNorm | None:
    """Returns the native batch normalisation with ReLU inside an unwatched module, or None."""
    inside = norm.module if type(norm) is torch_geometric.nn.BatchNorm and not is_watched(norm) else None
    return inside if isinstance(inside, BatchNorm) and inside.relu else None


def is_row_wise_norm(norm: torch.nn.Module) -> bool:
    """Returns whether a normalisation works row by row, and its gradient without its result."""
    if type(norm) is torch.nn.LayerNorm:
        return len(norm.normalized_shape) == 1
    is_by_node = type(norm) is torch_geometric.nn.LayerNorm and norm.mode == "node"
    return is_by_node or type(norm) is torch.nn.Identity


@dataclass(frozen=True)
class LayerEnd:
    """The steps that follow a convolution: normalisation, activation and dropout."""

    norm: torch.nn.Module
    act: Callable[[Tensor], Tensor] | None
    act_first: bool  # applies the activation before the normalisation, not after it
    drop: float
    fuses_drop: bool = True  # whether the convolution can drop elements in its own pass

    def apply(
        self,
        convolve: Callable[[Update | None], Tensor],
        dropout: Callable[[], tuple[int, Tensor | None]],
        normed: Callable[[BatchNorm], Tensor] | None = None,
    ) -> Tensor:
        """Returns a layer's rows after all steps, in as few passes as possible. ``convolve``:
        computes the convolution with an `Update`. ``dropout``: returns key and node ids.
        ``normed``: computes convolution and batch normalisation together."""
        relu = fuses_relu(self.act)
        norm = fused_norm(self.norm) if relu else None
        plain = type(self.norm) is torch.nn.Identity and (relu or self.act is None)
        if plain and (self.fuses_drop or self.drop == 0.0):
            return convolve(Update(relu=relu, drop=self.drop))
        relu_is_left = False
        if relu and self.act_first:
            out = self.norm(convolve(Update(relu=True)))
        elif norm is not None:
            out = self.norm(convolve(None)) if normed is None else normed(norm)
        else:
            out = convolve(None)
            # ReLU may overwrite the normalised rows where no gradient needs them.
            inside = self.norm.module if type(self.norm) is torch_geometric.nn.BatchNorm else None
            relu_is_left = relu and (isinstance(inside, BatchNorm) or is_row_wise_norm(self.norm))
            by_row = row_norm(self.norm, out) if relu_is_left or self.act is None else None
            if by_row is not None:
                key, node = dropout() if self.drop > 0.0 else (0, None)
                return ops.layer_norm(out, *by_row, relu=relu, drop=self.drop, key=key, node=node)
            steps: list[Any] = [self.norm] if relu_is_left or self.act is None else [self.norm, self.act]
            for step in reversed(steps) if self.act_first else steps:
                out = step(out)
        if self.drop == 0.0 and not relu_is_left:
            return out
        key, node = dropout() if self.drop > 0.0 else (0, None)
        # Autograd may need the values that dropout alone would overwrite.
        out = out if relu_is_left else out.clone()
        return ops.activate(out, relu=relu_is_left, drop=self.drop, key=key, node=node)
