"""Communication between ranks: collectives over any torch.distributed backend, counted and checked.

Every error names the rank that it is about.
"""

from typing import TYPE_CHECKING

from pyg_batchgnn.late_imports import late_names

if TYPE_CHECKING:
    from pyg_batchgnn.comm.collectives import Received
    from pyg_batchgnn.comm.communicator import (
        Communicator,
        check_backend,
        describe_backend,
        gradient_hook,
        why_unavailable,
    )
    from pyg_batchgnn.comm.errors import (
        AgreementError,
        BrokenCommunicatorError,
        CommError,
        DivergenceError,
        PeerError,
    )
    from pyg_batchgnn.comm.host_memory import Access, Field, RowLayout, share_on_host
    from pyg_batchgnn.comm.message import CommCounters, Counts, Header, KindCounts, MessageKind
    from pyg_batchgnn.comm.serial_executor import Handle, SerialExecutor, interrupts_held_back
else:
    __getattr__ = late_names(__name__)

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
    "check_backend",
    "describe_backend",
    "gradient_hook",
    "interrupts_held_back",
    "share_on_host",
    "why_unavailable",
]
