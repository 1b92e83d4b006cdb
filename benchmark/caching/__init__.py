"""The aggregation cache."""
