"""The backend "ccl" of torch.distributed for CPUs, over oneCCL."""

from pyg_batchgnn.comm.ccl.backend import missing, taken
from pyg_batchgnn.comm.ccl.library import CclMissingError

__all__ = ["CclMissingError", "missing", "taken"]
