"""The features that a run reads: in memory if they fit, in the run's precision."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import psutil
import pytest
import torch
from torch import Tensor

from pyg_batchgnn.fetch import is_mapped
from pyg_batchgnn.train import training_data
from pyg_batchgnn.train.config import Precision, RunConfig, TrainConfig
from pyg_batchgnn.train.errors import TrainError
from pyg_batchgnn.train.training_data import feature_table

NATIVE = TrainConfig()
HALF = TrainConfig(run=RunConfig(precision=Precision.BFLOAT16))


def mapped(folder: Path, x: Tensor) -> Tensor:
    """Returns the table mapped from a file, bfloat16 by way of the same bits as int16."""
    bits = x.view(torch.int16) if x.dtype is torch.bfloat16 else x
    np.save(folder / "x.npy", bits.numpy())
    return torch.from_numpy(np.load(folder / "x.npy", mmap_mode="c")).view(x.dtype)


@pytest.mark.parametrize(
    ("config", "given", "dtype"),
    [
        (NATIVE, torch.float32, torch.float32),
        (NATIVE, torch.float16, torch.float16),
        (NATIVE, torch.bfloat16, torch.bfloat16),
        (NATIVE, torch.float64, torch.float32),
        (HALF, torch.float32, torch.bfloat16),
        (HALF, torch.float16, torch.bfloat16),
    ],
)
def test_type_and_place(config: TrainConfig, given: torch.dtype, dtype: torch.dtype, tmp_path: Path) -> None:
    x = torch.randn(200_000, 3).to(given)
    before = x.clone()
    for source in (x, mapped(tmp_path, x)):
        table = feature_table(source, config)
        assert table.dtype is dtype
        assert torch.equal(table, x.to(dtype))
        assert not is_mapped(table)
        assert table is source or table.data_ptr() != source.data_ptr()
    assert (feature_table(x, config) is x) is (dtype is given)
    assert torch.equal(x, before)


def test_other_work_changes_no_bits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whether a table of another type is converted depends on the host, not on what is free."""
    x, memory = mapped(tmp_path, torch.randn(5000, 3)), psutil.virtual_memory()
    for free in (memory.total, 40_000):
        monkeypatch.setattr(psutil, "virtual_memory", lambda free=free: memory._replace(available=free))
        assert feature_table(x, HALF).dtype is torch.bfloat16
    assert feature_table(x, NATIVE) is x, "a type that stays has the same bits on disk"
    monkeypatch.setattr(psutil, "virtual_memory", lambda: memory._replace(available=20_000))
    with pytest.raises(TrainError, match="as bfloat16 take 30,000 bytes of memory, of which 20,000"):
        feature_table(x, HALF)


def test_a_file_that_memory_cannot_hold_stays_where_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(training_data, "_SHARE", 0.0)
    x = mapped(tmp_path, torch.randn(5000, 3))
    assert feature_table(x, NATIVE) is x
    assert feature_table(x, HALF) is x, "the layers convert what they read"
