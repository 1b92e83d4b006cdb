"""PyG's own tests, run from a checkout of PyG with this package's classes in place of PyG's."""
