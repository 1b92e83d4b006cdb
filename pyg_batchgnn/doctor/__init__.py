"""Checks of what is installed and works here, with remedies for what does not."""

from pyg_batchgnn.doctor.checks import Finding, FindingState, as_json, as_table, examine, is_healthy

__all__ = ["Finding", "FindingState", "as_json", "as_table", "examine", "is_healthy"]
