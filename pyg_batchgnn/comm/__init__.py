"""Communication between ranks: collectives over any torch.distributed backend, counted and checked.

Every error names the rank that it is about.
"""

from typing import TYPE_CHECKING

from pyg_batchgnn.late_imports import late_names

if TYPE_CHECKING:
    from pyg_batchgnn.comm.collectives import Received as Received
    from pyg_batchgnn.comm.communicator import Communicator as Communicator
    from pyg_batchgnn.comm.communicator import check_backend as check_backend
    from pyg_batchgnn.comm.communicator import describe_backend as describe_backend
    from pyg_batchgnn.comm.communicator import gradient_hook as gradient_hook
    from pyg_batchgnn.comm.communicator import why_unavailable as why_unavailable
    from pyg_batchgnn.comm.diagnosis import AgreementError as AgreementError
    from pyg_batchgnn.comm.diagnosis import BrokenCommunicatorError as BrokenCommunicatorError
    from pyg_batchgnn.comm.diagnosis import CommError as CommError
    from pyg_batchgnn.comm.diagnosis import DivergenceError as DivergenceError
    from pyg_batchgnn.comm.diagnosis import PeerError as PeerError
    from pyg_batchgnn.comm.host_memory import Field as Field
    from pyg_batchgnn.comm.host_memory import share_on_host as share_on_host
    from pyg_batchgnn.comm.message import CommCounters as CommCounters
    from pyg_batchgnn.comm.message import Counts as Counts
    from pyg_batchgnn.comm.message import Header as Header
    from pyg_batchgnn.comm.message import KindCounts as KindCounts
    from pyg_batchgnn.comm.message import MessageKind as MessageKind
    from pyg_batchgnn.comm.serial_executor import Handle as Handle
    from pyg_batchgnn.comm.serial_executor import SerialExecutor as SerialExecutor
    from pyg_batchgnn.comm.serial_executor import interrupts_held_back as interrupts_held_back
else:
    __getattr__ = late_names(__name__)
