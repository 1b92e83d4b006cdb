"""The benchmarks: what they store, and the hosts that they set up."""
