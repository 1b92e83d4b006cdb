"""The files that a run leaves behind: configuration, records of epochs, checkpoint and result."""

from pyg_batchgnn.train.run_folder.checkpoint import Checkpoint, RankCheckpoint
from pyg_batchgnn.train.run_folder.epoch_records import (
    EpochRecord,
    append_record,
    epoch_record,
    keep_epochs,
    read_records,
)
from pyg_batchgnn.train.run_folder.folder import RunFolder, replacing, write_json
from pyg_batchgnn.train.run_folder.row_folders import RowFolders, place_name
from pyg_batchgnn.train.run_folder.run_result import RunResult

__all__ = [
    "Checkpoint",
    "EpochRecord",
    "RankCheckpoint",
    "RowFolders",
    "RunFolder",
    "RunResult",
    "append_record",
    "epoch_record",
    "keep_epochs",
    "place_name",
    "read_records",
    "replacing",
    "write_json",
]
