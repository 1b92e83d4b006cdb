"""Neighbour sampling alone."""
