"""The errors of a failed command that a user can mend, and their exit statuses.

It imports torch, so it is imported when a command has failed.
"""

from __future__ import annotations

import torch.distributed as dist

from pyg_batchgnn.comm import AgreementError, CommError
from pyg_batchgnn.data import DatasetError
from pyg_batchgnn.data.files import system_message
from pyg_batchgnn.train.cli.messages import PEER_FAILED, USER_MISTAKE, complain, rank
from pyg_batchgnn.train.errors import FirstRankError, TrainError

#: Torch's word, in a RuntimeError, for a tensor that does not fit into memory.
_NO_MEMORY = "DefaultCPUAllocator"


#: The commands whose memory goes to batches; that of the others goes to the graph.
_WITH_BATCHES = ("train", "predict", "evaluate", "plan")


def report(error: Exception, command: str = "") -> int:
    """Prints one line about the error that is being handled. Returns the exit status.

    Args:
        error: the error.
        command: the command that failed.

    Raises:
        Exception: the error itself, if it is a fault of the program, or if the debug variable is
            set.
    """
    if isinstance(error, FirstRankError):
        return USER_MISTAKE
    if isinstance(error, AgreementError):  # all ranks have the same error
        return complain(str(error), USER_MISTAKE) if rank() in ("", "0") else USER_MISTAKE
    if isinstance(error, (CommError, dist.DistError)):
        return complain(str(error), PEER_FAILED)
    if isinstance(error, (TrainError, DatasetError)):
        return complain(str(error), USER_MISTAKE)
    if isinstance(error, OSError):
        return complain(system_message(error), USER_MISTAKE)
    if isinstance(error, MemoryError) or (isinstance(error, RuntimeError) and _NO_MEMORY in str(error)):
        advice = "use a smaller batch, fanout or hidden size"
        if command not in _WITH_BATCHES:
            advice = "the graph does not fit; use a machine with more memory, or ranks on several machines"
        return complain(f"not enough memory: {error}; {advice}", USER_MISTAKE)
    raise error
