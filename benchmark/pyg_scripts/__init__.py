"""PyG's own benchmark scripts and examples, with one changed import."""
