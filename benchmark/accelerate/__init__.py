"""A user's script with PyG's models, step by step faster."""
