"""The time until models reach an accuracy."""
