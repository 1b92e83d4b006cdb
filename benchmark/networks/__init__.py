"""The networks that are trained."""
