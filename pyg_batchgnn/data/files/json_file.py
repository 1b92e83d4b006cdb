"""JSON files, read strictly."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from pyg_batchgnn.data.errors import DatasetError


def read_json(path: Path) -> dict[str, Any]:
    """Reads a JSON object.

    Raises:
        DatasetError: the file is damaged, is not an object, or holds NaN or infinity, which are not
            JSON.
    """

    def refuse(constant: str) -> None:
        raise ValueError(f"it holds {constant}")

    try:
        content = json.loads(path.read_text(encoding="utf-8"), parse_constant=refuse)
    except (ValueError, RecursionError) as error:
        raise DatasetError(f"{path}: not valid JSON ({error}); restore the file") from error
    if not isinstance(content, dict):
        raise DatasetError(
            f"{path}: holds a {type(content).__name__}, expected a JSON object; restore the file"
        )
    return content
