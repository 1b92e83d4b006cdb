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
            "train": {"nodes": input_train_nodes, "time": input_train_time},
            "val": {"nodes": input_val_nodes, "time": input_val_time},
            "test": {"nodes": input_test_nodes, "time": input_test_time},
            "pred": {"nodes": input_pred_nodes, "time": input_pred_time},
        }
        for split, one in given.items():
            one["nodes"] = infer_input_nodes(data, split) if one["nodes"] is None else one["nodes"]
        if given["val"]["nodes"] is None:
            given["val"]["nodes"] = infer_input_nodes(data, "valid")
        _prepare(self, data, given, "nodes", eval_loader_kwargs, kwargs)

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
        """Returns the loader of these seed nodes, with the module's options."""
        del node_sampler, input_id  # PyG's own
        return MacrobatchNeighborLoader(self.data, input_nodes=input_nodes, input_time=input_time, **kwargs)


class LightningLinkData(pyg_modules.LightningLinkData):
    """PyG's `LightningLinkData` whose loaders are `MacrobatchLinkNeighborLoader`.

    >>> links = data.edge_index[:, :64]
    >>> module = LightningLinkData(data, links, num_neighbors=[10, 5], batch_size=32)
    >>> next(iter(module.train_dataloader())).edge_label_index.shape
    torch.Size([2, 32])

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
        train = {"edges": input_train_edges, "labels": input_train_labels, "time": input_train_time}
        val = {"edges": input_val_edges, "labels": input_val_labels, "time": input_val_time}
        test = {"edges": input_test_edges, "labels": input_test_labels, "time": input_test_time}
        pred = {"edges": input_pred_edges, "labels": input_pred_labels, "time": input_pred_time}
        given = {"train": train, "val": val, "test": test, "pred": pred}
        _prepare(self, data, given, "edges", eval_loader_kwargs, kwargs)

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
        """Returns the loader of these seed links, with the module's options."""
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
    given: Mapping[str, Mapping[str, Any]],
    what: str,
    eval_options: Mapping[str, Any] | None,
    options: dict[str, Any],
) -> None:
    """Does what PyG's constructor does, without making PyG's sampler, which needs pyg-lib.
    ``given``: by split, the seed nodes or edges (``what``), their times and their labels."""
    if "num_neighbors" not in options:
        raise TypeError(f"{type(module).__name__} needs num_neighbors, as in num_neighbors=[15, 10]")
    for name in ("loader", "node_sampler", "link_sampler"):
        if name in options:
            raise TypeError(
                f"{name} does not go with {type(module).__name__}, whose loaders are this package's; "
                "leave it out, or take torch_geometric's data module"
            )
    options.setdefault("pin_memory", torch.cuda.is_available())
    has_val, has_test = given["val"][what] is not None, given["test"][what] is not None
    LightningDataModule.__init__(module, has_val=has_val, has_test=has_test, **options)
    module.data, module.loader = data, "neighbor"
    module.loader_kwargs = module.kwargs
    module.eval_loader_kwargs = {**module.kwargs, **(eval_options or {})}
    module.eval_loader_kwargs.pop("sampler", None)
    module.eval_loader_kwargs.pop("batch_sampler", None)
    for split, values in given.items():
        for name, value in {**values, "id": None}.items():
            setattr(module, f"input_{split}_{name}", value)
