"""The accuracy that models reach on several ranks."""
