"""Kernels on torch's own threads and on their own: the same bits on any number, at any level."""

from __future__ import annotations

import itertools
import multiprocessing
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from pyg_batchgnn import ops
from pyg_batchgnn.ops import Turns
from tests.ops import test_edge_sums
from tests.support import linear_cases, reference_attention
from tests.support.aggregate_cases import graph
from tests.support.programs import WIDTHS, run_text
from tests.support.tiers import VARIABLE, in_all

torch.manual_seed(0)
X, WEIGHT = torch.randn(3000, 40), torch.randn(24, 40)


def product(threads: int) -> Tensor:
    with ops.thread_limit(threads):
        return ops.linear([X], [WEIGHT])


# Torch's threads stay when an operator has ended, ours do not; but the system lists them a little
# longer.
COUNT = """
import os, sys, threading, time
import torch
from pyg_batchgnn import ops
torch.set_num_threads(2)
x, weight = torch.ones(300, 40), torch.ones(24, 40)  # too small for torch to start threads itself
count = lambda: len(os.listdir("/proc/self/task"))
for caller, stay in (("other", 0), ("main", 1)):
    before, work = count(), threading.Thread(target=lambda: ops.linear([x], [weight]))
    if caller == "main":
        work.run()
    else:
        work.start()
        work.join()
    time.sleep(0.5)
    deadline = time.monotonic() + 20
    while count() - before > stay and time.monotonic() < deadline:
        time.sleep(0.05)
    print(count() - before)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="teams are for Linux")
def test_only_the_main_thread_takes_torchs_threads() -> None:
    command = [sys.executable, "-c", COUNT]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=90, check=True)
    assert ran.stdout.split() == ["0", "1"]


@pytest.fixture
def two_threads() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(before)


def own_thread(work: Callable[[], None]) -> None:
    thread = threading.Thread(target=work)
    thread.start()
    thread.join(timeout=60)
    assert not thread.is_alive()


@pytest.mark.usefixtures("two_threads")
def test_the_main_thread_and_others_compute_the_same() -> None:
    found: list[Tensor] = []
    own_thread(lambda: found.extend([product(1), product(2), product(4)]))
    for threads, other in zip((1, 2, 4), found, strict=True):
        assert torch.equal(product(threads), other)


def _in_child(queue: multiprocessing.Queue[list[float]]) -> None:
    queue.put(product(2)[0].tolist())  # torch's own operators of this size would wait for ever


@pytest.mark.usefixtures("two_threads")
def test_a_forked_child_does_without_the_threads_that_it_has_lost() -> None:
    wanted = product(2)  # the pool is there
    context = multiprocessing.get_context("fork")
    queue: multiprocessing.Queue[list[float]] = context.Queue()
    child = context.Process(target=_in_child, args=(queue,))
    child.start()
    try:
        assert queue.get(timeout=60) == wanted[0].tolist()
        child.join(timeout=60)
        assert child.exitcode == 0
    finally:
        child.kill()


IMPORTED_BY_A_CHILD = """
import os
import torch

torch.set_num_threads(2)
x, weight = torch.ones(3000, 40), torch.ones(24, 40)  # starts the pool
if os.fork() == 0:
    from pyg_batchgnn import ops

    os._exit(0 if ops.linear([x], [weight])[-1].tolist() == [40.0] * 24 else 1)
