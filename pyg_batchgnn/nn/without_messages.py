"""The base of convolutions that never send messages."""

from __future__ import annotations

from torch_geometric.nn.conv import MessagePassing


class WithoutMessages(MessagePassing):
    """A convolution of which PyG need not generate code for messages.

    PyG generates it from the calls that it finds in the source of a class, and stores it with the
    class. A native layer has no such calls. What would be generated for it would hide what PyG
    generated for its own class, which `pyg_batchgnn.accelerate` falls back to.
    """

    def _set_jittable_templates(self, raise_on_error: bool = False) -> None:
        """Generates nothing."""
        del raise_on_error
