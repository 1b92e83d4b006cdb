"""A safetensors file of nested values: tensors are tensors, everything else is JSON in the header.

The file is replaced by one rename, so a reader sees the whole old file or the whole new one. No
pickle is involved.
"""

from __future__ import annotations

import json
import zlib
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load as deserialise
from safetensors.torch import save as serialise
from torch import Tensor

from pyg_batchgnn.train.errors import TrainError
from pyg_batchgnn.train.run_folder.folder import replacing

_TENSOR = "__tensor__"


def save(path: Path, kind: str, version: int, values: dict[str, Any]) -> None:
    """Replaces `path`.

    Args:
        path: of the file.
        kind: of the file; checked when it is read.
        version: of its format; checked when it is read.
        values: tensors, JSON values, and lists and dicts (with text keys) of them.
    """
    tensors: dict[str, Tensor] = {}
    plain = _take_tensors(values, "", tensors)
    checksums = {name: _checksum(tensor) for name, tensor in tensors.items()}
    header = {
        "kind": kind,
        "version": str(version),
        "values": json.dumps(plain),
        "checksums": json.dumps(checksums),
    }
    with replacing(path) as temporary:
        temporary.write_bytes(serialise(tensors, metadata=header))


def load(path: Path, kind: str, version: int) -> dict[str, Any]:
    """Returns the values that `save` wrote.

    Raises:
        TrainError: the file is missing, truncated, altered, of another kind or of another version.
    """
    return parse(path, read(path), kind, version)


def read(path: Path) -> bytes:
    """Returns the bytes of a file that `save` wrote.

    Raises:
        TrainError: the file is missing.
    """
    if not path.is_file():
        raise TrainError(f"{path}: no such checkpoint; the run may have stopped before its first one")
    return path.read_bytes()


def parse(path: Path, data: bytes, kind: str, version: int) -> dict[str, Any]:
    """Returns the values in a file's bytes. `path` is for messages.

    Raises:
        TrainError: as `load` does, if the file is not missing.
    """
    try:
        tensors = deserialise(data)
        length = int.from_bytes(data[:8], "little")
        header = json.loads(data[8 : 8 + length]).get("__metadata__", {})
    except (SafetensorError, ValueError) as error:
        raise TrainError(f"{path}: truncated, or not a checkpoint ({error})") from None
    if header.get("kind") != kind:
        raise TrainError(f"{path}: a safetensors file, but not a {kind} of this program")
    if header.get("version") != str(version):
        raise TrainError(f"{path}: has format {header.get('version')}, this program reads {version}")
    try:
        checksums = json.loads(header["checksums"])
        values: dict[str, Any] = _put_tensors(json.loads(header["values"]), tensors)
    except (KeyError, json.JSONDecodeError) as error:
        raise TrainError(f"{path}: its header is damaged ({error!r})") from None
    damaged = [name for name, tensor in tensors.items() if checksums.get(name) != _checksum(tensor)]
    if damaged or checksums.keys() != tensors.keys():
        raise TrainError(
            f"{path}: damaged, the checksum of {', '.join(damaged) or 'a tensor'} does not match"
        )
    return values


def _checksum(tensor: Tensor) -> int:
    return zlib.crc32(tensor.reshape(-1).view(torch.uint8).numpy().data)


def _take_tensors(value: Any, name: str, tensors: dict[str, Tensor]) -> Any:
    if isinstance(value, Tensor):
        tensors[name] = value.detach().clone().contiguous()
        return {_TENSOR: name}
    if isinstance(value, dict):
        return {str(key): _take_tensors(item, f"{name}/{key}", tensors) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_take_tensors(item, f"{name}/{place}", tensors) for place, item in enumerate(value)]
    return value


def _put_tensors(value: Any, tensors: dict[str, Tensor]) -> Any:
    if isinstance(value, dict):
        if value.keys() == {_TENSOR}:
            return tensors[value[_TENSOR]]
        return {key: _put_tensors(item, tensors) for key, item in value.items()}
    if isinstance(value, list):
        return [_put_tensors(item, tensors) for item in value]
    return value
