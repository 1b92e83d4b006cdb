"""One table of collectives over every backend: results are equal to those computed locally."""

from __future__ import annotations

import os
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest
import torch.distributed as dist

from pyg_batchgnn.comm import Communicator, check_backend
from pyg_batchgnn.comm.ccl import (
    CclMissingError,
    Libraries,
    RankFacts,
    TransportChoice,
    apply,
    choose_transport,
    find_libraries,
    interface,
    settings,
)
from tests.support.backends import BACKENDS, needs_ccl
from tests.support.programs import run_python
from tests.support.ranks import run_ranks
from tests.support.tiers import in_all

JOBS = "tests.comm.job_exchanges"

#: What a backend is known to refuse.
REFUSED = {"gloo": ["all_gather_uneven", "all_to_all_uneven"], "ccl": []}


@pytest.mark.parametrize("backend", [*in_all("gloo"), *BACKENDS[1:]])  # gloo is torch's
@pytest.mark.parametrize("ranks", [2, *in_all(4)])
def test_collectives_are_what_is_computed_locally(backend: str, ranks: int) -> None:
    arguments = {"backend": backend, "refused": REFUSED[backend]}
    for result in run_ranks(f"{JOBS}:all_cases", ranks, arguments):
        assert result.value == {}, "\n".join(f"{name}: {text}" for name, text in result.value.items())


@needs_ccl
def test_ccl_over_tcp() -> None:
    """Where ranks share no memory, as between hosts."""
    results = run_ranks(f"{JOBS}:all_cases", 2, {"backend": "ccl", "refused": []}, hosts=[0, 1])
    assert [result.value for result in results] == [{}, {}]


#: A script that ends while the thread of ccl frees tensors, for which the thread needs the
#: interpreter, which ends. It is a program of its own: forks end too soon to show it.
_SCRIPT = """
import os
import sys

import torch
import torch.distributed as dist

import pyg_batchgnn

os.sched_setaffinity(0, [min(os.sched_getaffinity(0))])  # as on a machine with other work
dist.init_process_group("ccl", "file://" + sys.argv[2], rank=int(sys.argv[1]), world_size=2)
rows, outputs = torch.ones(64), [torch.zeros(64) for _ in range(200)]
works = [dist.all_to_all_single(output, rows, async_op=True) for output in outputs]
works.pop().wait()
"""


