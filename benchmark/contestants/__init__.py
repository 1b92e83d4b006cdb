"""One module a side; each imports only what its own interpreter has, and lists its jobs in ``JOBS``."""
