"""The predictions of the planner."""
