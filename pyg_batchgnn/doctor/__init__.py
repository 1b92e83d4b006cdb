"""Checks of what is installed and works here, with remedies for what does not."""

from typing import TYPE_CHECKING

from pyg_batchgnn.late_imports import late_names

if TYPE_CHECKING:
    from pyg_batchgnn.doctor.findings import Finding, FindingState, as_json, as_table, examine, is_healthy
else:
    __getattr__ = late_names(__name__)

__all__ = ["Finding", "FindingState", "as_json", "as_table", "examine", "is_healthy"]
