"""PyG's own tests and scripts, run from a checkout of PyG with our classes in place of PyG's."""
