"""The memory of training steps."""
