"""What is installed and works here, and what to do about the rest."""

from pyg_batchgnn.doctor.finding import Finding, FindingState
from pyg_batchgnn.doctor.report import as_json, as_table, examine, is_healthy

__all__ = ["Finding", "FindingState", "as_json", "as_table", "examine", "is_healthy"]
