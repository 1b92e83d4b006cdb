"""Learned embeddings over ranks."""
