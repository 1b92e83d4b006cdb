"""The checkout of PyG whose scripts are run. It is never part of this repository."""

from __future__ import annotations

import os
from pathlib import Path

#: The environment variable that names the checkout.
VARIABLE = "PYG_BATCHGNN_PYG_CHECKOUT"
RELEASE = "2.8.0.post1"


def pyg_checkout() -> Path | None:
    """Returns the folder of the checkout, or None if the environment names none.

    Raises:
        FileNotFoundError: there is no checkout of PyG in the folder that is named.
    """
    named = os.environ.get(VARIABLE)
    if not named:
        return None
    folder = Path(named).resolve()
    if not (folder / "torch_geometric" / "__init__.py").is_file():
        raise FileNotFoundError(f"{VARIABLE}={named} is no checkout of PyG; name one of tag {RELEASE}")
    return folder


def missing() -> str:
    """Returns the text that says how to get a checkout."""
    return (
        f"{VARIABLE} must name a checkout of PyG, tag {RELEASE}: git clone --depth 1 --branch {RELEASE} "
        f"https://github.com/pyg-team/pytorch_geometric"
    )
