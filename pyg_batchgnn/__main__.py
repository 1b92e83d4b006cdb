"""``python -m pyg_batchgnn``, the same as the command ``batchgnn``."""

from pyg_batchgnn.train.cli import main

if __name__ == "__main__":
    main()
