"""The configuration of a run: its fields, their checks, presets, and its form as JSON."""
