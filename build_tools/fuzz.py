"""Tries hostile inputs on one target. Atheris chooses them by the lines of the package they reach.

    pip install atheris
    PYTHONPATH=. python build_tools/fuzz.py data /tmp/fuzz -max_total_time=60

An input is a list of choices: what to change in a sound folder, or in options of the command line.
It must be taken, or refused in one sentence. Else Atheris stops, and leaves it in ``crash-...``.
The folder keeps the inputs that reached something new, from which the next slice goes on. Further
options are libFuzzer's.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import shutil
import sys
import zlib
from pathlib import Path
from typing import Any

import atheris

with atheris.instrument_imports(include=["pyg_batchgnn"], exclude=["pyg_batchgnn.nn", "pyg_batchgnn.port"]):
    import numpy as np
    import torch
    from safetensors import safe_open
    from safetensors.torch import load, save

    from pyg_batchgnn import DistFeatureStore, DistGraphStore, MacrobatchNeighborLoader
    from pyg_batchgnn.comm import Communicator
    from pyg_batchgnn.data import DatasetError
    from pyg_batchgnn.data.files import file_sha256
    from pyg_batchgnn.partition import load_partition
    from pyg_batchgnn.train import start
    from pyg_batchgnn.train.cli import main as command
    from pyg_batchgnn.train.config.table import FIELDS
    from tests.support.damaged_folders import said

SMALL = (
    "--epochs 2 --num-layers 2 --fanout 2,2 --hidden 4 --threads 1 --batch-size 9 --set run.malloc=default"
)
TRAIN = f"train {{0}} {SMALL} --run-folder out"
PAPERS = f"{TRAIN} --node-type paper"
RUN = ["predict {0} --out out", "evaluate {0}", f"train {SMALL} --epochs 3 --resume {{0}}"]
CONVERT = ["tables convert {0} --out out --threads 1", "tables check {0}"]
CACHE = f"{TRAIN.format('data')} --cache aggregation --cache-folder {{0}}"
LOAD = ["load {0}"] * 8  # no command, but a loader over a partition
#: The command that makes each sound folder, and some that open it. ``verify`` does so most often.
FOLDERS = {
    "data": ("generate {0} --nodes 60 --degree 4 --features 4 --classes 3", ["convert {0} out", TRAIN]),
    "typed": ("generate {0} --nodes 60 --typed --degree 4", ["partition {0} --parts 1 --out out", PAPERS]),
    "converted": ("convert data {0}", ["partition {0} --policy ldg --out out", TRAIN]),
    "codes": ("quantize data {0}", [TRAIN]),
    "partition": ("partition data --parts 1 --out {0}", ["quantize {0} out", *LOAD]),
    "typed-partition": ("partition typed --parts 1 --out {0}", LOAD),
    "run": (f"train data {SMALL} --run-folder {{0}}", RUN),
    "run-with-rows": (f"train typed {SMALL} --node-type paper --embed all --run-folder {{0}}", RUN),
    "cache": (CACHE, [CACHE]),
    "tables": ("", CONVERT),
}
TABLES = {
    "graph.toml": '[nodes.u]\nfiles = "u.csv"\nkey = ["id", "k"]\nlabel = "c"\nfeatures = {k = "category"}\n'
    'split = {fractions = [0.6, 0.2, 0.2]}\n[edges."u,to,u"]\nfiles = "l.*.csv"\ntime = "t"\n'
    'source = ["a", "k"]\ntarget = ["b", "k"]\nfeatures = {size = "number"}\n',
    "u.csv": "id,k,c\n" + "".join(f"u{i},{i % 3},{i % 2}\n" for i in range(9)),
    "l.0.csv": "a,b,k,t,size\n" + "".join(f"u{i},u{i},{i % 3},2024-01-0{i + 1},1\n" for i in range(9)),
}
VALUES = json.loads("""[null, true, -1, 0, 1, 7, 2147483648, 9223372036854775808, 1e308, 0.5, NaN, "", "x",
    "../x", "/etc/passwd", "a\\nb", "\\u0000", "float32", "object", "auto", "time", "1GiB", "1,2", "id",
    "🙂", "l.*.csv", "none", [], {}, [[]], [-1], [4611686018427387904], ["id", "id"], [1, 1, 1], {"a": 1}]""")
WORDS = b'<f4 <i8 <u8 >i8 |O <U1 True (- 9 0 " [ = } , . \xff'.split()
Choices = atheris.FuzzedDataProvider


def below(choices: Choices, limit: int) -> int:
    return choices.ConsumeIntInRange(0, max(0, limit - 1))


def changed_json(value: Any, choices: Choices) -> Any:
    """Changes one place of a JSON value."""
    place, inside, key = value, None, None
    while isinstance(place, dict | list) and place and (inside is None or below(choices, 4)):
        inside, keys = place, [*place] if isinstance(place, dict) else [*range(len(place))]
        place = place[key := choices.PickValueInList(keys)]
    how, nearby, new = below(choices, 6), below(choices, 2), choices.PickValueInList(VALUES)
    if how and nearby and type(place) is int:
        new = place + choices.PickValueInList([1, -1, 7])
    if isinstance(inside, dict):
        del inside[key]
        inside |= {key if how > 1 else str(new): new} if how else {}
    elif isinstance(inside, list):
        inside[key : key + 1] = [new] if how else []
    return value


def changed_bytes(data: bytes, choices: Choices) -> bytes:
    lines, at = data.split(b"\n"), below(choices, min(len(data), choices.PickValueInList([128, 1 << 30])))
    lines[below(choices, len(lines))] = choices.PickValueInList(lines)
    new = [json.dumps(choices.PickValueInList(VALUES)).encode(), choices.ConsumeBytes(1), b""]
    changed = [data[:at], b"\n".join(lines), data.replace(*(choices.PickValueInList(WORDS) for _ in "12"), 1)]
    changed += [data[:at] + one + data[at + below(choices, 12) :] for one in new]
    return choices.PickValueInList(changed)


def change_file(path: Path, choices: Choices) -> None:
    data, how = path.read_bytes(), below(choices, 10)
    if how == 0:
        path.unlink()
        if choices.ConsumeBool():
            path.symlink_to(choices.PickValueInList(["/etc/passwd", "META.json", "."]))
    elif path.suffix == ".json" and how > 1:
        path.write_text(json.dumps(changed_json(json.loads(data), choices)))
    elif path.suffix == ".safetensors" and how > 1:  # with a checksum of its new contents
        with safe_open(path, "pt") as file:
            about = file.metadata()
        about["values"] = json.dumps(changed_json(json.loads(about["values"]), choices))
        sums = {**json.loads(about["checksums"]), "values": zlib.crc32(about["values"].encode())}
        about["checksums"] = json.dumps(sums)
        path.write_bytes(save(load(data), about))
    else:
        path.write_bytes(changed_bytes(data, choices))


def promise_anew(folder: Path, choices: Choices) -> None:
    """Lets META.json promise what arrays are now: mostly their checksums, at times all."""
    how = below(choices, 4)
    with contextlib.suppress(Exception):  # of whatever the files hold now
        for name in json.loads((folder / "META.json").read_text())["arrays"] if how else ():
            file = folder / f"{name}.npy"
            promise: dict[str, Any] = {"sha256": file_sha256(file)}
            if how == 1:
                array = np.load(file, mmap_mode="r")
                promise |= {"shape": list(array.shape), "dtype": array.dtype.name}
            said("arrays", name, value=lambda old, new=promise: old | new)(folder)


def load_part(folder: Path) -> None:
    with contextlib.suppress(DatasetError), Communicator.create("alone") as comm:
        part = load_partition(folder, comm)
        nodes = (part.schema.node_types[0], None) if part.schema.has_names else None
        stores = DistFeatureStore(part, comm), DistGraphStore(part, comm)
        list(MacrobatchNeighborLoader(stores, [3, 2], nodes, batch_size=4, seed=1))


def run_command(arguments: list[str]) -> None:
    """Runs a command. Raises AssertionError unless it succeeds, or says in one line why not."""
    output, status = io.StringIO(), 0
    shutil.rmtree("out", ignore_errors=True)
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(output):
        try:
            load_part(Path(arguments[1])) if arguments[0] == "load" else command(arguments)
        except SystemExit as end:
            status = int(end.code or 0)
    line = output.getvalue().strip().rpartition("\n")[2]
    fine = status == 0 or (status == 2 and line.startswith("batchgnn: ") and len(line) < 1000)
    assert fine, f"status {status}: {line}"


def open_folder(name: str, choices: Choices) -> None:
    shutil.rmtree("work", ignore_errors=True)
    work = Path(shutil.copytree(name, "work"))
    files = sorted(path for path in work.rglob("*") if path.is_file())
    for _again in range(1 + below(choices, 3)):
        path = choices.PickValueInList(files)
        with contextlib.suppress(Exception):  # of what an earlier change left
            change_file(path, choices)
    for meta in [*work.rglob("META.json")]:
        promise_anew(meta.parent, choices)
    often = [] if name == "tables" else ["verify {0}"] * 12
    run_command(choices.PickValueInList([*often, *FOLDERS[name][1]]).format(work).split())


def give_options(_: str, choices: Choices) -> None:
    values = [*VALUES, *range(3), 0.1, "gcn", "sgd", "link", "hop", "exact", "with", "y"]
    given = TRAIN.format("data").split()
    for _again in range(1 + below(choices, 3)):
        given += ["--set", f"{choices.PickValueInList(sorted(FIELDS))}={choices.PickValueInList(values)}"]
    run_command(given)


TARGETS = {**dict.fromkeys(FOLDERS, open_folder), "options": give_options}


def main() -> None:
    target, folder, *options = sys.argv[1:]
    torch.set_num_threads(1)
    for name in (f"{target}.corpus", "tables"):
        Path(folder, name).mkdir(parents=True, exist_ok=True)
    os.chdir(folder)
    vars(start).update(dict.fromkeys(("plot_learning", "plot_phases"), lambda *_, **__: None))
    for file, text in TABLES.items():
        Path("tables", file).write_text(text)
    for name, (make, _opens) in FOLDERS.items():
        if not Path(name).exists():
            run_command(make.format(name).split())
    limits = ["-timeout=20", "-rss_limit_mb=8000", "-len_control=0", "-max_len=99"]
    arguments = [sys.argv[0], *limits, *options, f"{target}.corpus"]
    atheris.Setup(arguments, lambda data: TARGETS[target](target, Choices(data)))
    atheris.Fuzz()


if __name__ == "__main__":
    main()
