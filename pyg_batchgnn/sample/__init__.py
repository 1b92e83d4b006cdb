"""Which edges a minibatch uses: the sampling plan, the seed schedule and the samplers."""

from pyg_batchgnn.ops import keyed_permutation, minibatch_key
from pyg_batchgnn.sample.macrobatch import Layout, MacrobatchSampler
from pyg_batchgnn.sample.minibatch import Minibatch
from pyg_batchgnn.sample.plan import Replacement, SamplingPlan
from pyg_batchgnn.sample.pyg import PygNeighborSampler
from pyg_batchgnn.sample.relay import RelaySampler

__all__ = [
    "Layout",
    "MacrobatchSampler",
    "Minibatch",
    "PygNeighborSampler",
    "RelaySampler",
    "Replacement",
    "SamplingPlan",
    "keyed_permutation",
    "minibatch_key",
]
