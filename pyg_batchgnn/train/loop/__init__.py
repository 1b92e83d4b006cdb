"""The training loop: steps, evaluation, epochs and requests to stop."""

from pyg_batchgnn.train.loop.evaluate import evaluate, infer
from pyg_batchgnn.train.loop.exact import NodeOutputs, evaluate_exactly, infer_all, score_nodes
from pyg_batchgnn.train.loop.job import TrainingJob, build_job
from pyg_batchgnn.train.loop.link_evaluation import embed_all, rank_links
from pyg_batchgnn.train.loop.observer import RunObserver, RunOutcome
from pyg_batchgnn.train.loop.pair_scorer import PairScorer
from pyg_batchgnn.train.loop.step import train_step
from pyg_batchgnn.train.loop.stop import StopRequest
from pyg_batchgnn.train.loop.trainer import Trainer

__all__ = [
    "NodeOutputs",
    "PairScorer",
    "RunObserver",
    "RunOutcome",
    "StopRequest",
    "Trainer",
    "TrainingJob",
    "build_job",
    "embed_all",
    "evaluate",
    "evaluate_exactly",
    "infer",
    "infer_all",
    "rank_links",
    "score_nodes",
    "train_step",
]
