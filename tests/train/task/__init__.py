"""Tests of the tasks that a model can learn."""