os._exit(os.waitstatus_to_exitcode(os.wait()[1]))
"""


def test_a_forked_child_may_be_the_first_to_import() -> None:
    command = [sys.executable, "-c", IMPORTED_BY_A_CHILD]
    with subprocess.Popen(command, start_new_session=True) as parent:
        try:
            assert parent.wait(timeout=60) == 0
        finally:
            if parent.poll() is None:
                os.killpg(parent.pid, signal.SIGKILL)


def everyone(count: int) -> list[Turns]:
    words = list(torch.zeros(count, 1, dtype=torch.int32))
    return [Turns(word, [*words[:at], *words[at + 1 :]]) for at, word in enumerate(words)]


def test_numbers_start_again_after_all_bits() -> None:
    word = torch.zeros(1, dtype=torch.int32)
    own, other = Turns(torch.zeros(1, dtype=torch.int32), [word]), Turns(word, [])
    for turn in (2**31 - 1, 2**31, 2**32 - 1, 2**32, 2**32 + 1):
        assert not own.wait(turn, 0.0)
        other.announce(turn)
        assert own.wait(turn, 0.0) and own.wait(turn - 1, 0.0)
    assert word.tolist() == [1]


def test_a_signal_ends_the_wait() -> None:
    came: list[int] = []
    previous = signal.signal(signal.SIGUSR1, lambda number, _: came.append(number))
    thread = threading.Timer(0.2, os.kill, (os.getpid(), signal.SIGUSR1))
    started = time.monotonic()
    try:
        thread.start()
        # The system gives the signal to any thread; it is handled on this one, when it next runs.
        while not came and time.monotonic() - started < 10:
            assert not everyone(2)[0].wait(1, 0.5)
        assert came == [signal.SIGUSR1]
    finally:
        thread.join()
        signal.signal(signal.SIGUSR1, previous)


@pytest.mark.parametrize(
    ("word", "error", "text"),
    [
        (torch.zeros(1, dtype=torch.int64), TypeError, "word must be torch.int32, got torch.int64"),
        (torch.zeros(2, dtype=torch.int32), ValueError, "word must be one aligned int32, not 2 numbers"),
        (torch.zeros(1, 1, dtype=torch.int32), ValueError, "one dimension"),
    ],
)
def test_refused(word: torch.Tensor, error: type[Exception], text: str) -> None:
    right = torch.zeros(1, dtype=torch.int32)
    with pytest.raises(error, match=text):
        Turns(word, [right])
    with pytest.raises(error, match=text):
        Turns(right, [word])


#: Computes something, and its gradients.
Run = Callable[[], Sequence[Tensor]]
DTYPES = (torch.float32, torch.bfloat16, torch.float64)


def with_gradients(call: Callable[..., Any], leaves: Sequence[Tensor]) -> list[Tensor]:
    found = call(*(one.requires_grad_() for one in leaves))
    out, *more = found if isinstance(found, tuple) else (found,)
    weights = torch.linspace(-1, 1, out.numel()).view_as(out).to(out.dtype)
    return [out.detach(), *more, *torch.autograd.grad(out, leaves, weights)]


def linear(dtype: torch.dtype) -> Run:
    case = linear_cases.make_case(5000, 65, (20, 33), dtype=dtype)

    def run() -> list[Tensor]:
        y = case.run(relu=True, drop=0.4, key=3)
        return [y, *linear_cases.gradients(y, case.leaves())]

    return run


def aggregate(reduce: str) -> Run:
    indptr, indices = graph(3000, 2500, 8)
    indptr[2000:] += 5000  # a hub
    indices = torch.cat([indices[: indptr[1999]], torch.zeros(5000).int(), indices[indptr[1999] :]])
    indptr, indices = indptr[:2401], indices[: indptr[2400]]  # targets are among the sources
    leaves = [torch.randn(2500, 100)]
    leaves += [torch.rand(indices.numel()), torch.rand(1)] if reduce in ops.SUMS else []

    def call(x: Tensor, *weights: Tensor) -> Tensor:
        named = dict(zip(("edge_weight", "self_scale"), weights, strict=False))
        return ops.aggregate(x, indptr, indices, reduce=reduce, **named)

    return lambda: with_gradients(call, leaves)


def linear_norm(learns: bool) -> Run:
    x = torch.randn(20_000, 30)
    leaves = [torch.randn(70, 30), *torch.randn(3, 70).unbind()]
    if learns:
        return lambda: with_gradients(lambda *given: ops.linear_norm(*given, relu=True), [x, *leaves])
    return lambda: with_gradients(lambda *given: ops.linear_norm(x, *given, relu=True), leaves)


def attention(dtype: torch.dtype, by_target: bool, by_head: bool) -> Run:
    options: dict[str, Any] = {"by_target": by_target, "edge_columns": 3, "by_head": by_head}
    case = reference_attention.make_case(700, 900, 9000, 20, 4, 700, dtype=dtype, hub=True, **options)
    upstream = torch.randn(700, 92, generator=torch.Generator().manual_seed(1)).to(dtype)

    def run() -> list[Tensor]:
        found = case.run(drop=0.2, key=3)
        return [*found, *torch.autograd.grad(found.out, case.leaves, upstream)]

    return run


def edge_sums(kind: str) -> Run:
    case = test_edge_sums.make_case(kind, 40, dtype=torch.float32, edges=30_000)
    return lambda: [case.run(), *test_edge_sums.gradients(case.run(), list(case.leaves.values()))]


def norm(operator: Callable[..., Any], dtype: torch.dtype, **options: Any) -> Run:
    leaves = [torch.randn(9001, 70), torch.rand(70), torch.randn(70)]
    leaves[0] = leaves[0].to(dtype)
    leaves = [one.double() if dtype is torch.float64 else one for one in leaves]
    return lambda: with_gradients(lambda *given: operator(*given, relu=True, **options), leaves)


def activate(dtype: torch.dtype) -> Run:
    start, node = torch.randn(3000, 100).to(dtype), torch.randint(10**9, (3000,))
    return lambda: [ops.activate(start.clone(), relu=True, drop=0.4, key=5, node=node)]


CASES: dict[str, Callable[[], Run]] = {
    **{f"linear, {one}": lambda one=one: linear(one) for one in DTYPES},
    **{f"aggregate, {one}": lambda one=one: aggregate(one) for one in ops.REDUCTIONS},
    **{f"linear norm, {one}": lambda one=one: linear_norm(one) for one in (False, True)},
    **{
        f"attention, {options}": lambda options=options: attention(*options)
        for options in itertools.product(DTYPES[:2], (False, True), (False, True))
    },
    **{f"edge sums, {one}": lambda one=one: edge_sums(one) for one in test_edge_sums.KINDS},
    **{f"batch norm, {one}": lambda one=one: norm(ops.batch_norm, one) for one in DTYPES},
    **{f"layer norm, {one}": lambda one=one: norm(ops.layer_norm, one, drop=0.3, key=4) for one in DTYPES},
    **{f"activate, {one}": lambda one=one: activate(one) for one in DTYPES},
}


@pytest.mark.parametrize("case", CASES)
def test_the_same_bits_on_any_number_of_threads(case: str) -> None:
    run = CASES[case]()
    results = []
    for threads in (1, 2, 3, 4, 8, 16):
        torch.set_num_threads(threads)
        with ops.thread_limit(threads):
            results.append(run())
    for other in results[1:]:
        assert all(torch.equal(a, b) for a, b in zip(results[0], other, strict=True))


PROGRAM = """
import sys
import pytest
from pyg_batchgnn import ops

code = pytest.main(["-q", "-x", "-p", "no:cacheprovider", "-m", "every_level", *sys.argv[1:]])
print(ops.simd_level())
sys.exit(code)
"""


@pytest.mark.parametrize("level", [*in_all("avx2"), "baseline"])
def test_marked_tests_pass_at_every_level(level: str) -> None:
    variables = {"OMP_NUM_THREADS": "2", "PYG_BATCHGNN_SIMD": level, VARIABLE: ""}
    here = Path(__file__).parent
    ran = run_text(PROGRAM, here, here.parent / "sample" / "test_labor.py", **variables)
    assert ran.returncode == 0, ran.stdout[-6000:] + ran.stderr
    assert int(ran.stdout.split()[-1]) in WIDTHS[level]
