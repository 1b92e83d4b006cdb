"""The networks that are trained: one architecture for all sides, built from what each side has."""
