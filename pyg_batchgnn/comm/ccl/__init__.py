"""The backend "ccl" of torch.distributed for CPUs, over oneCCL."""

from pyg_batchgnn.comm.ccl.backend import chosen_transport, create, rest, why_unavailable
from pyg_batchgnn.comm.ccl.library import CclMissingError, Libraries, find_libraries

__all__ = [
    "CclMissingError",
    "Libraries",
    "chosen_transport",
    "create",
    "find_libraries",
    "rest",
    "why_unavailable",
]
