"""The command ``batchgnn``, also available as ``python -m pyg_batchgnn``."""

from __future__ import annotations

import io
import sys

from pyg_batchgnn.spinning import bound_spinning


def main() -> None:
    """Runs the command line and exits. Ctrl-C prints one line, even while torch is imported."""
    bound_spinning()
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):  # a locale without UTF-8 prints what it can
            stream.reconfigure(errors="backslashreplace")
    if sys.getfilesystemencoding() != "utf-8" and not all(map(str.isascii, sys.argv[1:])):
        print("batchgnn: this locale has names of ASCII alone; set LC_ALL=C.UTF-8", file=sys.stderr)
        sys.exit(2)
    try:
        from pyg_batchgnn.train.cli import main as run

        run()
    except MemoryError:
        print("batchgnn: not enough memory to start", file=sys.stderr)
        sys.exit(2)
    except KeyboardInterrupt:
        print("batchgnn: interrupted", file=sys.stderr)
        sys.exit(130)


if __name__ == "__main__":
    main()
