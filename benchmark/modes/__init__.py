"""Sampling by types, times, weights and links."""
