"""Tables with string keys to a data folder, against DuckDB's own two joins with the order restored.

Both read the same Parquet files: nodes with keys of 16 characters, and edges in four files with two
such keys each. Each runs in a process of its own, with the same number of threads and the same
limit of memory.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from benchmark.support.cli import new_parser, stamped, write_json
from benchmark.support.tables import Result, markdown

FILES, PIECE = 4, 1 << 20
_HEX = np.frombuffer(b"0123456789abcdef", np.uint8)
#: Runs one side in a process of its own; prints its seconds, CPU seconds and peak bytes.
JOB = """
import json, resource, sys, time
from pathlib import Path
side, folder, out, threads, limit = sys.argv[1:]
folder, threads, limit = Path(folder), int(threads), int(limit)
begun = time.perf_counter()
if side == "ours":
    from pyg_batchgnn.tables import GraphDescription, convert
    convert(GraphDescription.read(folder), out, memory_limit=limit, threads=threads)
else:
    import duckdb
    con = duckdb.connect()
    for setting in (f"memory_limit='{limit}B'", f"threads={threads}", f"temp_directory='{out}.spilled'"):
        con.execute(f"SET {setting}")
    nodes = f"read_parquet('{folder}/user.parquet', file_row_number=true)"
    edges = f"read_parquet('{folder}/knows.*.parquet', file_row_number=true, filename=true)"
    con.execute(
        f"COPY (SELECT s.file_row_number AS src, d.file_row_number AS dst "
        f"FROM {edges} e JOIN {nodes} s ON e.src = s.id "
        f"JOIN {nodes} d ON e.dst = d.id ORDER BY e.filename, e.file_row_number) TO '{out}' (FORMAT parquet)"
    )
used = resource.getrusage(resource.RUSAGE_SELF)
print(json.dumps([time.perf_counter() - begun, used.ru_utime + used.ru_stime, used.ru_maxrss * 1024]))
"""
DESCRIPTION = """[nodes.user]
files = "user.parquet"
key = "id"
[edges."user,knows,user"]
files = "knows.*.parquet"
source = "src"
target = "dst"
reverse = false
"""


def keys(ids: np.ndarray) -> Any:
    """Returns a text of 16 hexadecimal digits for each id; different ids have different texts."""
    import pyarrow as pa

    mixed = ids.astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15)
    mixed = (mixed ^ (mixed >> np.uint64(32))) * np.uint64(0xD6E8FEB86659FD93)
    raw = mixed.view(np.uint8).reshape(-1, 8)
    digits = np.stack([_HEX[raw >> 4], _HEX[raw & 15]], axis=2).reshape(len(ids), 16)
    offsets = np.arange(len(ids) + 1, dtype=np.int32) * 16
    return pa.StringArray.from_buffers(len(ids), pa.py_buffer(offsets), pa.py_buffer(digits))


def write_tables(folder: Path, nodes: int, edges: int) -> None:
    """Writes the nodes and the edges, a piece at a time."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    draw = np.random.default_rng(0)
    with pq.ParquetWriter(folder / "user.parquet", pa.schema([("id", pa.string())])) as writer:
        for at in range(0, nodes, PIECE):
            writer.write_table(pa.table({"id": keys(np.arange(at, min(nodes, at + PIECE)))}))
    schema = pa.schema([("src", pa.string()), ("dst", pa.string())])
    for part in range(FILES):
        with pq.ParquetWriter(folder / f"knows.{part}.parquet", schema, use_dictionary=False) as writer:
            for at in range(0, edges // FILES, PIECE):
                count = min(PIECE, edges // FILES - at)
                ends = {name: keys(draw.integers(nodes, size=count)) for name in schema.names}
                writer.write_table(pa.table(ends))
    (folder / "graph.toml").write_text(DESCRIPTION, encoding="utf-8")


def main(arguments: Sequence[str] | None = None) -> None:
    """Measures, then stores the JSON file."""
    parser = new_parser(__doc__)
    parser.add_argument("--nodes", type=int, default=10_000_000)
    parser.add_argument("--edges", type=int, default=100_000_000)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--memory", type=int, default=4 << 30, help="bytes for each side")
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--folder", type=Path, help="place for the files; needs 60 bytes for each edge")
    chosen = parser.parse_args(arguments)
    found: dict[str, list[list[float]]] = {"ours": [], "duckdb": []}
    with tempfile.TemporaryDirectory(dir=chosen.folder) as work:
        write_tables(Path(work), chosen.nodes, chosen.edges)
        for number in range(chosen.rounds):
            for side in found:
                out = str(Path(work) / f"{side}-{number}")
                told = (side, work, out, chosen.threads, chosen.memory)
                command = [sys.executable, "-c", JOB, *map(str, told)]
                ran = subprocess.run(command, check=True, capture_output=True, text=True)
                found[side].append(json.loads(ran.stdout.splitlines()[-1]))
                print(side, found[side][-1], time.strftime("%H:%M:%S"), flush=True)
                subprocess.run(["rm", "-rf", out, f"{out}.spilled"], check=True)
    settings = {name: getattr(chosen, name) for name in ("nodes", "edges", "threads", "memory", "rounds")}
    write_json(chosen.results / "tables.json", stamped("tables", settings=settings, sides=found))


def table(result: Result) -> str:
    """Returns the median of each side, and how they compare."""
    said, rows = result["settings"], []
    medians = {side: np.median(runs, axis=0) for side, runs in result["sides"].items()}
    names = {"ours": "`tables convert`", "duckdb": "DuckDB: two joins, order restored"}
    for side, (seconds, cpu, peak) in medians.items():
        rate, ratio = said["edges"] / seconds / 1e6, seconds / medians["duckdb"][0]
        figures = [f"{seconds:.1f}", f"{cpu:.1f}", f"{peak / 2**30:.2f}", f"{rate:.2f}", f"{ratio:.2f}x"]
        rows.append([names[side], *figures])
    head = f"{said['edges'] / 1e6:,.0f} million edges, {said['nodes'] / 1e6:,.0f} million nodes"
    limit = f"peak, GiB (limit {said['memory'] / 2**30:.0f})"
    return markdown([head, "seconds", "CPU seconds", limit, "million edges per second", "time"], rows)
