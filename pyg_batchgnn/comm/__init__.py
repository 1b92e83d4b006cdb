"""Communication between ranks: collectives over any torch.distributed backend, counted and checked.

Every error names the rank that it is about.
"""

from pyg_batchgnn.comm.backends import (
    available_backends,
    check_backend,
    describe_backend,
    why_unavailable,
)
from pyg_batchgnn.comm.communicator import Communicator
from pyg_batchgnn.comm.counters import CommCounters, Counts, KindCounts
from pyg_batchgnn.comm.errors import (
    AgreementError,
    BrokenCommunicatorError,
    CommError,
    DivergenceError,
    PeerError,
)
from pyg_batchgnn.comm.header import Header, MessageKind
from pyg_batchgnn.comm.hook import gradient_hook
from pyg_batchgnn.comm.host_memory import Access, share_on_host
from pyg_batchgnn.comm.interrupts import interrupts_held_back
from pyg_batchgnn.comm.layout import Field, RowLayout
from pyg_batchgnn.comm.rows import Received
from pyg_batchgnn.comm.serial_executor import Handle, SerialExecutor

__all__ = [
    "Access",
    "AgreementError",
    "BrokenCommunicatorError",
    "CommCounters",
    "CommError",
    "Communicator",
    "Counts",
    "DivergenceError",
    "Field",
    "Handle",
    "Header",
    "KindCounts",
    "MessageKind",
    "PeerError",
    "Received",
    "RowLayout",
    "SerialExecutor",
    "available_backends",
    "check_backend",
    "describe_backend",
    "gradient_hook",
    "interrupts_held_back",
    "share_on_host",
    "why_unavailable",
]
