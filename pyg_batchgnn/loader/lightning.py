"""PyG's data modules for Lightning, with the loaders of this package."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar

import torch
from torch_geometric.data import Data, HeteroData
from torch_geometric.data import lightning as pyg_modules
from torch_geometric.data.lightning.datamodule import LightningDataModule, infer_input_nodes
from torch_geometric.typing import InputEdges, InputNodes, OptTensor

from pyg_batchgnn.loader.neighbor_loader import MacrobatchLinkNeighborLoader, MacrobatchNeighborLoader

_Loader = TypeVar("_Loader", MacrobatchNeighborLoader, MacrobatchLinkNeighborLoader)


class LightningNodeData(pyg_modules.LightningNodeData):
    """PyG's `LightningNodeData` whose loaders are `MacrobatchNeighborLoader`.

    With several devices Lightning's own sampler deals the nodes to the processes. Each process then
    samples from the whole graph.

    >>> module = LightningNodeData(data, data.train_mask, num_neighbors=[10, 5], batch_size=32)
    >>> batch = next(iter(module.train_dataloader()))

    Args:
        data: the graph.
        input_train_nodes, input_val_nodes, input_test_nodes, input_pred_nodes: the seed nodes, as
            `NeighborLoader` takes them. None looks for ``train_mask``, ``train_idx`` or
            ``train_index``, and so for "val" (or "valid"), "test" and "pred".
        input_train_time, input_val_time, input_test_time, input_pred_time: [S], the times of the
            seed nodes.
        eval_loader_kwargs: options that differ in validation, test and prediction.
        kwargs: all other options of `MacrobatchNeighborLoader`; ``num_neighbors`` is needed.

    Raises:
        TypeError: an option is unknown, or ``num_neighbors`` is missing.
    """

    def __init__(
        self,
        data: Data | HeteroData,
        input_train_nodes: InputNodes = None,
        input_train_time: OptTensor = None,
        input_val_nodes: InputNodes = None,
        input_val_time: OptTensor = None,
        input_test_nodes: InputNodes = None,
        input_test_time: OptTensor = None,
        input_pred_nodes: InputNodes = None,
        input_pred_time: OptTensor = None,
        *,
        eval_loader_kwargs: Mapping[str, Any] | None = None,
        **kwargs: Any,
    ) -> None:
        given = {
            "train": (input_train_nodes, input_train_time),
            "val": (input_val_nodes, input_val_time),
            "test": (input_test_nodes, input_test_time),
            "pred": (input_pred_nodes, input_pred_time),
        }
        nodes = {}
        for split, (chosen, _) in given.items():
            nodes[split] = infer_input_nodes(data, split) if chosen is None else chosen
        if nodes["val"] is None:
            nodes["val"] = infer_input_nodes(data, "valid")
        _prepare(self, data, nodes["val"], nodes["test"], eval_loader_kwargs, kwargs)
        for split, (_, time) in given.items():
            setattr(self, f"input_{split}_nodes", nodes[split])
            setattr(self, f"input_{split}_time", time)
            setattr(self, f"input_{split}_id", None)

    def train_dataloader(self) -> MacrobatchNeighborLoader:
        """Returns the loader of the training nodes, at the epoch in which the trainer is."""
        return _at_epoch_of(self.trainer, super().train_dataloader())

    def dataloader(
        self,
        input_nodes: InputNodes,
        input_time: OptTensor = None,
        input_id: OptTensor = None,
        node_sampler: None = None,
        **kwargs: Any,
    ) -> MacrobatchNeighborLoader:
        """Returns the loader of some nodes."""
        del node_sampler, input_id  # PyG's own
        return MacrobatchNeighborLoader(self.data, input_nodes=input_nodes, input_time=input_time, **kwargs)


class LightningLinkData(pyg_modules.LightningLinkData):
    """PyG's `LightningLinkData` whose loaders are `MacrobatchLinkNeighborLoader`.

    Args:
        data: the graph.
        input_train_edges, input_val_edges, input_test_edges, input_pred_edges: the seed links, as
            `LinkNeighborLoader` takes them for ``edge_label_index``.
        input_train_labels, input_val_labels, input_test_labels, input_pred_labels: [S], their
            labels.
        input_train_time, input_val_time, input_test_time, input_pred_time: [S], their times.
        eval_loader_kwargs: options that differ in validation, test and prediction.
        kwargs: all other options of `MacrobatchLinkNeighborLoader`; ``num_neighbors`` is needed.

    Raises:
        TypeError: an option is unknown, or ``num_neighbors`` is missing.
    """

    def __init__(
        self,
        data: Data | HeteroData,
        input_train_edges: InputEdges = None,
        input_train_labels: OptTensor = None,
        input_train_time: OptTensor = None,
        input_val_edges: InputEdges = None,
        input_val_labels: OptTensor = None,
        input_val_time: OptTensor = None,
        input_test_edges: InputEdges = None,
        input_test_labels: OptTensor = None,
        input_test_time: OptTensor = None,
        input_pred_edges: InputEdges = None,
        input_pred_labels: OptTensor = None,
        input_pred_time: OptTensor = None,
        *,
        eval_loader_kwargs: Mapping[str, Any] | None = None,
        **kwargs: Any,
    ) -> None:
        given = {
            "train": (input_train_edges, input_train_labels, input_train_time),
            "val": (input_val_edges, input_val_labels, input_val_time),
            "test": (input_test_edges, input_test_labels, input_test_time),
            "pred": (input_pred_edges, input_pred_labels, input_pred_time),
        }
        _prepare(self, data, input_val_edges, input_test_edges, eval_loader_kwargs, kwargs)
        for split, (edges, labels, time) in given.items():
            setattr(self, f"input_{split}_edges", edges)
            setattr(self, f"input_{split}_labels", labels)
            setattr(self, f"input_{split}_time", time)
            setattr(self, f"input_{split}_id", None)

    def train_dataloader(self) -> MacrobatchLinkNeighborLoader:
        """Returns the loader of the training links, at the epoch in which the trainer is."""
        return _at_epoch_of(self.trainer, super().train_dataloader())

    def dataloader(
        self,
        input_edges: InputEdges,
        input_labels: OptTensor = None,
        input_time: OptTensor = None,
        input_id: OptTensor = None,
        link_sampler: None = None,
        **kwargs: Any,
    ) -> MacrobatchLinkNeighborLoader:
        """Returns the loader of some links."""
        del link_sampler, input_id  # PyG's own
        labels = {"edge_label": input_labels, "edge_label_time": input_time}
        return MacrobatchLinkNeighborLoader(self.data, edge_label_index=input_edges, **labels, **kwargs)


def _at_epoch_of(trainer: Any, loader: _Loader) -> _Loader:
    """Lets a new loader begin with the epoch that a trainer begins, and keep to its epochs.
    Lightning loads the state of a loader only in the middle of an epoch, makes an iterator too many
    where it reloads loaders, and tells samplers which epoch it is."""
    if trainer is not None:
        loader.set_epoch(trainer.fit_loop.epoch_progress.current.processed)
        sampler: Any = loader.sampler
        if not hasattr(sampler, "set_epoch"):  # the loader's own
            sampler.set_epoch = loader._position.set_epoch
    return loader


def _prepare(
    module: pyg_modules.LightningNodeData | pyg_modules.LightningLinkData,
    data: Data | HeteroData,
    val: Any,
    test: Any,
    eval_options: Mapping[str, Any] | None,
    options: dict[str, Any],
) -> None:
    """Does what PyG's constructor does, but for making PyG's sampler, which needs pyg-lib."""
    if "num_neighbors" not in options:
        raise TypeError(f"{type(module).__name__} needs num_neighbors, as in num_neighbors=[15, 10]")
    for name in ("loader", "node_sampler", "link_sampler"):
        if name in options:
            raise TypeError(
                f"{name} does not go with {type(module).__name__}, whose loaders are this package's; "
                "leave it out, or take torch_geometric's data module"
            )
    options.setdefault("pin_memory", torch.cuda.is_available())
    LightningDataModule.__init__(module, has_val=val is not None, has_test=test is not None, **options)
    module.data, module.loader = data, "neighbor"
    module.loader_kwargs = module.kwargs
    module.eval_loader_kwargs = {**module.kwargs, **(eval_options or {})}
    module.eval_loader_kwargs.pop("sampler", None)
    module.eval_loader_kwargs.pop("batch_sampler", None)
