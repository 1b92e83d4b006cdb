"""The sides that are compared."""
