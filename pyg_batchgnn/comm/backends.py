"""The backends of torch.distributed that are available here for tensors on the CPU."""

from __future__ import annotations

import torch.distributed as dist

from pyg_batchgnn.comm import ccl


def available_backends() -> list[str]:
    """Returns the names that `check_backend` accepts, gloo first."""
    names = sorted(name for name in dist.Backend.backend_list if why_unavailable(name) is None)
    return sorted(names, key=lambda name: name != "gloo")


def check_backend(name: str) -> None:
    """Checks that a backend is available here.

    Args:
        name: "gloo", "ccl", "mpi" or one that an imported package has registered; or names by
            device, of which the CPU's is used: "cpu:ccl,cuda:nccl".

    Raises:
        ValueError: it is not available. The text says why, and which backends are.
    """
    problem = why_unavailable(_of_cpu(name))
    if problem is not None:
        available = ", ".join(available_backends())
        raise ValueError(f"backend is {name!r}: {problem}; available here: {available}")


def describe_backend(name: str) -> str:
    """Describes a backend: its name, and for ccl the transport that was chosen and why."""
    choice = ccl.chosen_transport() if _of_cpu(name) == "ccl" else None
    return f"{name} over {choice}" if choice is not None else name


def why_unavailable(name: str) -> str | None:
    """Returns why a backend cannot be used here, or None where it can."""
    if name == "ccl":
        return ccl.why_unavailable()
    if name == "fake":
        return "it is torch's stand-in for tests, which moves nothing"
    if "cpu" not in dist.Backend.backend_capability.get(name, []):
        if name in dist.Backend.backend_list:
            return f"{name} moves tensors on GPUs, and these are on the CPU; take gloo or ccl"
        return "torch has no backend of that name"
    if not dist.is_backend_available(name) or (name == "mpi" and not dist.is_mpi_available()):
        return f"this torch was built without {name}"
    return None


def _of_cpu(name: str) -> str:
    if ":" not in name:
        return name.lower()
    pairs = dict(pair.lower().partition(":")[::2] for pair in name.split(","))
    return pairs.get("cpu", name)
