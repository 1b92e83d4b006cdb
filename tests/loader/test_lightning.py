"""Lightning trains on our loaders through data modules that take PyG's arguments."""

from __future__ import annotations

import inspect
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from torch_geometric.data import Data
from torch_geometric.data import lightning as pyg_modules
from torch_geometric.sampler import NodeSamplerInput

from pyg_batchgnn import (
    LightningLinkData,
    LightningNodeData,
    MacrobatchLinkNeighborLoader,
    MacrobatchNeighborLoader,
    PygNeighborSampler,
)
from tests.support.hetero_cases import WRITES, make_hetero
from tests.support.loader_cases import NODES, make_data
from tests.support.tiers import each

lightning = pytest.importorskip("lightning.pytorch", reason="needs lightning")
ModelCheckpoint = lightning.callbacks.ModelCheckpoint

OPTIONS: dict[str, Any] = {"num_neighbors": [3, 2], "batch_size": 20, "seed": 4}


class Recorder(lightning.LightningModule):
    def __init__(self) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(4, 1)
        self.seen: dict[str, list[Tensor]] = {"train": [], "seeds": [], "val": []}

    def training_step(self, batch: Data) -> Tensor:
        self.seen["train"].append(batch.e_id)
        self.seen["seeds"].append(batch.n_id[: batch.batch_size])
        return self.layer(batch.x).square().mean()

    def validation_step(self, batch: Data) -> None:
        self.seen["val"].append(batch.n_id[: batch.batch_size])

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.SGD(self.parameters(), 1e-9)


def trainer(**options: Any) -> Any:
    quiet = ("logger", "enable_checkpointing", "enable_progress_bar", "enable_model_summary")
    return lightning.Trainer(accelerator="cpu", **{**dict.fromkeys(quiet, False), **options})


def masked() -> Data:
    data = make_data()
    data.train_mask = torch.arange(NODES) % 3 == 0
    data.valid_mask = torch.arange(NODES) % 3 == 1
    return data


@pytest.mark.parametrize(
    ("ours", "theirs", "dropped"),
    [
        (LightningNodeData, pyg_modules.LightningNodeData, {"loader", "node_sampler"}),
        (LightningLinkData, pyg_modules.LightningLinkData, {"loader", "link_sampler"}),
    ],
)
def test_it_takes_the_arguments_of_pyg(ours: type, theirs: type, dropped: set[str]) -> None:
    assert issubclass(ours, theirs)
    names = [name for name in inspect.signature(theirs).parameters if name not in dropped]
    assert list(inspect.signature(ours).parameters) == names


def test_a_trainer_sees_the_batches_of_the_loader() -> None:
    data, model = masked(), Recorder()
    module = LightningNodeData(data, **OPTIONS, eval_loader_kwargs={"num_neighbors": [-1]})
    trainer(max_epochs=2, num_sanity_val_steps=0).fit(model, module)
    alone = MacrobatchNeighborLoader(data, input_nodes=data.train_mask, shuffle=True, **OPTIONS)
    expected = [batch.e_id for _ in range(2) for batch in alone]
    assert len(expected) == len(model.seen["train"])
    assert all(map(torch.equal, expected, model.seen["train"]))
    assert torch.equal(torch.cat(model.seen["val"]), data.valid_mask.nonzero().view(-1).repeat(2))
    assert isinstance(module.val_dataloader(), MacrobatchNeighborLoader)
    assert module.test_dataloader is None and "num_neighbors" in repr(module)


@each
@pytest.mark.parametrize("reload", [0, 1])
@pytest.mark.parametrize("steps", [None, 5, 7])
def test_a_resumed_run_goes_on(steps: int | None, reload: int, tmp_path: Path) -> None:
    """A checkpoint is saved at the end of an epoch by default; there are five steps to an epoch."""

    def fit(epochs: int, path: Path | None = None, **options: Any) -> list[Tensor]:
        model, module = Recorder(), LightningNodeData(masked(), **OPTIONS)
        given = {"max_epochs": epochs, "num_sanity_val_steps": 0, **options}
        run = trainer(**given, reload_dataloaders_every_n_epochs=reload)
        run.fit(model, module, ckpt_path=path)
        return model.seen["train"]

    whole = fit(3)
    saving = ModelCheckpoint(dirpath=tmp_path, save_last=True, every_n_train_steps=steps)
    fit(2, callbacks=[saving], enable_checkpointing=True)
    left = whole[10 if steps is None else 10 // steps * steps :]
    resumed = fit(3, tmp_path / "last.ckpt")
    assert len(whole) == 15 and len(left) == len(resumed) and all(map(torch.equal, left, resumed))


def test_pygs_module_takes_our_sampler() -> None:
    data, model, train = make_data(), Recorder(), torch.arange(NODES) % 2 == 0
    run = trainer(max_epochs=2, num_sanity_val_steps=0)
    sampler = PygNeighborSampler(data, [2], epoch=lambda: run.current_epoch)
    given = {"input_val_nodes": ~train, "eval_loader_kwargs": {"num_neighbors": [-1]}, "batch_size": 20}
    module = pyg_modules.LightningNodeData(data, train, **given, loader="custom", node_sampler=sampler)
    run.fit(model, module)
    alone = PygNeighborSampler(data, [2])
    assert len(model.seen["train"]) == 16
    for number, (seeds, edges) in enumerate(zip(model.seen["seeds"], model.seen["train"], strict=True)):
        alone.epoch = number // 8
        assert torch.equal(edges, alone.sample_from_nodes(NodeSamplerInput(None, seeds)).edge)
    for batch in module.val_dataloader():
        assert batch.num_edges == torch.isin(data.edge_index[1], batch.n_id[: batch.batch_size]).sum()
    assert sampler.num_neighbors.values == [2]


def test_links_of_a_typed_graph() -> None:
    data = make_hetero()
    module = LightningLinkData(
        data, input_train_edges=WRITES, num_neighbors=[2], batch_size=50, neg_sampling="binary", seed=1
    )
    loader = module.train_dataloader()
    assert isinstance(loader, MacrobatchLinkNeighborLoader)
    assert sum(batch[WRITES].input_id.numel() for batch in loader) == data[WRITES].num_edges


@pytest.mark.parametrize("name", ["loader", "node_sampler"])
def test_what_does_not_go_with_it(name: str) -> None:
    with pytest.raises(TypeError, match=f"{name} does not go with LightningNodeData"):
        LightningNodeData(masked(), num_neighbors=[2], **{name: "neighbor"})
    with pytest.raises(TypeError, match="needs num_neighbors, as in"):
        LightningNodeData(masked())
