"""Compiles the kernels, with a sanitizer or for another processor, and programs that run them.

Every source is compiled once for each kind of build, as many at once as there are processors.
Objects are kept in ``build/sanitizers`` under a digest of all that goes into them: only what has
changed is compiled again.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from tests.support.tiers import ALL

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
KERNELS = ROOT / "csrc" / "kernels"
CACHE = ROOT / "build" / "sanitizers"
#: Options of each sanitizer. Addresses are checked by calls instead of inlined code, and undefined
#: behaviour ends the program by a trap, whose place the sanitizer of addresses prints. That finds
#: the same faults and leaves half the code to compile. Null pointers are found by their address.
#: `make test` has addresses alone, which compile in half the time.
SANITIZERS = {
    "addresses": [
        "-fsanitize=address",
        "--param=asan-instrumentation-with-call-threshold=0",
        *(
            ["-fsanitize=undefined", "-fno-sanitize=null", "-fsanitize-undefined-trap-on-error"]
            if ALL
            else []
        ),
    ],
    "threads": ["-fsanitize=thread", "-fno-sanitize-recover=all"],
}
#: `make test` compiles the baseline of vector instructions alone, in a third of the time.
FEWER_LEVELS = ["-DPYG_BATCHGNN_NO_AVX2", "-DPYG_BATCHGNN_NO_AVX512"]
#: Headers that most sources include.
STANDARD = ("algorithm", "functional", "iostream", "random", "string", "thread", "vector")
#: The compiler for aarch64, and the emulator that runs its programs.
CROSS_COMPILER = "aarch64-linux-gnu-g++"
EMULATOR = ["qemu-aarch64", "-L", "/usr/aarch64-linux-gnu"]
#: Builds without a sanitizer, for processors that must give equal results at the baseline. The
#: options for aarch64 are those of setup.py.
PROCESSORS = {"here": ["-O2"], "aarch64": ["-O2", "-ffp-contract=off"]}
#: Sources that are compiled with -O1: their programs run long. The others compile for longer than
#: they run. The sanitizer of addresses has those as they are. That of threads is slow, so it has
#: them with -Og, which compiles in half the time of -O1.
LONG_RUNNING = re.compile(r"(nn|simd)\.(linear|products|.*_pairs|norm)")
#: Programs are the sources here that have a `main`; the memory of kernels is theirs (blocks.cpp).
PROGRAMS = sorted({path.stem for path in HERE.glob("*.cpp")} - {"blocks"})
NOT_LINKED = {"allocation"}


def processors() -> int:
    return len(os.sched_getaffinity(0))


def kernels() -> dict[str, Path]:
    """Sources by name, such as ``nn.norm``; those that take longest to compile come first."""
    paths = sorted(KERNELS.rglob("*.cpp"), key=lambda path: (path.parent.name != "simd", path))
    named = {".".join(path.relative_to(KERNELS).with_suffix("").parts): path for path in paths}
    return {name: path for name, path in named.items() if name not in NOT_LINKED}


def build(kind: str, folder: Path) -> dict[str, set[str]]:
    """Makes every program, of one of `SANITIZERS` or `PROCESSORS`, in a folder."""
    compiler = os.environ.get("CXX") or shutil.which("c++") or shutil.which("g++")
    if kind == "aarch64":
        compiler = shutil.which(CROSS_COMPILER)
    assert compiler, "no C++ compiler found; the package needs one to be built, and so does this test"
    options = [*{**SANITIZERS, **PROCESSORS}[kind], *([] if ALL else FEWER_LEVELS)]
    command = [compiler, "-std=c++20", "-g1", "-pthread", "-I", str(ROOT / "csrc"), *options]
    named = kernels()
    own = {f"programs.{name}": HERE / f"{name}.cpp" for name in (*PROGRAMS, "blocks")}
    sources = {**own, **named}
    command += _precompiled(command, kind)
    version = subprocess.run([compiler, "--version"], check=True, capture_output=True, text=True).stdout
    with ThreadPoolExecutor(processors()) as pool:
        common = digest([*command, version], [*KERNELS.rglob("*.h"), *HERE.glob("*.h")])

        def compiled(name: str) -> Path:
            level = "-O1" if ALL and LONG_RUNNING.match(name) else "-Og" if kind == "threads" else "-O0"
            made_with = command if kind in PROCESSORS else [*command, level]
            return _compile(made_with, common, kind, name, sources[name])

        objects = dict(zip(sources, pool.map(compiled, sources), strict=True))
        archive = folder / "kernels.a"
        subprocess.run(["ar", "rcsT", archive, *(objects[name] for name in named)], check=True)
        by_file = {objects[name].name: name for name in named}

        def link(program: str) -> set[str]:
            own = [objects[f"programs.{program}"], objects["programs.blocks"]]
            traced = subprocess.run(
                [*command, *own, archive, "-Wl,--trace", "-o", folder / program],
                check=True,
                capture_output=True,
                text=True,
                timeout=120,
            ).stdout
            files = {Path(line.rstrip(")").rpartition("(")[2]).name for line in traced.splitlines()}
            return {by_file[file] for file in files & set(by_file)}

        return dict(zip(PROGRAMS, pool.map(link, PROGRAMS), strict=True))


def _precompiled(command: list[str], kind: str) -> list[str]:
    """Returns options that take standard headers from a file, in half the time of parsing."""
    header = CACHE / f"{kind}-standard.h"
    CACHE.mkdir(parents=True, exist_ok=True)
    header.write_text("".join(f"#include <{name}>\n" for name in STANDARD))
    made = [*command, "-O0", "-x", "c++-header", str(header), "-o", f"{header}.gch"]
    subprocess.run(made, check=True, timeout=240)
    return ["-include", str(header)]


def _compile(command: list[str], common: str, kind: str, name: str, source: Path) -> Path:
    """The object of a source: what an earlier run left, or a new one."""
    stem = f"{kind}-{name}"
    made = CACHE / f"{stem}-{digest([common, *command], [source])}.o"
    if not made.exists():
        CACHE.mkdir(parents=True, exist_ok=True)
        whole = made.with_suffix(f".{os.getpid()}")
        subprocess.run([*command, "-c", source, "-o", whole], check=True, timeout=240)
        for old in CACHE.glob(f"{stem}-*.o"):
            old.unlink(missing_ok=True)
        whole.rename(made)
    return made


def digest(words: Iterable[str], files: Iterable[Path]) -> str:
    digest = hashlib.sha256()
    for word in words:
        digest.update(word.encode() + b"\0")
    for file in sorted(files):
        digest.update(str(file.relative_to(ROOT)).encode() + b"\0" + file.read_bytes())
    return digest.hexdigest()[:24]
