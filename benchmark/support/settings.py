"""The environment that all contestants of a series share."""

from __future__ import annotations

import os
from dataclasses import dataclass
from enum import Enum
from pathlib import Path

#: The folder of all benchmarks.
BENCHMARK = Path(__file__).resolve().parents[1]


class MallocSetting(Enum):
    """The setting of glibc's allocator, the same on every side."""

    DEFAULT = "default"
    KEPT = "kept"


MALLOC_ENVIRONMENT = {
    MallocSetting.DEFAULT: {},
    # Keeps memory: nothing is mapped anew or given back between minibatches.
    MallocSetting.KEPT: {
        "MALLOC_MMAP_THRESHOLD_": "4294967296",
        "MALLOC_TRIM_THRESHOLD_": "17179869184",
        "MALLOC_TOP_PAD_": "67108864",
    },
}


@dataclass(frozen=True)
class ProcessSetting:
    """The environment that all contestants of a series share."""

    threads: int = 1
    malloc: MallocSetting = MallocSetting.DEFAULT
    preload: str = ""

    def environment(self) -> dict[str, str]:
        """Returns the variables of a contestant: ours without malloc's, and the setting's."""
        clean = {name: value for name, value in os.environ.items() if not name.startswith("MALLOC_")}
        threads = str(self.threads)
        return {
            **clean,
            "PYTHONPATH": str(BENCHMARK.parent),
            **MALLOC_ENVIRONMENT[self.malloc],
            "OMP_NUM_THREADS": threads,
            "MKL_NUM_THREADS": threads,
            "DGLBACKEND": "pytorch",
            **({"LD_PRELOAD": self.preload} if self.preload else {}),
        }
