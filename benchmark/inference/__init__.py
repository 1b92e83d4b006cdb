"""The inference of all nodes."""
