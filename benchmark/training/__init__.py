"""Training steps of four networks."""
