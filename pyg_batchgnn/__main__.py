"""The command ``batchgnn``, also available as ``python -m pyg_batchgnn``."""

from __future__ import annotations

import sys

from pyg_batchgnn.spinning import bound_spinning


def main() -> None:
    """Runs the command line and exits. Ctrl-C prints one line, even while torch is imported."""
    bound_spinning()
    try:
        from pyg_batchgnn.train.cli import main as run

        run()
    except KeyboardInterrupt:
        print("batchgnn: interrupted", file=sys.stderr)
        sys.exit(130)


if __name__ == "__main__":
    main()
