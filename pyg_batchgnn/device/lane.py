"""The way to a device: its stream of copies, its events, and the registering of host memory.

`CpuLane` takes the CPU for a device. Copies are then copies in memory and are over at once; all
else, order and counters included, is what `CudaLane` does.
"""

from __future__ import annotations

import contextlib
import enum
import importlib.util
import mmap
import threading
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from torch import Tensor

from pyg_batchgnn import machine


class Ticket:
    """A moment in a device's queue, over when all earlier work is done; on the CPU at once."""

    def done(self) -> bool:
        """Returns whether all work before is done, without waiting."""
        return True

    def wait(self) -> None:
        """Waits on the calling thread until all work before is done."""


class CpuLane:
    """The stream on which batches are copied to a device and made there; here of the CPU.
    ``limit``: bytes of host memory that may be page-locked; None for any. ``reads_host``: True if
    the device's kernels read such memory; the CPU's are interpreted (TRITON_INTERPRET=1)."""

    device = torch.device("cpu")

    def __init__(self, limit: int | None = None, reads_host: bool = False) -> None:
        self.reads_host, self._limit = reads_host, limit
        #: By address, the bytes of each registered range.
        self.registered: dict[int, int] = {}
        self._lock = threading.RLock()

    def working(self) -> AbstractContextManager[Any]:
        """A context in which operations are queued on this stream."""
        return nullcontext()

    def mark(self) -> Ticket:
        """Returns a ticket for all work queued on this stream so far."""
        return Ticket()

    def follow(self) -> None:
        """Lets this stream wait for earlier work of the device's default stream."""

    def hand_over(self, ticket: Ticket, tensors: Iterable[Tensor]) -> None:
        """Lets the caller's stream use this stream's tensors after ``ticket``, without waiting."""

    def has_locked(self, tensor: Tensor) -> bool:  # noqa: ARG002
        """Returns whether torch itself has page-locked a tensor."""
        return False

    def register(self, address: int, nbytes: int) -> str | None:
        """Page-locks host memory for direct access. Returns the reason if that fails, else None."""
        with self._lock:
            if self._limit is not None and sum(self.registered.values()) + nbytes > self._limit:
                return "out of memory"
            if any(one < address + nbytes and address < one + size for one, size in self.registered.items()):
                return "part or all of the requested memory range is already mapped"
            self.registered[address] = nbytes
        return None

    def unregister(self, address: int) -> None:
        with self._lock:
            del self.registered[address]

    def free_bytes(self) -> int:
        """Returns the bytes that are free on the device."""
        return machine.memory().available


# A GPU ############################################################################################

#: cudaHostRegisterPortable and cudaHostRegisterMapped: for all devices, and for their kernels.
_REGISTER = 1 | 2


