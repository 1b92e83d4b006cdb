"""Which backends of torch.distributed can be had here for tensors on the CPU."""

from __future__ import annotations

import torch.distributed as dist

from pyg_batchgnn.comm.ccl import missing, taken


def available() -> list[str]:
    """Names that `check_backend` accepts, gloo first."""
    names = sorted(name for name in dist.Backend.backend_list if lacks(name) is None)
    return sorted(names, key=lambda name: name != "gloo")


def check_backend(name: str) -> None:
    """Makes sure that a backend can be had here.

    Args:
        name: "gloo", "ccl", "mpi" or one that an imported package has registered; or names by device, of
            which the CPU's counts: "cpu:ccl,cuda:nccl".

    Raises:
        ValueError: it cannot; the text says why, and which can.
    """
    problem = lacks(_of_cpu(name))
    if problem is not None:
        raise ValueError(f"backend is {name!r}: {problem}; what can be had here: {', '.join(available())}")


def describe_backend(name: str) -> str:
    """The backend, and for ccl the transport that was taken and why."""
    choice = taken() if _of_cpu(name) == "ccl" else None
    return f"{name} over {choice}" if choice is not None else name


def _of_cpu(name: str) -> str:
    if ":" not in name:
        return name.lower()
    pairs = dict(pair.lower().partition(":")[::2] for pair in name.split(","))
    return pairs.get("cpu", name)


def lacks(name: str) -> str | None:
    """Why a backend cannot be used, None where it can."""
    if name == "ccl":
        return missing()
    if name == "fake":
        return "it is torch's stand-in for tests, which moves nothing"
    if "cpu" not in dist.Backend.backend_capability.get(name, []):
        if name in dist.Backend.backend_list:
            return f"{name} moves tensors on GPUs, and these are on the CPU; take gloo or ccl"
        return "torch has no backend of that name"
    if not dist.is_backend_available(name) or (name == "mpi" and not dist.is_mpi_available()):
        return f"this torch was built without {name}"
    return None
