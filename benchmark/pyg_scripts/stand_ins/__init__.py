"""Generated data sets in the places of those that PyG's scripts download."""
