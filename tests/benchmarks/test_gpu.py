"""The script of benchmark/gpu runs, with the CPU for a device."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def test_the_tiny_run(tmp_path: Path) -> None:
    done = subprocess.run(
        [
            sys.executable,
            "benchmark/gpu/run.py",
            "--tiny",
            "--device",
            "cpu",
            "--json",
            tmp_path / "gpu.json",
        ],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT), "OMP_WAIT_POLICY": "passive"},
        capture_output=True,
        text=True,
        timeout=200,
    )
    assert done.returncode == 0, done.stderr
    report = json.loads((tmp_path / "gpu.json").read_text())
    assert report["left_out"] == [] and len(report["bits"]) == 3 and all(report["bits"].values())
    rows = {row["name"]: row for row in report["rows"]}
    assert {"features on the device", "features on the host", "links", "typed"} <= rows.keys()
    assert all(row["busy"] > 0 and len(row["fed_ms"]) == 2 for row in rows.values())
    cached = rows["host, a cache of a fifth"]["per_minibatch"]
    assert cached["rows_from_device_cache"] > 0 and cached["rows_over_bus"] > 0