class CudaLane(CpuLane):
    """A GPU, and a stream of its own on which copies to it run."""

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self._stream = torch.cuda.Stream(device)
        self.why_not = self._try_kernel()
        self.reads_host = self.why_not is None

    @contextlib.contextmanager
    def working(self) -> Iterator[None]:
        # A stream's own context would go back to device 0 on a new thread, and take memory there.
        with torch.cuda.device(self.device), torch.cuda.stream(self._stream):
            yield

    def mark(self) -> Ticket:
        return _CudaTicket(self._stream)

    def follow(self) -> None:
        self._stream.wait_stream(torch.cuda.default_stream(self.device))

    def hand_over(self, ticket: Ticket, tensors: Iterable[Tensor]) -> None:
        assert isinstance(ticket, _CudaTicket)
        current = torch.cuda.current_stream(self.device)
        current.wait_event(ticket.event)
        for tensor in tensors:
            if tensor.is_cuda:
                tensor.record_stream(current)

    def register(self, address: int, nbytes: int) -> str | None:
        with torch.cuda.device(self.device):
            runtime = torch.cuda.cudart()
            code = runtime.cudaHostRegister(address, nbytes, _REGISTER)
            if int(code) == 0:
                return None
            # Clears the error that CUDA keeps. Torch's next kernel would be blamed for it.
            with contextlib.suppress(RuntimeError):
                torch.arange(2, device=self.device)
        return str(runtime.cudaGetErrorString(code))

    def unregister(self, address: int) -> None:
        with torch.cuda.device(self.device):  # another thread's device may be one that nobody uses
            torch.cuda.cudart().cudaHostUnregister(address)

    def free_bytes(self) -> int:
        # What torch keeps for later tensors is free as well.
        free, _ = torch.cuda.mem_get_info(self.device)
        kept = torch.cuda.memory_reserved(self.device) - torch.cuda.memory_allocated(self.device)
        return int(free + kept)

    def has_locked(self, tensor: Tensor) -> bool:
        return tensor.is_pinned()

    def _try_kernel(self) -> str | None:
        """Reads a few rows of host memory by the kernel. Returns the reason if that fails."""
        if importlib.util.find_spec("triton") is None:
            return "Triton is not installed"
        page = mmap.PAGESIZE
        both = torch.arange(page // 2, dtype=torch.int32)  # two pages, of which one is whole
        # A page that the table shared might be registered already.
        table = both[-both.data_ptr() % page // 4 :][: page // 4].view(-1, 16)
        reason = self.register(table.data_ptr(), table.nbytes)
        if reason is not None:
            return f"host memory cannot be registered: {reason}"
        try:
            from pyg_batchgnn.device.triton_rows import read_rows

            with self.working():
                index = torch.tensor([63, 0, 7], device=self.device)
                right = read_rows(table, index).cpu().equal(table[[63, 0, 7]])
            return None if right else "Triton's kernel read other rows than it was asked for"
        except Exception as error:  # of Triton, which needs a C compiler at its first call
            return f"Triton's kernel failed ({type(error).__name__}: {str(error).splitlines()[:1]})"
        finally:
            self.unregister(table.data_ptr())


class _CudaTicket(Ticket):
    def __init__(self, stream: torch.cuda.Stream) -> None:
        self.event = torch.cuda.Event()
        self.event.record(stream)

    def done(self) -> bool:
        return bool(self.event.query())

    def wait(self) -> None:
        self.event.synchronize()


# Choosing #########################################################################################


class FeaturePlacement(enum.Enum):
    """Where the tables of batches on a device lie."""

    AUTO = "auto"  # on the device as far as half of its free memory goes, else on the host
    DEVICE = "device"
    HOST = "host"


def checked_device(device: Any) -> torch.device | None:
    """Returns the user's device with its index, or None. Raises an error if it cannot be used."""
    if device is None:
        return None
    if not isinstance(device, (str, int, torch.device)) or isinstance(device, bool):
        raise TypeError(f"device must be a name such as 'cuda' or a torch.device, got {device!r}")
    try:
        found = torch.device("cuda", device) if isinstance(device, int) else torch.device(device)
    except RuntimeError as error:
        raise ValueError(f"device={device!r} is no device ({str(error).splitlines()[0]})") from None
    if found.type == "cpu":
        return torch.device("cpu")
    if found.type != "cuda":
        raise ValueError(f"device must be 'cuda', 'cuda:1', ... or 'cpu', got {device!r}")
    if not torch.cuda.is_available():
        built = torch.version.cuda
        kind = "it is built without CUDA" if built is None else f"CUDA {built}"
        remedy = "install a torch with CUDA" if built is None else "see what nvidia-smi says of the driver"
        raise RuntimeError(
            f"device={device!r}, but torch {torch.__version__} sees no GPU ({kind}); {remedy}, or leave "
            f"device out"
        )
    number = torch.cuda.current_device() if found.index is None else found.index
    if number >= torch.cuda.device_count():
        raise ValueError(f"device={device!r}, but there are {torch.cuda.device_count()} GPUs, from cuda:0")
    return torch.device("cuda", number)


def lane_of(device: torch.device) -> CpuLane:
    """Returns a new stream for copies to a device."""
    return CpuLane() if device.type == "cpu" else CudaLane(device)
