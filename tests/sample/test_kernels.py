"""The kernels alone, at sizes that no graph in memory reaches."""

from __future__ import annotations

import os
import shutil
import subprocess
from bisect import bisect_left, bisect_right
from collections.abc import Callable
from pathlib import Path

import pytest

from pyg_batchgnn.sample import Replacement
from tests.support.reference_sampler import bounded, reference_picks, shuffled, words

SOURCES = Path(__file__).parents[2] / "csrc"
Ask = Callable[[str], list[int]]

KEYS = [0, 1, 2**64 - 1, 0x0123456789ABCDEF]


@pytest.fixture(scope="module")
def ask(tmp_path_factory: pytest.TempPathFactory) -> Ask:
    program = tmp_path_factory.mktemp("kernels") / "kernels"
    compiler = os.environ.get("CXX") or shutil.which("c++") or shutil.which("g++") or shutil.which("clang++")
    assert compiler, "no C++ compiler found; the package needs one to be built, and so does this test"
    flags = ["-std=c++20", "-O0", "-fsanitize=undefined", "-fno-sanitize-recover=all", "-I", str(SOURCES)]
    sources = [Path(__file__).with_name("kernels.cpp"), SOURCES / "kernels" / "allocation.cpp"]
    subprocess.run([compiler, *flags, *map(str, sources), "-o", str(program), "-pthread"], check=True)

    def send(question: str) -> list[int]:
        answer = subprocess.run([program], input=question, capture_output=True, text=True, check=True)
        return [int(number) for number in answer.stdout.split()]

    return send


@pytest.mark.parametrize(
    "n", [1, 2, 3, 10, 2**31, 2**32 + 1, 2**62 + 1, 2**63 - 1, 2**63, 2**63 + 1, 3 * 2**62, 2**64 - 1]
)
def test_bounded(n: int, ask: Ask) -> None:
    """Just above 2^63 half of all words are rejected; just below 2^64 almost none."""
    for key in KEYS:
        stream = words(key)
        assert ask(f"bounded {key} {n} 200") == [bounded(stream, n) for _ in range(200)]


@pytest.mark.parametrize("degree", [41, 64, 300, 2**31 - 1, 2**31 + 1, 2**32 + 7, 2**40, 2**62])
@pytest.mark.parametrize("fanout", [1, 40, 41, 200])
def test_choices(degree: int, fanout: int, ask: Ask) -> None:
    """Both ways to remember earlier picks, for degrees beyond 2^32."""
    for replacement in Replacement:
        with_replacement = int(replacement is Replacement.WITH)
        for key in KEYS:
            expected = reference_picks(degree, fanout, replacement, words(key))
            assert ask(f"choose {key} {degree} {fanout} {with_replacement}") == expected


LEAST, MOST = -(2**63), 2**63 - 1
TIMES: dict[str, Callable[[int], int]] = {
    "even": lambda i: 1000 * i,
    "equal": lambda _: 5,
    "steps": lambda i: i // 40,
    "late": lambda i: i**6,
    "early": lambda i: -((500 - i) ** 6),
    "one far": lambda i: i if i else LEAST,
    "two far": lambda i: {0: LEAST, 499: MOST}.get(i, i % 7 and 3),
    "all there are": lambda i: LEAST + i * (2**64 // 500),
}


@pytest.mark.parametrize("count", [0, 1, 2, 15, 16, 17, 33, 100, 500])
@pytest.mark.parametrize("kind", TIMES)
def test_allowed_by_time(kind: str, count: int, ask: Ask) -> None:
    """Guesses of the place help if times are spread evenly, and do no harm if not."""
    times = sorted(TIMES[kind](i) for i in range(count))
    near = {time + step for time in times[:: max(1, count // 9)] for step in (-1, 0, 1)}
    asked = [one for one in {*near, LEAST, 0, MOST} if LEAST <= one <= MOST]
    questions = [(latest, window) for latest in asked for window in (-1, 0, 10, 10**17, MOST)]
    found = ask("".join(f"allowed {count} {' '.join(map(str, [*times, *one]))} " for one in questions))
    expected = [
        end
        for latest, window in questions
        for end in (0 if window < 0 else bisect_left(times, latest - window), bisect_right(times, latest))
    ]
    assert found == expected


@pytest.mark.parametrize("n", [2**31 - 1, 2**32, 2**32 + 1, 10**10, 2**40 - 1, (2**25 + 1) ** 2, 2**52 + 1])
def test_permutation_of_large_ranges(n: int, ask: Ask) -> None:
    """Positions of a permutation that is far too long to be stored."""
    for i in (0, 1, n // 2, n - 1):
        assert ask(f"permute {n} 5 6 {i}") == [shuffled(i, n, 5, 6)]


@pytest.mark.parametrize(
    ("ids", "minibatches", "jump"),
    [(1, 10, 2**30), (100, 50, 2**30), (100, 20, 2**31 - 2), (1000, 300, 2**24)],
)
def test_node_map_after_two_billion_local_ids(ids: int, minibatches: int, jump: int, ask: Ask) -> None:
    """The map is not cleared between minibatches but counts on, until 2^31 makes it start again."""
    assert ask(f"wrap {ids} {minibatches} {jump}") == [1]


def test_a_forked_child_finds_scratch_memory_free(ask: Ask) -> None:
    """A lock that another thread held at the fork would never be free in the child."""
    assert ask("fork 60") == [0]


@pytest.mark.parametrize(
    ("most", "intel", "unit", "wanted"),
    [
        *((2, True, True, 2), (2, False, True, 2)),  # tiles, where processor and system give them
        *((0, True, False, 0), (1, True, False, 0), (2, True, False, 0)),  # widened on other Intel's
        *((0, False, False, 0), (1, False, False, 1), (2, False, False, 1)),  # pairs on AMD's
    ],
)
def test_the_processor_decides_how_bfloat16_is_multiplied(
    most: int, intel: bool, unit: bool, wanted: int, ask: Ask
) -> None:
    assert ask(f"level {most} {int(intel)} {int(unit)}") == [wanted]
