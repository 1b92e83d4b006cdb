"""The memory of the loader."""
