"""The output of a run for people: terminal lines, tables and plots."""

from pyg_batchgnn.train.report.plots import plot_learning, plot_phases
from pyg_batchgnn.train.report.terminal import TerminalReport, final_table, opening

__all__ = ["TerminalReport", "final_table", "opening", "plot_learning", "plot_phases"]
