"""The backend "ccl" of torch.distributed for CPUs, over oneCCL."""

from pyg_batchgnn.comm.ccl.backend import chosen_transport, create, why_unavailable
from pyg_batchgnn.comm.ccl.library import CclMissingError

__all__ = ["CclMissingError", "chosen_transport", "create", "why_unavailable"]
