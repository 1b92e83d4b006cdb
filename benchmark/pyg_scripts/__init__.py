"""PyG's own benchmark scripts and examples, with one changed import.

`run_script` runs in processes of its own, so that this file imports nothing by itself.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any


def main(arguments: Sequence[str] | None = None) -> None:
    from benchmark.pyg_scripts import measure

    measure.main(arguments)


def table(result: dict[str, Any]) -> str:
    from benchmark.pyg_scripts import measure

    return measure.table(result)
