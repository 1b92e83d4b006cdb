"""The output of a run for people: lines and tables on the terminal, and plots."""

from pyg_batchgnn.train.report.final_table import final_table
from pyg_batchgnn.train.report.opening import opening_lines
from pyg_batchgnn.train.report.plots import plot_learning, plot_phases
from pyg_batchgnn.train.report.terminal import TerminalReport

__all__ = ["TerminalReport", "final_table", "opening_lines", "plot_learning", "plot_phases"]
