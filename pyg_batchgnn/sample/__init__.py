"""Which edges a minibatch uses: the sampling plan, the seed schedule and the samplers."""

from pyg_batchgnn.ops import keyed_permutation, minibatch_key
from pyg_batchgnn.sample.macrobatch import Layout, MacrobatchSampler
from pyg_batchgnn.sample.minibatch import AttributeRows, Minibatch, Placement, SampledMinibatch
from pyg_batchgnn.sample.plan import Replacement, SamplingPlan
from pyg_batchgnn.sample.pyg import PygNeighborSampler
from pyg_batchgnn.sample.relay import RelaySampler

__all__ = [
    "AttributeRows",
    "Layout",
    "MacrobatchSampler",
    "Minibatch",
    "Placement",
    "PygNeighborSampler",
    "RelaySampler",
    "Replacement",
    "SampledMinibatch",
    "SamplingPlan",
    "keyed_permutation",
    "minibatch_key",
]
