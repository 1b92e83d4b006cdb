"""Benchmarks of the package; ``python -m benchmark`` lists them."""