@needs_ccl
def test_a_script_ends_well_with_collectives_under_way(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(_SCRIPT)
    with ThreadPoolExecutor() as pool:
        ended = list(pool.map(lambda rank: run_python(script, rank, tmp_path / "store"), "01"))
    assert [one.returncode for one in ended] == [0, 0], [one.stderr for one in ended]


def test_a_process_ends_well_with_a_thread_at_work() -> None:
    arguments = {"seconds": 3.0}
    for result in run_ranks(f"{JOBS}:ends_with_a_thread_at_work", 2, arguments, check=False, whole_end=True):
        assert (result.code, result.value) == (0, 2), result.stderr


RANK = RankFacts(host=0, name="a", machine="m", room=1 << 30, master="127.0.0.1", shared=None, asked="")
OTHER_HOST = replace(RANK, host=1, name="b", machine="n", master="10.0.0.1")

#: Ranks; whether the group has all of the world's; whether memory is shared, and what is said.
CHOICES = [
    ([RANK, RANK], True, True, "has room"),
    ([RANK, RANK, OTHER_HOST, OTHER_HOST], True, True, "has room"),
    ([RANK, OTHER_HOST], True, False, "a host of its own"),
    ([RANK, RANK], False, False, "not have all ranks"),
    ([RANK, RANK, replace(RANK, host=1)], True, False, "told apart by their names"),
    ([RANK, replace(RANK, name="b")], True, False, "told apart by their names"),
    ([RANK, replace(RANK, machine="n")], True, False, "the same /dev/shm"),
    ([replace(RANK, machine="")] * 2, True, False, "the same /dev/shm"),
    ([RANK, replace(RANK, room=1 << 20)], True, False, "1 MiB free"),
    ([replace(RANK, asked="0")] * 2, True, False, "CCL_ATL_SHM is set"),
    ([replace(RANK, asked="1"), replace(OTHER_HOST, asked="1")], True, True, "CCL_ATL_SHM is set"),
    ([replace(RANK, shared=True), RANK], False, True, "first group"),
]


@pytest.mark.parametrize(("ranks", "whole_world", "shared", "why"), CHOICES)
def test_transport(ranks: list[RankFacts], whole_world: bool, shared: bool, why: str) -> None:
    choice = choose_transport(ranks, ranks[0], whole_world)
    assert choice.shared is shared and why in choice.why and why in str(choice)


def test_ranks_that_cannot_agree_on_a_transport() -> None:
    with pytest.raises(ValueError, match="CCL_ATL_SHM differs"):
        choose_transport([RANK, replace(RANK, asked="1")], RANK, True)
    with pytest.raises(ValueError, match="earlier groups"):
        choose_transport([replace(RANK, shared=False), replace(RANK, shared=True)], RANK, False)


def test_interface() -> None:
    assert interface([RANK, RANK], RANK, {}) == "lo"
    assert interface([RANK, OTHER_HOST], RANK, {"GLOO_SOCKET_IFNAME": "eth7,eth8"}) == "eth7"
    assert interface([RANK, replace(OTHER_HOST, master="")], RANK, {}) == ""


def test_what_the_user_has_set_stays() -> None:
    libraries = Libraries(Path("/x/lib/libccl.so.1"), Path("/y/lib/libfabric.so.1"))
    chosen = settings(
        libraries, TransportChoice(False, "eth0", ""), {"LOCAL_RANK": "2", "LOCAL_WORLD_SIZE": "3"}
    )
    assert (chosen["CCL_LOCAL_RANK"], chosen["CCL_LOCAL_SIZE"]) == ("2", "3")
    assert (chosen["FI_PROVIDER_PATH"], chosen["FI_TCP_IFACE"]) == ("/y/lib", "eth0")
    environment = {"FI_TCP_IFACE": "eth1", "CCL_YIELD": "pause"}
    apply(chosen, environment)
    assert (environment["FI_TCP_IFACE"], environment["CCL_YIELD"], environment["CCL_ATL_SHM"]) == (
        "eth1",
        "pause",
        "0",
    )
    assert "FI_TCP_IFACE" not in settings(libraries, TransportChoice(False, "", ""), {})


def test_libraries_that_are_not_there(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("pyg_batchgnn.comm.ccl._roots", lambda _: iter([tmp_path]))
    with pytest.raises(CclMissingError, match=r"oneCCL .* is not installed; pip install oneccl-devel"):
        find_libraries()
    library = tmp_path / "lib/ccl/cpu/lib/libccl.so.1"
    library.parent.mkdir(parents=True)
    library.touch()
    with pytest.raises(CclMissingError, match="libfabric"):
        find_libraries()


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("nonsense", r"is 'nonsense': torch has no backend of that name; available here: gloo"),
        ("nccl", r"tensors on GPUs, .* take gloo or ccl"),
        ("cpu:nccl", r"tensors on GPUs"),
        ("mpi", r"built without mpi"),
    ],
)
def test_backends_that_are_not_available(name: str, text: str) -> None:
    with pytest.raises(ValueError, match=text):
        check_backend(name)
    with pytest.raises(ValueError, match=text):  # in one process too
        Communicator.create("alone", backend=name)


def test_mpi_is_taken_where_torch_has_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dist, "is_mpi_available", lambda: True)
    check_backend("mpi")
    check_backend("cpu:gloo,cuda:nccl")


@pytest.mark.parametrize(
    "first", ["import pyg_batchgnn; assert 'torch' not in sys.modules", *in_all("import torch")]
)
def test_the_name_is_registered_whichever_is_imported_first(first: str) -> None:
    code = f"import sys; {first}; import pyg_batchgnn, torch.distributed as d"
    code += "; assert d.is_backend_available('ccl') and 'pyg_batchgnn.comm' not in sys.modules"
    run_python("-c", code).check_returncode()


INTELS = """
import torch.distributed as dist

def make(store, rank, size, timeout):
    print("Intel's makes it")
    return dist.ProcessGroupGloo(store, rank, size, timeout)

dist.Backend.register_backend("ccl", make, devices=["cpu"])
"""
GROUP_OF_ONE = """
import torch
import torch.distributed as dist
dist.init_process_group("ccl", store=dist.HashStore(), rank=0, world_size=1)
value = torch.ones(3)
dist.all_reduce(value)
print(value.tolist())
dist.destroy_process_group()  # else torch's threads may still hold tensors when Python ends, and it aborts
"""


@pytest.mark.parametrize(
    "first", ["import pyg_batchgnn", *in_all("import oneccl_bindings_for_pytorch\nimport pyg_batchgnn")]
)
def test_intels_bindings_are_used_where_they_can_be_imported(first: str, tmp_path: Path) -> None:
    (tmp_path / "oneccl_bindings_for_pytorch.py").write_text(INTELS)
    path = os.pathsep.join([str(tmp_path), *filter(None, sys.path)])
    done = run_python("-c", f"{first}\n{GROUP_OF_ONE}", PYTHONPATH=path)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == ["Intel's makes it", "[1.0, 1.0, 1.0]"]
