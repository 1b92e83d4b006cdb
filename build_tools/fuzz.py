"""Tries hostile inputs on one target. Atheris chooses them by the lines of the package they reach.

    pip install atheris
    python build_tools/fuzz.py data /tmp/fuzz --seconds 60

An input is a list of choices: what to change in a sound folder, or in options of the command line.
It must be taken, or refused in one sentence. The folder keeps the inputs that reached something
new, from which the next slice goes on, and one line for each place of a finding.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import os
import re
import shutil
import signal
import sys
import traceback
import zlib
from pathlib import Path
from typing import Any

import atheris

with atheris.instrument_imports(include=["pyg_batchgnn"], exclude=["pyg_batchgnn.nn", "pyg_batchgnn.port"]):
    import numpy as np
    import torch

    from pyg_batchgnn import DistFeatureStore, DistGraphStore, MacrobatchNeighborLoader
    from pyg_batchgnn.comm import Communicator
    from pyg_batchgnn.data import DatasetError
    from pyg_batchgnn.data.files import file_sha256
    from pyg_batchgnn.partition import load_partition
    from pyg_batchgnn.train import start
    from pyg_batchgnn.train.cli import main as command
    from pyg_batchgnn.train.config.table import FIELDS

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


class Choices:
    """The choices that an input makes."""

    def __init__(self, data: bytes) -> None:
        self._left = atheris.FuzzedDataProvider(data)

    def below(self, limit: int) -> int:
        return self._left.ConsumeIntInRange(0, max(0, limit - 1))

    def of(self, values: Any) -> Any:
        return values[self.below(len(values))]


def changed_json(value: Any, choices: Choices) -> Any:
    """Changes one place of a JSON value."""
    place, inside, key = value, None, None
    while isinstance(place, dict | list) and place and (inside is None or choices.below(4)):
        inside, key = place, choices.of(sorted(place) if isinstance(place, dict) else range(len(place)))
        place = place[key]
    if isinstance(inside, dict | list):
        how, nearby = choices.below(6), type(place) is int and choices.below(2)
        changed = inside.pop(key)
        if how and isinstance(inside, dict):
            new = key if how > 1 else str(choices.of(VALUES))
            inside[new] = changed + choices.of([1, -1, 7]) if nearby else choices.of(VALUES)
        elif how:
            inside.insert(key, choices.of(VALUES))
    return value


def changed_bytes(data: bytes, choices: Choices) -> bytes:
    at, how = choices.below(min(len(data), 128 if choices.below(2) else 1 << 30)), choices.below(6)
    lines = data.split(b"\n")
    lines[choices.below(len(lines))] = choices.of(lines)
    said = json.dumps(choices.of(VALUES)).encode()
    changed = [data[:at], data.replace(choices.of(WORDS), choices.of(WORDS), 1), b"\n".join(lines)]
    changed += [data[:at] + said + data[at + choices.below(12) :]]
    changed += [data[:at] + bytes([choices.below(256)]) + data[at + kept :] for kept in (0, 1)]
    return changed[how]


def change_file(path: Path, choices: Choices) -> None:
    data, how = path.read_bytes(), choices.below(10)
    if how == 0:
        path.unlink()
        if choices.below(2):
            path.symlink_to(choices.of(["/etc/passwd", "META.json", "."]))
    elif path.suffix == ".json" and how > 1:
        path.write_text(json.dumps(changed_json(json.loads(data), choices)))
    elif path.suffix == ".safetensors" and how > 1:  # with a checksum of its new contents
        length = int.from_bytes(data[:8], "little")
        header = json.loads(data[8 : 8 + length])
        about = header["__metadata__"]
        about["values"] = json.dumps(changed_json(json.loads(about["values"]), choices))
        sums = {**json.loads(about["checksums"]), "values": zlib.crc32(about["values"].encode())}
        about["checksums"] = json.dumps(sums)
        text = json.dumps(header if how > 3 else changed_json(header, choices)).encode()
        path.write_bytes(len(text).to_bytes(8, "little") + text + data[8 + length :])
    else:
        path.write_bytes(changed_bytes(data, choices))


def promise_anew(folder: Path, choices: Choices) -> None:
    """Lets META.json promise what arrays are now: mostly their checksums, at times all."""
    how = choices.below(4)
    with contextlib.suppress(Exception):  # of whatever the files hold now
        content = json.loads((folder / "META.json").read_text())
        for name, promise in content["arrays"].items() if how else ():
            promise["sha256"] = file_sha256(folder / f"{name}.npy")
            if how == 1:
                array = np.load(folder / f"{name}.npy", mmap_mode="r")
                promise |= {"shape": list(array.shape), "dtype": array.dtype.name}
        (folder / "META.json").write_text(json.dumps(content))


def load(folder: Path) -> None:
    with contextlib.suppress(DatasetError), Communicator.create("alone") as comm:
        part = load_partition(folder, comm)
        nodes = (part.schema.node_types[0], None) if part.schema.has_names else None
        stores = DistFeatureStore(part, comm), DistGraphStore(part, comm)
        list(MacrobatchNeighborLoader(stores, [3, 2], nodes, batch_size=4, seed=1))


def run_command(arguments: list[str]) -> None:
    """Runs a command. Raises AssertionError unless it succeeds, or says in one line why not."""
    said, status = io.StringIO(), 0
    shutil.rmtree("out", ignore_errors=True)
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(said):
        try:
            load(Path(arguments[1])) if arguments[0] == "load" else command(arguments)
        except SystemExit as end:
            status = int(end.code or 0)
    line = said.getvalue().strip().rpartition("\n")[2]
    fine = status == 0 or (status == 2 and line.startswith("batchgnn: ") and len(line) < 1000)
    assert fine, f"status {status}: {line}"


def open_folder(name: str, choices: Choices) -> None:
    work = Path("work")
    shutil.rmtree(work, ignore_errors=True)
    shutil.copytree(name, work)
    files = sorted(path for path in work.rglob("*") if path.is_file())
    for _again in range(1 + choices.below(3)):
        if (path := choices.of(files)).is_file():
            with contextlib.suppress(ValueError, LookupError, TypeError):
                change_file(path, choices)
    for meta in [*work.rglob("META.json")]:
        promise_anew(meta.parent, choices)
    often = [] if name == "tables" else ["verify {0}"] * 12
    run_command(choices.of([*often, *FOLDERS[name][1]]).format(work).split())


def give_options(_: str, choices: Choices) -> None:
    values = [*VALUES, *range(3), 0.1, "gcn", "sgd", "link", "hop", "exact", "with", "y"]
    given = [f"{choices.of(sorted(FIELDS))}={choices.of(values)}" for _again in range(1 + choices.below(3))]
    run_command([*TRAIN.format("data").split(), *(word for one in given for word in ("--set", one))])


TARGETS = {**dict.fromkeys(FOLDERS, open_folder), "options": give_options}


def try_once(target: str, data: bytes, found: Path, known: set[str]) -> None:
    signal.alarm(20)
    try:
        TARGETS[target](target, Choices(data))
    except Exception as error:
        frames = traceback.extract_tb(error.__traceback__)
        last = ([one for one in frames if "pyg_batchgnn/" in one.filename] or frames)[-1]
        place = f"{last.filename.rpartition('pyg_batchgnn/')[2]}:{last.name} {type(error).__name__}"
        place += re.sub(r"\d+", "", str(error))[:60] if isinstance(error, AssertionError) else ""
        if place not in known:
            known.add(place)
            with found.open("a") as out:
                out.write(json.dumps({"place": place, "says": str(error)[:500], "input": data.hex()}) + "\n")
    finally:
        signal.alarm(0)


def main() -> None:
    parser = argparse.ArgumentParser(usage=__doc__)
    parser.add_argument("target", choices=TARGETS)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--seconds", type=int, default=60)
    chosen = parser.parse_args()
    torch.set_num_threads(1)
    corpus = chosen.folder / f"{chosen.target}.corpus"
    corpus.mkdir(parents=True, exist_ok=True)
    (chosen.folder / "tables").mkdir(exist_ok=True)
    os.chdir(chosen.folder)
    vars(start).update(dict.fromkeys(("plot_learning", "plot_phases"), lambda *_, **__: None))
    for file, text in TABLES.items():
        Path("tables", file).write_text(text)
    for name, (make, _opens) in FOLDERS.items():
        if not Path(name).exists():
            run_command(make.format(name).split())
    found, known = Path(f"{chosen.target}.findings.jsonl").resolve(), set[str]()
    signal.signal(signal.SIGALRM, lambda *_: (_ for _ in ()).throw(TimeoutError("it takes more than 20 s")))
    limits = [f"-max_total_time={chosen.seconds}", "-rss_limit_mb=8000", "-len_control=0", "-max_len=99"]
    atheris.Setup(
        [sys.argv[0], *limits, corpus.name], lambda data: try_once(chosen.target, data, found, known)
    )
    atheris.Fuzz()


if __name__ == "__main__":
    main()
