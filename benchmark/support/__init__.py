"""The parts that the benchmarks share: harness, meters, graphs, options and tables."""
