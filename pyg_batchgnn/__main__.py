"""The command ``batchgnn``, which is also ``python -m pyg_batchgnn``."""

from __future__ import annotations

import sys


def main() -> None:
    """Runs the command line and exits; Ctrl-C ends as quietly while torch is imported as later."""
    try:
        from pyg_batchgnn.train.cli import main as run

        run()
    except KeyboardInterrupt:
        print("batchgnn: interrupted", file=sys.stderr)
        sys.exit(130)


if __name__ == "__main__":
    main()
