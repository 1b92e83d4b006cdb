"""The accuracy that models reach."""
