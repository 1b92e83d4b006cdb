"""The start, the resumption and the end of a run."""

from pyg_batchgnn.train.run.start import open_dataset, resume_run, start_or_resume_run, start_run

__all__ = ["open_dataset", "resume_run", "start_or_resume_run", "start_run"]
