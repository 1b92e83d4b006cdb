"""The accuracy that models reach with historical embeddings, and what they exchange."""
