"""The loader with features."""
